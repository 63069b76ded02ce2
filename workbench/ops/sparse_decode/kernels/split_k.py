"""A token's rows shared out among several programs, whose parts a second kernel merges.

One request at 16 heads keeps one multiprocessor busy in a single pass; in 32 splits of 64 rows it
keeps 32. What that costs: 2 KiB of float32 written and read again for each head and split, and the
launch of the merge. By default a call
has as many programs as multiprocessors; models.makespan says what a measured device prefers.
"""

from dataclasses import dataclass

import triton
import triton.language as tl

from ...merge_splits.kernels.merge import Inputs as Parts
from ...merge_splits.kernels.merge import merged
from ..definition import Inputs, Output, sparse_decode
from ._launch import (
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


@dataclass(frozen=True)
class Config:
    block_h: int = 16  # heads a program takes
    block_k: int = 64  # rows of a tile: a lane is one, or four where scales are arbitrary
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor
    num_warps: int = 8
    num_stages: int = 1  # the loop is its own pipeline


@triton.jit(do_not_specialize=["TOPK", "EXTRA_TOPK"])  # a loop of one trip is another kernel
def _split_k_kernel(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length, partial,
    partial_lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE, T, SHARE, SPLITS,
    CHUNK: tl.constexpr, PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr,
    NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr,
    ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr, D_V: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
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


@sparse_decode.variant(
    config=Config(), step_from="single_pass", requires=refused, tile=tile,
    workspace_bytes=scratch_bytes,
)  # fmt: skip
def split_k(x: Inputs, config: Config) -> Output:
    """Share a token's chunks out among programs; a second kernel merges their parts."""
    tokens, heads, _ = x.q.shape
    share, splits = splits_of(x, config)
    if splits == 1:
        return whole(x, config)
    out = empty_out(x)
    if tokens:
        left = scratch(x, splits)
        _split_k_kernel[(tokens * triton.cdiv(heads, config.block_h) * splits,)](
            *tensors(x), left.partial, left.lse,
            *numbers(x), tokens, share, splits,
            **constants(x, config),
        )  # fmt: skip
        merged(Parts(left.partial, left.lse, x.attn_sink), out, x.out_lse)
    return Output(out, x.out_lse)
