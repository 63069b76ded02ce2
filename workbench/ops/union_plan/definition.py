"""Union plan: the rows that a group of neighbouring tokens selects, each once, with its owners.

Tokens 0..T-1 form groups of G in order; the last group may be short. For group g the plan lists
every row that at least one of its tokens selects, in any order, and for each row one bit a token:
bit j says that token g * G + j selected it. Seed 004 (sgl-project/sglang#32779) builds it per
group on the device, since a row that is listed twice is weighted twice.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ... import selections
from ...op import Cost, Op, Verdict

MAX_GROUP = 16  # owner bits that a plan may carry


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 2048  # T
    topk: int = 2048  # slots of a token
    rows: int | None = None  # S, of the cache; none: as many as tokens
    group: int = 4  # G, tokens that share a gather
    law: str = "walk"  # how rows are selected: `boundary`, `boundary:core=0.9`, a preset's name
    churn: float = 0.10  # share of its rows that a walk swaps from token to token
    padding: str = "tail"  # where invalid lanes stand: one of selections.PADDINGS
    holes: float = 0.0  # share of the selected lanes that are made invalid
    wild: bool = False  # invalid lanes hold any number outside the cache, not only -1
    length: str = "none"  # topk_length: one of selections.LENGTHS
    seed: int = 0
    requests: int = 1  # of the batch, sharing it evenly; a group may hold tokens of two of them

    def __post_init__(self):
        selections.check(self)
        if not 1 <= self.group <= MAX_GROUP:
            raise ValueError(f"group={self.group} is outside [1, {MAX_GROUP}]")

    @property
    def cache_rows(self) -> int:
        return self.tokens if self.rows is None else self.rows


class Inputs(NamedTuple):
    indices: torch.Tensor  # [T, topk] int32, rows may be strided; valid where 0 <= row < rows
    topk_length: torch.Tensor | None  # [T] int32, clamped to [0, topk]: lanes past it are invalid
    rows: int  # S
    group: int  # G


class Output(NamedTuple):
    union_rows: torch.Tensor  # [groups, G * topk] int32; entries past union_length are undefined
    owners: torch.Tensor  # [groups, G * topk] int32, bit j: token g * G + j selected the row
    union_length: torch.Tensor  # [groups] int32


def make_inputs(w: Workload, device: str) -> Inputs:
    places = selections.positions(w.tokens, w.cache_rows, requests=w.requests)
    indices, length = selections.draw(w, places)
    return Inputs(
        indices.to(device), None if length is None else length.to(device), w.cache_rows, w.group
    )


def validate(x: Inputs) -> None:
    """Raise ValueError on a shape, dtype or stride that a plan cannot take."""
    apart = x.indices.numel() and x.indices.shape[-1] > 1 and x.indices.stride(-1) != 1
    if x.indices.ndim != 2 or x.indices.dtype != torch.int32 or apart:
        raise ValueError(
            f"indices are {x.indices.dtype} {tuple(x.indices.shape)} with strides "
            f"{x.indices.stride()}, not int32 [T, topk] with rows in one piece"
        )
    if x.topk_length is not None and x.topk_length.shape != x.indices.shape[:1]:
        raise ValueError(f"topk_length has shape {tuple(x.topk_length.shape)} for "
                         f"{len(x.indices)} tokens")  # fmt: skip
    if not 1 <= x.group <= MAX_GROUP:
        raise ValueError(f"group={x.group} is outside [1, {MAX_GROUP}]")


def groups(x: Inputs) -> int:
    return -(-len(x.indices) // x.group)


def output_bytes(tokens: int, topk: int, group: int) -> int:
    """Of a plan: rows and owners of each entry that a list may have, and a length a group."""
    return -(-tokens // group) * (8 * group * topk + 4)


def reference(x: Inputs) -> Output:
    """The definition, group by group: who selects each row of the cache. Rows ascend."""
    valid = selections.valid_lanes(x.indices, x.rows, x.topk_length)
    shape = (groups(x), x.group * x.indices.shape[1])
    union_rows, owners = (x.indices.new_full(shape, -1) for _ in range(2))
    union_length = x.indices.new_zeros(shape[0])
    for g in range(shape[0]):
        selects = torch.zeros(x.group, x.rows, dtype=torch.int32, device=x.indices.device)
        for j, t in enumerate(range(g * x.group, min((g + 1) * x.group, len(x.indices)))):
            selects[j, x.indices[t][valid[t]].long()] = 1 << j
        bits = selects.sum(0, dtype=torch.int32)
        rows = bits.nonzero().flatten()
        union_rows[g, : len(rows)] = rows.int()
        owners[g, : len(rows)] = bits[rows]
        union_length[g] = len(rows)
    return Output(union_rows, owners, union_length)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Same rows with the same owners in every group, in any order, each once."""
    if not torch.equal(actual.union_length, expected.union_length):
        g = int((actual.union_length != expected.union_length).nonzero()[0])
        got, want = int(actual.union_length[g]), int(expected.union_length[g])
        return Verdict("incorrect", why=f"group {g} lists {got} rows, its tokens select {want}")
    lane = torch.arange(actual.union_rows.shape[1], device=actual.union_rows.device)
    listed = lane < expected.union_length[:, None]
    rows, order = torch.where(listed, actual.union_rows, 2**31 - 1).sort(dim=1)
    owners = actual.owners.gather(1, order)
    found = (("rows", rows, expected.union_rows), ("owners", owners, expected.owners))
    for name, got, want in found:
        wrong = (listed & (got != want)).nonzero()
        if len(wrong):
            g, k = (int(i) for i in wrong[0])
            why = f"first in group {g}: {int(got[g, k])}, not {int(want[g, k])}"
            return Verdict("incorrect", why=f"{name} of {len(wrong)} entries differ, {why}")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read every index once; write row and owners of each union entry once."""
    valid = selections.valid_lanes(x.indices, x.rows, x.topk_length)
    kept = torch.where(valid, x.indices, -1)
    entries = int(selections.distinct_rows(kept, x.rows, x.group).sum())
    return Cost(4 * x.indices.numel() + 8 * entries + 4 * groups(x), 0)


def statistics(x: Inputs) -> dict:
    return selection_statistics(x.indices, x.rows, x.topk_length)


def doubts(x: Inputs) -> list[str]:
    return selections.doubts(x.indices, x.rows, x.topk_length)


def selection_statistics(indices, rows: int, topk_length) -> dict:
    """Valid rows a token, and the union ratio for groups of 2, 4 and 8 tokens."""
    valid = selections.valid_lanes(indices, rows, topk_length)
    kept = torch.where(valid, indices, -1)
    ratios = {str(g): selections.union_ratio(kept, rows, g) for g in (2, 4, 8)}
    mean = float(valid.sum()) / len(indices) if len(indices) else float("nan")
    return {"valid_rows_per_token": mean, "union_ratio": ratios}


_tiny = Workload(tokens=9, topk=24, rows=64, churn=0.25)
_edges = (
    _tiny,
    replace(_tiny, group=2),
    replace(_tiny, group=1),
    replace(_tiny, group=8),
    replace(_tiny, group=16),  # one group, short
    replace(_tiny, tokens=1),
    replace(_tiny, tokens=0),
    replace(_tiny, topk=1),
    replace(_tiny, rows=9),  # fewer rows than topk: every token pads
    replace(_tiny, law="uniform", padding="mixed", holes=0.4),
    replace(_tiny, padding="head", rows=20),
    replace(_tiny, wild=True, padding="mixed", holes=0.3),
    replace(_tiny, length="ragged", law="uniform", wild=True, holes=0.2),
    replace(_tiny, holes=1.0),  # nobody selects anything
    replace(_tiny, churn=0.0),  # all tokens select the same rows
    replace(_tiny, churn=1.0, topk=33),  # not a multiple of any block
    replace(_tiny, tokens=5, rows=32766),  # the last row numbers that fit 16 bits
    replace(_tiny, tokens=5, rows=40000),  # and some that do not
    replace(_tiny, rows=200, requests=4, law="boundary"),  # groups across requests
)

union_plan = Op(
    name="union_plan",
    Workload=Workload,
    Output=Output,
    dtypes={"union_rows": "int32", "owners": "int32", "union_length": "int32"},
    suites={
        "edges": _edges,
        "tokens": tuple(
            Workload(tokens=tokens, group=group)
            for tokens in (2048, 4096, 8192)
            for group in (2, 4, 8)
        ),
        "spans": tuple(
            Workload(tokens=8192, rows=rows, group=8) for rows in (8192, 32768, 131072, 1 << 20)
        ),
        "tokens_small": tuple(Workload(tokens=tokens, topk=256) for tokens in (256, 512, 1024)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    doubts=doubts,
)
