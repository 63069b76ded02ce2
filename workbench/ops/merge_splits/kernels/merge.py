"""A program a head and some of its columns: all parts' lse at once, and their outputs meanwhile.

Reads each part once and writes the answer once. Columns are shared out because a decode step of one
request has few heads: 16 programs would leave the rest of the GPU idle.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from ..definition import Inputs, Output, merge_splits

LOG2_E = tl.constexpr(1.4426950408889634)


@dataclass(frozen=True)
class Config:
    block_v: int = 0  # columns a program takes; 0: the fewer, the more parts there are
    block_s: int = 8  # parts that are under way at once


@triton.jit
def share(lse, sink_log2):
    """What the sink leaves of an answer: 0 without a row, 1 without a sink (-inf)."""
    none = lse == -float("inf")
    left = 1.0 / (1.0 + tl.exp2(sink_log2 - tl.where(none, 0.0, lse)))
    return tl.where(none, 0.0, left)


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
        gdc_launch_dependents()
        gdc_wait()  # for the parts: this kernel's programs may be there before they are
    row = tl.program_id(0).to(tl.int64)
    partial += row * SPLITS * D_V
    partial_lse += row * SPLITS
    s = tl.arange(0, ALL_S)
    # .cg: what other programs have just written is in L2
    each = tl.load(partial_lse + s, mask=s < SPLITS, other=-float("inf"), cache_modifier=".cg")
    most = tl.max(each, 0)
    most = tl.where(most == -float("inf"), 0.0, most)
    total = tl.sum(tl.exp2(each - most), 0)  # a single part's weight is exactly 1
    column = tl.program_id(1) * BLOCK_V + tl.arange(0, BLOCK_V)
    merged = tl.zeros([BLOCK_V], tl.float32)
    for first in range(0, SPLITS, BLOCK_S):
        held = ()
        for j in tl.static_range(BLOCK_S):
            there = first + j < SPLITS
            of_part = tl.load(partial_lse + first + j, mask=there, other=-float("inf"),
                              cache_modifier=".cg")  # fmt: skip
            # a part without a row may hold anything: it is read all the same, so that no output
            # waits for an lse
            found = tl.load(partial + (first + j) * D_V + column, mask=there & (column < D_V),
                            other=0.0, cache_modifier=".cg")  # fmt: skip
            held += ((of_part, found),)
        for j in tl.static_range(BLOCK_S):
            of_part, found = held[j]
            merged += tl.exp2(of_part - most) * tl.where(of_part > -float("inf"), found, 0.0)
    merged *= 1.0 / tl.where(total == 0.0, 1.0, total)
    row_lse = whole_lse(most, total)
    if attn_sink is not None:
        merged *= share(row_lse, tl.load(attn_sink + row % H) * LOG2_E)
    tl.store(out + row * D_V + column, merged.to(out.dtype.element_ty), mask=column < D_V)
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
    # launched when the programs before it have ended or allowed it, some before their parts are
    # written: gdc_wait waits for those
    waits = x.lse.is_cuda and _starts_early(x.lse.device)
    # many programs cost more than long ones, unless each has many parts to read
    block_v = config.block_v or (512 if splits <= config.block_s else 128)
    _merge_kernel[(tokens * heads, triton.cdiv(width, block_v))](
        x.partial, x.lse, x.attn_sink, out, lse,
        heads, lse.stride(0),
        SPLITS=splits, D_V=width, ALL_S=triton.next_power_of_2(splits),
        BLOCK_S=min(config.block_s, triton.next_power_of_2(splits)), BLOCK_V=block_v,
        WAITS=waits, num_warps=max(1, block_v // 128), launch_pdl=waits,
    )  # fmt: skip


@merge_splits.variant(config=Config(), step_from="eager")
def merge(x: Inputs, config: Config) -> Output:
    """Weigh and add the parts of a head in one program for each of its column tiles."""
    tokens, heads, _, width = x.partial.shape
    out = torch.empty(tokens, heads, width, dtype=torch.bfloat16, device=x.lse.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.lse.device)
    merged(x, out, lse, config)
    return Output(out, lse)
