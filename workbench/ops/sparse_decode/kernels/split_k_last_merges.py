"""The parts of a token are merged by the program that leaves the last of them: one launch.

Each program counts itself in when its part is written; who finds all others counted reads the parts
back and merges them. Counting is release and acquire at once, for all programs of the GPU: a part
is visible before its program is counted, and read only after. The last one sets the counter back to
0, so that the next call, or a graph's next replay, may start on the same counters.

It saves a launch. What it costs: the last program reads all parts of its heads alone, where the
merge of `split_k` shares them out among many.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ...merge_splits.kernels.merge import share, whole_lse
from ..definition import Inputs, Output, sparse_decode
from ._launch import (
    Scratch,
    constants,
    empty_out,
    numbers,
    refused,
    scratch,
    scratch_bytes,
    splits_of,
    tensors,
    tile,
)
from ._rows import attend, store
from ._whole import whole

LOG2_E = tl.constexpr(1.4426950408889634)
BLOCK_V = 64  # columns that are merged at a time
BLOCK_S = 4  # parts that are merged at a time


@dataclass(frozen=True)
class Config:
    block_h: int = 16  # heads a program takes
    block_k: int = 64  # rows of a tile: a lane is one, or four where scales are arbitrary
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor
    num_warps: int = 8
    num_stages: int = 1  # the loop is its own pipeline


@triton.jit
def weights(lse, row, inside, SPLITS: tl.constexpr, ALL_S: tl.constexpr):
    """(largest lse of the parts, or 0 without one; sum of their weights) of the heads `row` [R].

    All heads of a program at once; `merge` has a program for each. Weights are relative to the
    largest, so that of a single part is exactly 1.
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


@triton.jit(do_not_specialize=["TOPK", "EXTRA_TOPK"])  # a loop of one trip is another kernel
def _last_merges_kernel(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length, attn_sink,
    partial, partial_lse, arrived, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE, LSE_STRIDE, T, SHARE,
    CHUNK: tl.constexpr, PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr,
    NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr,
    ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr, D_V: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr, SPLITS: tl.constexpr, ALL_S: tl.constexpr,
    BLOCK_S: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    # the last splits, which may be shorter, start last; blocks of heads share rows in L2
    blocks = tl.cdiv(H, BLOCK_H)
    split = tl.program_id(0) // (T * blocks)
    t = (tl.program_id(0) // blocks % T).to(tl.int64)
    h = tl.program_id(0) % blocks * BLOCK_H + tl.arange(0, BLOCK_H)
    acc, acc_r, part_lse = attend(
        q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length,
        scale_log2, t, h, split * SHARE, (split + 1) * SHARE,
        H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
        EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE,
        CHUNK, PAGE_SIZE, EXTRA_PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES, ROPE_IN_V, PASSES,
        BLOCK_G, BLOCK_H, BLOCK_K,
    )  # fmt: skip
    row = (t * H + h) * SPLITS + split
    met = (h < H) & (part_lse > -float("inf"))  # without a row there is nothing to read again
    store(partial, row, met, acc, acc_r, NOPE, ROPE, ROPE_IN_V, D_V)
    tl.store(partial_lse + row, part_lse, mask=h < H)
    tl.debug_barrier()  # all threads of this program have written, before one of them counts it
    mine = arrived + t * blocks + tl.program_id(0) % blocks
    if tl.atomic_add(mine, 1, sem="acq_rel", scope="gpu") == SPLITS - 1:
        row = t * H + h
        most, total = weights(partial_lse, row, h < H, SPLITS, ALL_S)
        row_lse = whole_lse(most, total)
        kept = tl.full([BLOCK_H], 1.0, tl.float32)
        if attn_sink is not None:
            kept = share(row_lse, tl.load(attn_sink + h, mask=h < H, other=0.0) * LOG2_E)
        for first in range(0, D_V, BLOCK_V):
            column = first + tl.arange(0, BLOCK_V)
            merged = columns(partial, partial_lse, row, h < H, column, most, total, SPLITS, D_V,
                             BLOCK_S) * kept[:, None]  # fmt: skip
            to = out + row[:, None] * D_V + column[None, :]
            tl.store(to, merged.to(out.dtype.element_ty), mask=(h < H)[:, None])
        tl.store(lse + t * LSE_STRIDE + h, row_lse, mask=h < H)
        tl.store(mine, 0)


def counters(x: Inputs, config: Config) -> torch.Tensor:
    """A counter [T * blocks of heads] int32 for each merge, at 0, as every call leaves it."""
    tokens, heads, _ = x.q.shape
    count = tokens * triton.cdiv(heads, config.block_h)
    if x.memory is not None:
        return x.memory.counters[:count]
    return torch.zeros(count, dtype=torch.int32, device=x.q.device)


def launch(
    x: Inputs, config: Config, share: int, left: Scratch, arrived: torch.Tensor, out: torch.Tensor
) -> None:
    """One launch on scratch that is there already: what a holder of buffers calls."""
    (tokens, heads, _), splits = x.q.shape, left.lse.shape[2]
    _last_merges_kernel[(tokens * triton.cdiv(heads, config.block_h) * splits,)](
        *tensors(x), x.attn_sink, left.partial, left.lse, arrived, out, x.out_lse,
        *numbers(x), x.out_lse.stride(0), tokens, share,
        SPLITS=splits, ALL_S=triton.next_power_of_2(splits), BLOCK_S=BLOCK_S, BLOCK_V=BLOCK_V,
        **constants(x, config),
    )  # fmt: skip


def _workspace_bytes(w, config: Config) -> int:
    parts = scratch_bytes(w, config)
    return parts + (4 * w.tokens * triton.cdiv(w.heads, config.block_h) if parts else 0)


@sparse_decode.variant(
    config=Config(), step_from="split_k", requires=refused, tile=tile,
    workspace_bytes=_workspace_bytes,
)  # fmt: skip
def split_k_last_merges(x: Inputs, config: Config) -> Output:
    """The last program of a token's heads to arrive merges the parts: no second kernel."""
    share, splits = splits_of(x, config)
    if splits == 1:
        return whole(x, config)
    out = empty_out(x)
    if len(x.q):
        launch(x, config, share, scratch(x, splits), counters(x, config), out)
    return Output(out, x.out_lse)
