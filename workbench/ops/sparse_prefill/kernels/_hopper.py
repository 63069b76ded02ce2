"""Steps of the kernels for Hopper, in Gluon, and their launch over unions. No kernel lives here.

Shared memory holds tiles of bf16 in rows of 64 columns, swizzled over 128 bytes: what a warp
group's matrix product reads, either way round.
"""

from dataclasses import dataclass, replace

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from .... import ranges
from ..._gluon import cp_async as cp_async
from ..._gluon import cta_barrier as cta_barrier
from ...union_plan.definition import Inputs as Selections
from ...union_plan.definition import output_bytes
from ...union_plan.kernels.shared_map import shared_map as plan
from ..definition import DC, D, Inputs, Output

LOG2_E = gl.constexpr(1.4426950408889634)
MASKED = gl.constexpr(-1e30)  # score of a lane that does not count
UNSEEN = gl.constexpr(-5e29)  # the running maximum's start: a masked score's weight is 0 beside it
ROWS = 64  # of a tile: query rows of one matrix product, or cache rows


@gluon.jit
def copy_rows(
    tile, kv, rows, read, first,
    KV_STRIDE: gl.constexpr, WIDTH: gl.constexpr, L: gl.constexpr,
):  # fmt: skip
    """Start to copy WIDTH columns from `first` on of cache rows; zeros, and not row 0, where not
    `read`. Eight threads copy 128 bytes of a row, so a row number is loaded by eight of them."""
    d = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, L))
    source = kv + first + (rows.to(gl.int64) * KV_STRIDE)[:, None] + d[None, :]
    cp_async(tile, source, mask=read[:, None])


@gluon.jit
def copy_tile(kv, rows, start, count, latent, rope, KV_STRIDE: gl.constexpr, DC: gl.constexpr):
    """Start to copy the 64 cache rows from entry `start` on of a list of `count`; zeros behind."""
    L: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    k = start + gl.arange(0, 64, layout=gl.SliceLayout(1, L))
    row = gl.load(rows + k, mask=k < count, other=0)
    copy_rows(latent, kv, row, k < count, 0, KV_STRIDE, DC, L)
    copy_rows(rope, kv, row, k < count, DC, KV_STRIDE, 64, L)
    async_copy.commit_group()


@gluon.jit
def copy_query(
    tile, q, th, end, first,
    D: gl.constexpr, QUERIES: gl.constexpr, WIDTH: gl.constexpr,
):  # fmt: skip
    """Start to copy WIDTH columns from `first` on of query rows th .. th + end; zeros behind."""
    L: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])
    r = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, L))
    d = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, L))
    cp_async(tile, q + (th + r)[:, None] * D + (first + d)[None, :], mask=(r < end)[:, None])


@gluon.jit
def softmax_step(scores, m, l, counts, scale_log2, AXIS: gl.constexpr):
    """(weights, m, l, alpha) of the online softmax in base 2; cache rows lie along AXIS.

    A maximum that has seen nothing lies above a masked score, so that exp2 of their difference is
    zero: a query that has met no valid lane gets no weight, and needs no second mask.
    """
    scores = gl.where(counts, scores * scale_log2, MASKED)
    m_new = gl.maximum(m, gl.max(scores, AXIS))
    weights = gl.exp2(scores - m_new.expand_dims(AXIS))
    alpha = gl.exp2(m - m_new)
    return weights, m_new, l * alpha + gl.sum(weights, AXIS), alpha


@gluon.jit
def finish(m, l, attn_sink, head, HAS_SINK: gl.constexpr):
    """(factor of the sums of values, base-2 lse) of the softmax state; no valid lane: 0, -inf."""
    none = l == 0.0
    safe = gl.where(none, 1.0, l)
    lse = gl.where(none, 0.0, m + gl.log2(safe))
    factor = gl.where(none, 0.0, 1.0 / safe)
    if HAS_SINK:
        factor = factor / (1.0 + gl.exp2(gl.load(attn_sink + head) * LOG2_E - lse))
    return factor, gl.where(none, -float("inf"), lse)


def outputs(x: Inputs) -> Output:
    """Memory for the result. Raises ValueError where 16-byte copies cannot read q or kv."""
    for name in ("q", "kv"):
        tensor = getattr(x, name)
        if tensor.data_ptr() % 16 or tensor.stride(-2) * tensor.element_size() % 16:
            raise ValueError(f"rows of {name} do not all begin at a multiple of 16 bytes")
    tokens, heads, _ = x.q.shape
    out = torch.empty(tokens, heads, DC, dtype=x.q.dtype, device=x.q.device)
    return Output(out, torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device))


def over_unions(kernel, x: Inputs, group: int, **options) -> Output:
    """Plan the unions of every `group` tokens, and run `kernel` on each of them."""
    result = outputs(x)
    tokens, heads, _ = x.q.shape
    if not tokens:
        return result
    with ranges.span("plan"):
        union_rows, owners, length = plan(Selections(x.indices, x.topk_length, len(x.kv), group))
    with ranges.span("kernel"):
        kernel[(len(length),)](
            x.q, x.kv, union_rows, owners, length, x.attn_sink, result.out, result.lse,
            x.sm_scale * LOG2_E.value,
            tokens, heads, union_rows.stride(0), 0,
            HAS_SINK=x.attn_sink is not None, KV_STRIDE=x.kv.stride(0), D=D, DC=DC, G=group,
            **options,
        )  # fmt: skip
    return result


def filled(group: int, heads: int) -> int:
    """Tokens whose heads together take a tile of query rows: `group`, where it is not 0."""
    return group or min(16, max(1, ROWS // heads))


def settled(w, config):
    """`config` with the group that fills the tile, where it names none."""
    return replace(config, group=filled(config.group, w.heads))


def lists_bytes(w, config) -> int:
    """Workspace of a run over unions: their lists, since a plan from a map needs nothing else."""
    return output_bytes(w.tokens, w.topk, filled(config.group, w.heads))


@dataclass(frozen=True)
class Registers:
    """A thread's, of the warp groups that copy and that compute."""

    producer_registers: int = 72
    consumer_registers: int = 216


def registers_fit(producer: int, consumer: int) -> str | None:
    """Why 4 warps that copy and 8 that compute cannot have these registers, or None."""
    for name, registers in (("producer", producer), ("consumer", consumer)):
        if registers % 8 or not 24 <= registers <= 240:
            return f"{name}_registers={registers} is no multiple of 8 in [24, 240]"
    if (total := 128 * (producer + 2 * consumer)) > 65536:
        return f"the warp groups would take {total:,} of 65,536 registers"
    return None


def enough_registers(w, config: Registers) -> str | None:
    return registers_fit(config.producer_registers, config.consumer_registers)


def one_tile(w, group: int) -> str | None:
    """Why a tile of query rows does not hold the group's, or None."""
    group = filled(group, w.heads)
    if not 1 <= group <= 16:
        return f"group={group} is outside [1, 16]"
    if group * w.heads > ROWS:
        return f"group * heads = {group} * {w.heads} = {group * w.heads} exceeds {ROWS} query rows"
    return None
