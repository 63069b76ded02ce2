"""A whole token in one program: `single_pass`, and what its splits are where there is one."""

import triton
import triton.language as tl

from ...merge_splits.kernels.merge import share
from ..definition import Inputs, Output
from ._launch import constants, empty_out, numbers, tensors
from ._rows import attend, store

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["TOPK", "EXTRA_TOPK"])  # a loop of one trip is another kernel
def _whole_kernel(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length, attn_sink, out,
    lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE, LSE_STRIDE,
    CHUNK: tl.constexpr, PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr,
    NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr,
    ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr, D_V: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # blocks of heads of a token stand together: they find its rows in L2
    blocks = tl.cdiv(H, BLOCK_H)
    t = (tl.program_id(0) // blocks).to(tl.int64)
    h = tl.program_id(0) % blocks * BLOCK_H + tl.arange(0, BLOCK_H)
    acc, acc_r, row_lse = attend(
        q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length,
        scale_log2, t, h, 0, tl.cdiv(TOPK, CHUNK) + tl.cdiv(EXTRA_TOPK, CHUNK),
        H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
        EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE,
        CHUNK, PAGE_SIZE, EXTRA_PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES, ROPE_IN_V, PASSES,
        BLOCK_G, BLOCK_H, BLOCK_K,
    )  # fmt: skip
    if attn_sink is not None:
        sink = tl.load(attn_sink + h, mask=h < H, other=0.0) * LOG2_E
        kept = share(row_lse, sink)[:, None]
        acc, acc_r = acc * kept, acc_r * kept
    store(out, t * H + h, h < H, acc, acc_r, NOPE, ROPE, ROPE_IN_V, D_V)
    tl.store(lse + t * LSE_STRIDE + h, row_lse, mask=h < H)


def whole(x: Inputs, config) -> Output:
    """The answer of one program for each token and `config.block_h` of its heads."""
    out, (tokens, heads, _) = empty_out(x), x.q.shape
    if tokens:
        _whole_kernel[(tokens * triton.cdiv(heads, config.block_h),)](
            *tensors(x), x.attn_sink, out, x.out_lse,
            *numbers(x), x.out_lse.stride(0),
            **constants(x, config),
        )  # fmt: skip
    return Output(out, x.out_lse)
