"""Shared read: threads read a ring of buffers in shared memory, a ceiling of the machine.

Every program copies its ring from memory once, then reads one buffer after the other, many times,
and adds up what it reads, place by place. Which buffer comes next depends on a stride that only the
running kernel knows, so that no compiler can read once what is to be read often.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes

WORD = 4  # bytes


@dataclass(frozen=True, kw_only=True)
class Workload:
    programs: int = 264  # two for each of 132 multiprocessors
    buffers: int = 4  # of a ring, a power of two
    words: int = 4096  # 4-byte words of a buffer, a power of two
    loops: int = 16384  # buffers that a program reads
    stride: int = 3  # read i takes buffer i * stride % buffers
    seed: int = 0

    def __post_init__(self):
        for name in ("buffers", "words"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise ValueError(f"{name}={value} is no power of two")
        if min(self.programs, self.loops, self.stride, self.seed) < 0:
            raise ValueError(f"programs={self.programs}, loops={self.loops}, "
                             f"stride={self.stride} or seed={self.seed} is below 0")  # fmt: skip


class Inputs(NamedTuple):
    ring: torch.Tensor  # [programs, buffers, words] int32
    loops: int
    stride: int


class Output(NamedTuple):
    sums: torch.Tensor  # [programs, words] int32: wrapping sum over all reads


def make_inputs(w: Workload, device: str) -> Inputs:
    drawn = random_bytes((w.programs, w.buffers, w.words * WORD), w.seed, device)
    return Inputs(drawn.view(torch.int32), w.loops, w.stride)


def validate(x: Inputs) -> None:
    """Raise ValueError on a ring of another form."""
    ring = x.ring
    if ring.dtype != torch.int32 or ring.ndim != 3 or not ring.is_contiguous():
        raise ValueError(f"ring is {ring.dtype} {tuple(ring.shape)} with strides {ring.stride()}, "
                         "not int32 [programs, buffers, words] in one piece")  # fmt: skip
    if any(n < 1 or n & (n - 1) for n in ring.shape[1:]):
        raise ValueError(f"ring has {ring.shape[1]} buffers of {ring.shape[2]} words: "
                         "no powers of two")  # fmt: skip


def reference(x: Inputs) -> Output:
    """The definition: each buffer times how often it is read, modulo 2**32."""
    buffers = x.ring.shape[1]
    order = torch.arange(x.loops, device=x.ring.device) * x.stride % buffers
    times = (order[:, None] == torch.arange(buffers, device=x.ring.device)).sum(0)
    sums = (x.ring.long() * times[:, None]).sum(1)  # [programs, words]
    return Output(sums.int())  # the low 32 bits


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit."""
    if not same_bits(actual.sums, expected.sums):
        p, k = (int(i) for i in (actual.sums != expected.sums).nonzero()[0])
        return Verdict("incorrect", why=f"sums differ, the first of program {p} at word {k}")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read the rings once, write the sums once."""
    return Cost(WORD * x.ring.numel() + WORD * len(x.ring) * x.ring.shape[2], 0)


def statistics(x: Inputs) -> dict:
    """What the ceiling counts: bytes that threads read from shared memory."""
    return {"shared_bytes": len(x.ring) * x.loops * x.ring.shape[2] * WORD}


_tiny = Workload(programs=3, words=1024, loops=5)
_edges = (
    _tiny,
    replace(_tiny, words=4096, loops=8),
    replace(_tiny, loops=0),
    replace(_tiny, loops=1),
    replace(_tiny, programs=0),
    replace(_tiny, programs=1),
    replace(_tiny, buffers=1),
    replace(_tiny, buffers=8, loops=19),
    replace(_tiny, stride=2, loops=7),  # half of the ring is never read
    replace(_tiny, stride=0),
)

shared_read = Op(
    name="shared_read",
    Workload=Workload,
    Output=Output,
    dtypes={"sums": "int32"},
    suites={
        "edges": _edges,
        # two blocks and one block a multiprocessor of an H200, as much shared memory in all
        "ceilings": (Workload(), Workload(programs=132, buffers=8, loops=32768)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
)
