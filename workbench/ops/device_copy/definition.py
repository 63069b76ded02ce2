"""Device copy: bytes from one buffer to another, a ceiling of the machine.

What a copy reaches, read and written together, is what a kernel bound by memory is compared with;
one that only reads may move somewhat more (`row_gather`), the data sheet's figure nothing reaches.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes

WORD = 8  # bytes; a copy moves whole words
SENTINEL = 0xA5  # in every byte of a destination before a run
MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Workload:
    bytes: int = 1024 * MIB  # that are copied, a multiple of 8
    seed: int = 0

    def __post_init__(self):
        if self.bytes < 0 or self.bytes % WORD:
            raise ValueError(f"bytes={self.bytes} is no multiple of {WORD} from 0 on")
        if self.seed < 0:
            raise ValueError(f"seed={self.seed} is below 0")


class Inputs(NamedTuple):
    source: torch.Tensor  # [bytes] uint8
    destination: torch.Tensor  # [bytes] uint8, persistent, written


class Output(NamedTuple):
    copy: torch.Tensor  # [bytes] uint8, the destination itself


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the source on the device; the destination holds the sentinel."""
    destination = torch.full((w.bytes,), SENTINEL, dtype=torch.uint8, device=device)
    return Inputs(random_bytes((w.bytes,), w.seed, device), destination)


def validate(x: Inputs) -> None:
    """Raise ValueError where the buffers are not two equal runs of whole words."""
    for name, tensor in x._asdict().items():
        if tensor.dtype != torch.uint8 or tensor.ndim != 1 or not tensor.is_contiguous():
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)} with strides "
                             f"{tensor.stride()}, not uint8 [bytes] in one piece")  # fmt: skip
        if tensor.data_ptr() % WORD:
            raise ValueError(f"{name} starts at {tensor.data_ptr():#x}, not at a whole word")
    if len(x.source) != len(x.destination) or len(x.source) % WORD:
        raise ValueError(f"source has {len(x.source)} bytes, destination {len(x.destination)}: "
                         f"not equal multiples of {WORD}")  # fmt: skip


def reference(x: Inputs) -> Output:
    return Output(x.source.clone())


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit, and in the memory that was given."""
    if actual.copy.data_ptr() != x.destination.data_ptr():
        return Verdict("incorrect", why="copy is not the destination")
    if not same_bits(actual.copy, expected.copy):
        wrong = actual.copy.view(torch.int64) != expected.copy.view(torch.int64)
        first, count = int(wrong.int().argmax()), int(wrong.sum())
        return Verdict("incorrect", why=f"{count} words differ, the first is word {first}")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read every byte once, write it once."""
    return Cost(2 * len(x.source), 0)


def statistics(x: Inputs) -> dict:
    return {"copied_bytes": len(x.source)}


device_copy = Op(
    name="device_copy",
    Workload=Workload,
    Output=Output,
    dtypes={"copy": "uint8"},
    suites={
        # a word, odd counts, one word around a block of 2,048 words, several blocks and a tail
        "edges": tuple(
            Workload(bytes=WORD * words) for words in (513, 0, 1, 2, 3, 2047, 2048, 2049, 9999)
        ),
        "ceilings": tuple(Workload(bytes=size * MIB) for size in (256, 1024, 4096)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    writes=("destination",),
)
