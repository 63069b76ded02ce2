"""A program a head and some of its columns: all parts' lse at once, then their outputs by tiles.

Reads each part once and writes the answer once. Columns are shared out because a decode step of one
request has few heads: 16 programs would leave the rest of the GPU idle.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_wait

from ..definition import Inputs, Output, merge_splits

LOG2_E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True)
class Config:
    block_v: int = 128  # columns a program takes
    block_s: int = 16  # parts a step
    num_warps: int = 1


@triton.jit
def share(lse, sink_log2):
    """What the sink leaves of an answer: 0 without a row, 1 without a sink (-inf)."""
    none = lse == -float("inf")
    left = 1.0 / (1.0 + tl.exp2(sink_log2 - tl.where(none, 0.0, lse)))
    return tl.where(none, 0.0, left)


@triton.jit
def whole(lse, row, inside, SPLITS: tl.constexpr, ALL_S: tl.constexpr):
    """(largest lse of the parts, or 0 without one; sum of their weights) of the heads `row` [R].

    Weights are relative to the largest, so that of a single part is exactly 1.
    """
    s = tl.arange(0, ALL_S)[None, :]
    each = tl.load(lse + row[:, None] * SPLITS + s, mask=inside[:, None] & (s < SPLITS),
                   other=-float("inf"), cache_modifier=".cg")  # fmt: skip
    most = tl.max(each, 1)
    most = tl.where(most == -float("inf"), 0.0, most)
    return most, tl.sum(tl.exp2(each - most[:, None]), 1)


@triton.jit
def columns(
    partial, lse, row, inside, column, most, total,
    SPLITS: tl.constexpr, D_V: tl.constexpr, BLOCK_S: tl.constexpr,
):  # fmt: skip
    """The merged answer [R, C] of the heads `row` [R] at `column` [C], before any sink."""
    acc = tl.zeros([row.shape[0], column.shape[0]], tl.float32)
    for first in range(0, SPLITS, BLOCK_S):
        s = first + tl.arange(0, BLOCK_S)[None, :]
        part = row[:, None] * SPLITS + s  # [R, BLOCK_S]
        each = tl.load(lse + part, mask=inside[:, None] & (s < SPLITS), other=-float("inf"),
                       cache_modifier=".cg")  # fmt: skip
        met = (each > -float("inf"))[:, :, None] & (column < D_V)[None, None, :]
        # .cg: what other programs of this launch wrote is in L2
        found = tl.load(partial + part[:, :, None] * D_V + column[None, None, :], mask=met,
                        other=0.0, cache_modifier=".cg")  # fmt: skip
        acc += tl.sum(tl.exp2(each - most[:, None])[:, :, None] * found, 1)
    return acc * (1.0 / tl.where(total == 0.0, 1.0, total))[:, None]


@triton.jit
def whole_lse(most, total):
    """Base-2 log-sum-exp of all parts."""
    return tl.where(total == 0.0, -float("inf"), most + tl.log2(tl.where(total == 0.0, 1.0, total)))


@triton.jit
def _merge_kernel(
    partial, partial_lse, attn_sink, out, lse,
    H, LSE_STRIDE,
    SPLITS: tl.constexpr, D_V: tl.constexpr, ALL_S: tl.constexpr, BLOCK_S: tl.constexpr,
    BLOCK_V: tl.constexpr, WAITS: tl.constexpr,
):  # fmt: skip
    if WAITS:
        gdc_wait()  # for the parts: this kernel's programs may be there before they are
    th = tl.program_id(0).to(tl.int64)
    row = th + tl.zeros([1], tl.int64)
    column = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    inside = tl.full([1], True, tl.int1)
    most, total = whole(partial_lse, row, inside, SPLITS, ALL_S)
    merged = columns(partial, partial_lse, row, inside, column, most, total, SPLITS, D_V, BLOCK_S)
    row_lse = whole_lse(most, total)
    if attn_sink is not None:
        merged = merged * share(row_lse, tl.load(attn_sink + row % H) * LOG2_E)[:, None]
    place = row[:, None] * D_V + column[None, :]
    tl.store(out + place, merged.to(out.dtype.element_ty), mask=(column < D_V)[None, :])
    if tl.program_id(1) == 0:
        tl.store(lse + row // H * LSE_STRIDE + row % H, row_lse)


@cache
def _starts_early(device: torch.device) -> bool:
    """Whether programs of a kernel can be there before the kernel in front of it has ended."""
    return torch.cuda.get_device_capability(device)[0] >= 9


def merged(x: Inputs, out: torch.Tensor, lse: torch.Tensor, config: Config = Config()) -> None:
    """Write the answer to `x` into out [T, H, d_v] and lse [T, H], lse may be strided."""
    (tokens, heads, splits), width = x.lse.shape, x.partial.shape[-1]
    if not tokens:
        return
    # launched when the last program before it ends, before its memory is flushed: gdc_wait waits
    waits = x.lse.is_cuda and _starts_early(x.lse.device)
    _merge_kernel[(tokens * heads, triton.cdiv(width, config.block_v))](
        x.partial, x.lse, x.attn_sink, out, lse,
        heads, lse.stride(0),
        SPLITS=splits, D_V=width, ALL_S=triton.next_power_of_2(splits),
        BLOCK_S=min(config.block_s, triton.next_power_of_2(splits)), BLOCK_V=config.block_v,
        WAITS=waits, num_warps=config.num_warps, launch_pdl=waits,
    )  # fmt: skip


@merge_splits.variant(config=Config(), step_from="eager")
def merge(x: Inputs, config: Config) -> Output:
    """Weigh and add the parts of a head in one program for each of its column tiles."""
    tokens, heads, _, width = x.partial.shape
    out = torch.empty(tokens, heads, width, dtype=torch.bfloat16, device=x.lse.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.lse.device)
    merged(x, out, lse, config)
    return Output(out, lse)
