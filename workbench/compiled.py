"""What the compiler made of a variant, read without a GPU: registers, stack, shared memory.

A launch is recorded in place of being made and its kernel compiled ahead of time with the
specialisation that the just-in-time compiler would choose for the same arguments.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from unittest.mock import patch

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import JITFunction, create_function_from_signature

from .interpreter import active
from .op import Config, Inputs, Variant

CUOBJDUMP = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
# Bytes of shared memory that a block may ask for, by compute capability (CUDA programming guide)
SHARED_BYTES = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 103: 232448,
                120: 101376, 121: 101376}  # fmt: skip
MIN_BLOCK_K = 16


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel of a variant."""

    name: str
    registers: int  # a thread
    stack_bytes: int  # a thread; above 0 are spills or local arrays
    shared_bytes: int  # a block, dynamic and static
    mma: dict[str, int]  # tensor-core instructions by mnemonic
    ptx: str


def arch_number(arch: str) -> int:
    """90 for "sm_90". Raises ValueError on an architecture of which no limit is known."""
    match = re.fullmatch(r"sm_(\d+)a?", arch)
    if not match or int(match[1]) not in SHARED_BYTES:
        known = ", ".join(f"sm_{n}" for n in SHARED_BYTES)
        raise ValueError(f"unknown arch {arch!r} (known: {known})")
    return int(match[1])


@contextmanager
def _recorded_launches() -> Iterator[list]:
    launches = []

    def run(self, *args, grid, warmup, **options):
        launches.append((self, args, options))

    with patch.object(JITFunction, "run", run):
        yield launches


def compile_for(v: Variant, x: Inputs, config: Config = None, *, arch: int = 90) -> list[Kernel]:
    """Compile every kernel that `v` launches on `x`, for compute capability `arch`.

    Raises RuntimeError in a process in which Triton interprets: library functions are replaced.
    """
    if active():
        raise RuntimeError("kernels cannot be compiled while TRITON_INTERPRET=1 is set")
    with _recorded_launches() as launches:
        v(x, config)
    return [_compile(*launch, arch) for launch in launches]


def _compile(fn: JITFunction, args: tuple, options: dict, arch: int) -> Kernel:
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    binder = create_function_from_signature(fn.signature, fn.params, backend)
    options = options | {"debug": options.get("debug", fn.debug)}
    bound, specialization, rest = binder(*args, **options)
    parsed, signature, constexprs, attrs = fn._pack_args(
        backend, options, bound, specialization, rest
    )
    kind = GluonASTSource if fn.is_gluon() else ASTSource
    source = kind(fn, signature, constexprs, attrs)
    result = triton.compile(source, target=target, options=parsed.__dict__)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(result.asm["cubin"])
        usage, sass = (
            subprocess.run(
                [CUOBJDUMP, flag, file.name], capture_output=True, text=True, check=True
            ).stdout
            for flag in ("--dump-resource-usage", "--dump-sass")
        )
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK):(\d+)", usage)}
    mma: dict[str, int] = {}
    for name in re.findall(r"\b((?:[HQ]|I|UTC[HQ]?)G?MMA\.\w+)", sass):
        mma[name] = mma.get(name, 0) + 1
    return Kernel(
        result.metadata.name, found["REG"], found["STACK"], result.metadata.shared, mma,
        result.asm["ptx"],
    )  # fmt: skip


class DoesNotFit(ValueError):
    """No config of a variant fits the shared memory of a device."""


def smaller(config: Config) -> Iterator[Config]:
    """Configs to try in turn where `config` asks for too much shared memory, largest first.

    Fewer stages before fewer rows: 2 stages, then half of block_k with the asked stages, ... Never
    1 stage: without a pipeline the compiler moves the tile through shared memory once more.
    """
    if config is None or not {"block_k", "num_stages"} <= {f.name for f in fields(config)}:
        return
    block, stages, seen = config.block_k, config.num_stages, [config]
    while block >= MIN_BLOCK_K:
        for count in (stages, 2):
            candidate = replace(config, block_k=block, num_stages=min(count, stages))
            if candidate not in seen:
                seen.append(candidate)
                yield candidate
        block //= 2


def fit(
    config: Config, shared_bytes: Callable[[Config], int], limit: int
) -> tuple[Config, str | None]:
    """Return (the largest config at or below `config` that fits `limit` bytes, what was done).

    Raises DoesNotFit where none does, naming the last that was tried.
    """
    needed = shared_bytes(config)
    if needed <= limit:
        return config, None
    least, tried = needed, config
    for candidate in smaller(config):
        least, tried = shared_bytes(candidate), candidate
        if least <= limit:
            return candidate, f"stepped down: {needed} bytes of shared memory exceed {limit}"
    raise DoesNotFit(f"{asdict(tried) if tried else 'no config'} still needs {least} bytes of "
                     f"shared memory, the device has {limit}")  # fmt: skip
