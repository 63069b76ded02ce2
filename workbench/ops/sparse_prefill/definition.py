"""Sparse prefill: each query token attends to its own selected rows of one latent cache.

out[t, h] = sum_k softmax_k(sm_scale * q[t, h] . kv[row k]) * kv[row k][:512] over valid lanes of t.
A lane k is valid when 0 <= indices[t, k] < S and k < topk_length[t]; other lanes are never read. A
token without a valid lane gives out = 0, lse = -inf. `lse` is base 2 and excludes the sink. An
attention sink of head h is one more logit (natural log) that takes weight and gives nothing:
out *= 1 / (1 + exp(sink[h] - ln-sum-exp)). DeepSeek-V3.2 / GLM-5 shapes; contract of FlashMLA's
sparse prefill but for the base and empty-row value of lse. Seed 004 (sgl-project/sglang#32779).
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch

from ... import selections
from ...compare import LSE_TOLERANCE, ROW_SLACK, SLACK, relative_l2, storage_rounding, worst_row
from ...op import Cost, Op, Verdict
from ..union_plan.definition import selection_statistics
from .workload import SUITES, Workload

D = 576  # width of a query and of a cache row: 512 latent + 64 rotary
DC = 512  # latent width, and the width of a value
DR = D - DC
GATHERED_BYTES = 1 << 28  # of rows that the reference holds at a time


class Inputs(NamedTuple):
    q: torch.Tensor  # [T, H, 576] bf16, contiguous
    kv: torch.Tensor  # [S, 576] bf16, rows may be strided; NaN in rows that no token selects
    indices: torch.Tensor  # [T, topk] int32, rows may be strided
    positions: torch.Tensor  # [T] int32, place of each query in its request
    topk_length: torch.Tensor | None  # [T] int32, clamped to [0, topk]
    attn_sink: torch.Tensor | None  # [H] float32, natural-log logit
    sm_scale: float


class Output(NamedTuple):
    out: torch.Tensor  # [T, H, 512] bf16
    lse: torch.Tensor  # [T, H] float32, base 2, without the sink


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the tensors of `w`, on the CPU: equal workloads give equal tensors on every device."""
    gen = torch.Generator().manual_seed(w.seed)
    places = selections.positions(
        w.tokens, w.cache_rows, w.first_position, w.position_stride, w.requests
    )
    indices, length = selections.draw(w, places)
    q = torch.randn(w.tokens, w.heads, D, generator=gen).bfloat16()
    kv = torch.randn(w.cache_rows, D, generator=gen).bfloat16()
    valid = selections.valid_lanes(indices, w.cache_rows, length)
    unread = torch.ones(w.cache_rows, dtype=torch.bool)
    unread[indices[valid].long()] = False
    kv[unread] = torch.nan
    sink = None
    if w.sink == "random":
        sink = 2 * torch.randn(w.heads, generator=gen)
    elif w.sink != "none":
        sink = torch.full((w.heads,), float(w.sink))
    tensors = (q, kv, indices, places, length, sink)
    return Inputs(*(t if t is None else t.to(device) for t in tensors), w.sm_scale)


def validate(x: Inputs) -> None:
    """Raise ValueError on a shape, dtype or stride that would be read as something else."""
    (tokens, heads), topk = x.q.shape[:2], x.indices.shape[-1]
    for name, dtype, shape in (
        ("q", torch.bfloat16, (tokens, heads, D)),
        ("kv", torch.bfloat16, (len(x.kv), D)),
        ("indices", torch.int32, (tokens, topk)),
        ("positions", torch.int32, (tokens,)),
        ("topk_length", torch.int32, (tokens,)),
        ("attn_sink", torch.float32, (heads,)),
    ):
        tensor = getattr(x, name)
        if tensor is None:
            continue
        if tensor.dtype != dtype or tensor.shape != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
        if tensor.numel() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} has a last stride of {tensor.stride(-1)}, not 1")
    if x.q.numel() and not x.q.is_contiguous():
        raise ValueError(f"q has strides {x.q.stride()}: only a contiguous query is read")


def valid_lanes(x: Inputs) -> torch.Tensor:
    """Which lanes count [T, topk] bool."""
    return selections.valid_lanes(x.indices, len(x.kv), x.topk_length)


def reference(x: Inputs) -> Output:
    """The definition in float64; rows are gathered before they are widened."""
    valid = valid_lanes(x)

    def rows(part: slice) -> torch.Tensor:
        return x.kv[torch.where(valid[part], x.indices[part], 0).long()].double()

    return attention(x.q, valid, rows, DC, x.sm_scale, x.attn_sink)


def attention(
    q: torch.Tensor, valid: torch.Tensor, rows: Callable[[slice], torch.Tensor], d_v: int,
    sm_scale: float, sink: torch.Tensor | None,
) -> Output:  # fmt: skip
    """Queries [T, H, d_qk] over lanes of rows, `valid` [T, lanes] bool, in float64.

    `rows` gives the rows [tokens, lanes, d_qk] of some tokens in float64; what it holds at lanes
    that are not valid does not count, whatever it is.
    """
    tokens, heads, d_qk = q.shape
    out = torch.zeros(tokens, heads, d_v, dtype=torch.float64, device=q.device)
    lse = torch.full((tokens, heads), -torch.inf, dtype=torch.float64, device=q.device)
    at_once = max(1, GATHERED_BYTES // max(1, 8 * valid.shape[1] * d_qk))
    for begin in range(0, tokens, at_once):
        part = slice(begin, begin + at_once)
        lanes = valid[part]
        if not lanes.any():
            continue
        row = rows(part).masked_fill(~lanes[..., None], 0)
        scores = (q[part].double() @ row.mT * sm_scale).masked_fill(~lanes[:, None], -torch.inf)
        natural = scores.logsumexp(-1)  # [tokens, H]
        answer = (scores - natural[..., None]).exp() @ row[..., :d_v]
        if sink is not None:
            answer *= torch.sigmoid(natural - sink.double())[..., None]
        out[part] = answer.masked_fill(~lanes.any(-1)[:, None, None], 0)  # of no row: not a number
        lse[part] = natural / math.log(2)
    return Output(out, lse)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Finite, empty rows as the contract says, lse close, out within twice the storage rounding."""
    empty = expected.lse.isneginf()
    if not actual.out.isfinite().all():
        t, h, _ = (int(i) for i in (~actual.out.isfinite()).nonzero()[0])
        return Verdict("incorrect", why=f"out is not finite, first at token {t} head {h}")
    if actual.lse.isnan().any() or not torch.equal(actual.lse.isneginf(), empty):
        return Verdict("incorrect", why="lse is not -inf exactly where no lane is valid")
    if actual.out[empty].any():
        return Verdict("incorrect", why="out is not zero where no lane is valid")
    off = ((actual.lse - expected.lse).abs() / expected.lse.abs().clamp(min=1))[~empty]
    if off.numel() and off.max() > LSE_TOLERANCE:
        return Verdict("incorrect", why=f"lse is off by {off.max():.1e} (base 2)")
    rounding = storage_rounding(expected.out, torch.bfloat16)
    error, budget = relative_l2(actual.out, expected.out), SLACK * rounding
    if error > budget:
        return Verdict("incorrect", error, budget, f"out is off by {error:.2e} of its norm")
    worst, row = worst_row(actual.out, expected.out)
    if worst > ROW_SLACK * rounding:
        why = f"out of token, head {row} is off by {worst:.2e} of its norm"
        return Verdict("incorrect", error, budget, why)
    return Verdict("passed", error, budget)


def _read_rows(x: Inputs) -> torch.Tensor:
    """Which rows of the cache at least one token reads [S] bool."""
    seen = torch.zeros(len(x.kv), dtype=torch.bool, device=x.kv.device)
    seen[x.indices[valid_lanes(x)].long()] = True
    return seen


def cost(x: Inputs) -> Cost:
    """Read each selected row once however many tokens share it; read q, indices, write out, lse."""
    tokens, heads, _ = x.q.shape
    rows = int(_read_rows(x).sum()) * D * 2
    moved = rows + tokens * heads * ((D + DC) * 2 + 4) + 4 * x.indices.numel()
    return Cost(moved, 2 * heads * int(valid_lanes(x).sum()) * (D + DC))


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Another selection and other queries on the cache of `first`, as the next call would have.

    Rows of the cache that no selection has read so far hold NaN: they get the fresh numbers.
    """
    first.kv.copy_(torch.where(first.kv.isnan(), fresh.kv, first.kv))
    return fresh._replace(kv=first.kv)


def shared_bytes(sets) -> int:
    """Rows of the one cache that several sets read."""
    seen = [_read_rows(x) for x in sets]
    union = torch.stack(seen).any(0)
    return (sum(int(s.sum()) for s in seen) - int(union.sum())) * D * 2


def doubts(x: Inputs) -> list[str]:
    return selections.doubts(x.indices, len(x.kv), x.topk_length)


def statistics(x: Inputs) -> dict:
    return selection_statistics(x.indices, len(x.kv), x.topk_length)


sparse_prefill = Op(
    name="sparse_prefill",
    Workload=Workload,
    Output=Output,
    dtypes={"out": "bfloat16", "lse": "float32"},
    lse_base=2,
    suites=SUITES,
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    rotated=rotated,
    shared_bytes=shared_bytes,
    doubts=doubts,
)
