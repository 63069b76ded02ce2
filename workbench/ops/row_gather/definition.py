"""Row gather: read random rows of a pool, a ceiling of the machine for one width of row.

Sparse attention reads its cache by rows of 1,152 (bf16), 656 (fp8 decode) or 584 bytes (DSv4). How
fast rows of that width come from memory, and how fast from the L2, no copy tells. Each row that is
read becomes one 64-bit word, the wrapping sum of its 8-byte words: no read can be left out, and
all can be checked bit for bit.

Whether the pool stays in the L2 follows from `Workload.pool_bytes` and the L2 of the device: a pool
of at most half of it is resident, one many times as large comes from memory (`models.ceilings`).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes

WORD = 8  # bytes; rows are whole words
WIDTHS = (1152, 656, 584)  # bytes of the rows that sparse attention gathers
MIB = 1 << 20
RESIDENT, FAR, GATHERED = 16 * MIB, 4096 * MIB, 2048 * MIB  # bytes: two pools, and what is read
CHUNK_BYTES = 256 * MIB  # that the reference gathers at a time
PLACES = 1 << 20  # added to the seed for the indices: not the noise of the pool


@dataclass(frozen=True, kw_only=True)
class Workload:
    row_bytes: int = 656  # a multiple of 8
    rows: int = RESIDENT // 656  # of the pool
    count: int = GATHERED // 656  # rows that are gathered: uniform, with replacement
    seed: int = 0

    def __post_init__(self):
        if self.row_bytes < WORD or self.row_bytes % WORD:
            raise ValueError(f"row_bytes={self.row_bytes} is no multiple of {WORD} from {WORD} on")
        if self.rows < 0 or self.count < 0 or self.seed < 0:
            raise ValueError(f"rows={self.rows}, count={self.count} or seed={self.seed} "
                             "is below 0")  # fmt: skip
        if self.rows >= 2**31 or (self.count and not self.rows):
            raise ValueError(f"{self.count} int32 indices cannot name {self.rows} rows")

    @property
    def pool_bytes(self) -> int:
        return self.rows * self.row_bytes


class Inputs(NamedTuple):
    pool: torch.Tensor  # [rows, row_bytes] uint8, in one piece
    indices: torch.Tensor  # [count] int32, each in [0, rows); repeats happen


class Output(NamedTuple):
    sums: torch.Tensor  # [count] int64: wrapping sum of the 8-byte words of each gathered row


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw pool and indices on the device, from integers alone: equal on every device."""
    drawn = random_bytes((w.count * 8,), w.seed + PLACES, device).view(torch.int64)
    indices = drawn.bitwise_and_(2**63 - 1).remainder_(max(w.rows, 1)).int()
    return Inputs(random_bytes((w.rows, w.row_bytes), w.seed, device), indices)


def validate(x: Inputs) -> None:
    """Raise ValueError on a pool or indices of another form."""
    pool, indices = x.pool, x.indices
    if pool.dtype != torch.uint8 or pool.ndim != 2 or not pool.is_contiguous():
        raise ValueError(f"pool is {pool.dtype} {tuple(pool.shape)} with strides {pool.stride()}, "
                         "not uint8 [rows, row_bytes] in one piece")  # fmt: skip
    if not pool.shape[1] or pool.shape[1] % WORD or pool.data_ptr() % WORD:
        raise ValueError(f"rows of {pool.shape[1]} bytes from {pool.data_ptr():#x} on are not "
                         f"whole words of {WORD} bytes")  # fmt: skip
    if indices.dtype != torch.int32 or indices.ndim != 1 or not indices.is_contiguous():
        raise ValueError(f"indices are {indices.dtype} {tuple(indices.shape)}, not int32 [count]")


def reference(x: Inputs) -> Output:
    """The definition, a bounded part of the rows at a time."""
    words = x.pool.view(torch.int64)
    step = max(1, CHUNK_BYTES // x.pool.shape[1])
    sums = x.indices.new_empty(len(x.indices), dtype=torch.int64)
    for start in range(0, len(x.indices), step):
        sums[start : start + step] = words[x.indices[start : start + step].long()].sum(1)
    return Output(sums)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit."""
    if not same_bits(actual.sums, expected.sums):
        wrong = actual.sums != expected.sums
        first = int(wrong.int().argmax())
        why = f"{int(wrong.sum())} sums differ, the first is {first}, of row {x.indices[first]}"
        return Verdict("incorrect", why=why)
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read each row that is named once, and every index; write every sum."""
    named = len(x.indices.unique())
    return Cost(named * x.pool.shape[1] + (4 + WORD) * len(x.indices), 0)


def statistics(x: Inputs) -> dict:
    """What a ceiling counts: every row as often as it is gathered."""
    return {"gathered_bytes": len(x.indices) * x.pool.shape[1], "pool_bytes": x.pool.numel()}


_tiny = Workload(row_bytes=656, rows=50, count=37)
_edges = (
    _tiny,
    replace(_tiny, row_bytes=1152),
    replace(_tiny, row_bytes=584),
    replace(_tiny, row_bytes=8),
    replace(_tiny, row_bytes=2040),  # 255 words: every power of two below 256
    replace(_tiny, count=0, rows=0),
    replace(_tiny, count=0),
    replace(_tiny, count=1),
    replace(_tiny, rows=1),  # one row, again and again
    replace(_tiny, count=256, row_bytes=584),  # whole blocks of rows
    replace(_tiny, count=257, row_bytes=1152),
)

row_gather = Op(
    name="row_gather",
    Workload=Workload,
    Output=Output,
    dtypes={"sums": "int64"},
    suites={
        "edges": _edges,
        "ceilings": tuple(
            Workload(row_bytes=width, rows=pool // width, count=GATHERED // width)
            for pool in (RESIDENT, FAR)
            for width in WIDTHS
        ),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
)
