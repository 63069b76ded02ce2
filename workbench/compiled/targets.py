"""What a multiprocessor of each architecture holds, and how many blocks of a kernel that is.

Limits: CUDA C++ programming guide, table of compute capabilities. Occupancy: the arithmetic of
cuda_occupancy.h, which NVIDIA ships with the toolkit for this purpose.
"""

import re
from typing import NamedTuple

REGISTERS = 65536  # of a multiprocessor, in 4 parts; a warp lives in one of them
PARTS = 4
REGISTER_UNIT = 256  # registers are handed to a warp in such pieces
SHARED_UNIT = 128  # shared memory is handed to a block in such pieces
RESERVED_BYTES = 1024  # of shared memory that the system takes for each block


class Target(NamedTuple):
    """Limits of a multiprocessor."""

    shared_bytes: int  # that one block may ask for
    shared_sm_bytes: int  # of all blocks, reserved ones included
    warps: int
    blocks: int


TARGETS = {
    80: Target(166912, 167936, 64, 32),
    86: Target(101376, 102400, 48, 16),
    89: Target(101376, 102400, 48, 24),
    90: Target(232448, 233472, 64, 32),
    100: Target(232448, 233472, 64, 32),
    103: Target(232448, 233472, 64, 32),
    120: Target(101376, 102400, 48, 24),
    121: Target(101376, 102400, 48, 24),
}


class Occupancy(NamedTuple):
    """How much of a kernel a multiprocessor holds at once; no blocks where one does not fit."""

    blocks: int
    warps: int
    limit: str  # what keeps another block out


def arch_number(arch: str) -> int:
    """90 for "sm_90". Raises ValueError on an architecture of which no limit is known."""
    match = re.fullmatch(r"sm_(\d+)a?", arch)
    if not match or int(match[1]) not in TARGETS:
        known = ", ".join(f"sm_{n}" for n in TARGETS)
        raise ValueError(f"unknown arch {arch!r} (known: {known})")
    return int(match[1])


def arch_numbers(text: str) -> list[int]:
    """[90, 120] for "sm_90,sm_120", repeats left out. Raises ValueError as `arch_number` does."""
    return list(dict.fromkeys(arch_number(name.strip()) for name in text.split(",")))


def occupancy(arch: int, registers: int, warps: int, shared_bytes: int) -> Occupancy:
    """Blocks and warps a multiprocessor holds of a kernel: `registers` a thread, `warps` a block.

    `shared_bytes` is what the launch asks for, of which a block may also be refused.
    """
    target = TARGETS[arch]
    a_warp = _up(max(1, registers) * 32, REGISTER_UNIT)
    found = {
        "warps": target.warps // warps,
        "registers": REGISTERS // PARTS // a_warp * PARTS // warps,
        "blocks": target.blocks,
        "shared": target.shared_sm_bytes // _up(shared_bytes + RESERVED_BYTES, SHARED_UNIT),
    }
    if shared_bytes > target.shared_bytes:
        found["shared"] = 0
    limit = min(found, key=found.get)
    return Occupancy(found[limit], found[limit] * warps, limit)


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
