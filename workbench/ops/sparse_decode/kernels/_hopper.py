"""How Hopper's decode variants share a token out, and what all of them launch and merge alike."""

from triton import cdiv
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .... import ranges
from ....layouts import ARBITRARY
from ...fp8_prefill.kernels._launch import check_alignment, rows_of_656
from ...merge_splits.definition import Inputs as Parts
from ...merge_splits.kernels.merge import merged
from ..definition import Inputs, Output
from ._launch import CHUNK, LOG2_E, chunks, empty_out, scratch, share_of

PAIR = 2  # chunks that kernels in `wgmma` take at a time: a shorter share costs as much


@gluon.jit
def lanes_that_count(share):
    """How many lanes of a share (a token's place in topk_length or None, its first lane, its lanes)
    may count."""
    topk_length, first, lanes = share
    if topk_length is not None:
        lanes = gl.maximum(gl.minimum(gl.load(topk_length) - first, lanes), 0)
    return lanes


@gluon.jit
def part_of(
    indices, topk_length, t, part, TOPK, INDICES_STRIDE, SHARE, HAS_LENGTH: gl.constexpr
):  # fmt: skip
    """(where the lanes of part `part` of token `t` begin, how many of them may count)."""
    if HAS_LENGTH:
        topk_length += t
    first = part * SHARE
    length = lanes_that_count((topk_length, first, gl.minimum(TOPK - first, SHARE)))
    return indices + t * INDICES_STRIDE + first, length


def refused(w, config) -> str | None:
    """Why the kernels do not read a workload's rows, or None."""
    if config.chunks_per_block < 0:
        return f"chunks_per_block={config.chunks_per_block} is below 0"
    if w.extra_topk:
        return "a second cache is not read"
    return rows_of_656(w)


def split(
    kernel, x: Inputs, blocks: int, asked: int, at_once: int = PAIR, num_warps: int = 4, **options
) -> Output:  # fmt: skip
    """Launch `kernel` over tokens, `blocks` of heads and splits; merge where there are several.

    Raises ValueError where 16-byte loads cannot read q or the cache.
    """
    check_alignment(x)
    (tokens, heads, width), topk = x.q.shape, x.indices.shape[1]
    out = empty_out(x)
    if not tokens:
        return Output(out, x.out_lse)
    count = chunks(topk, 0)
    share = share_of(count, tokens * blocks, asked, at_once)
    splits = cdiv(count, share)
    to, lse, stride, sink = out, x.out_lse, x.out_lse.stride(0), x.attn_sink
    if splits > 1:
        left = scratch(x, splits)
        to, lse, stride, sink = left.partial, left.lse, heads * splits, None
    with ranges.span("kernel"):
        # one list for all kernels: some read neither NEVER nor HAS_SINK
        kernel[(tokens, blocks, splits)](
            x.q, x.cache, x.indices, x.topk_length, sink, to, lse,
            x.sm_scale * LOG2_E,
            heads, len(x.cache) * x.page_size, topk, x.indices.stride(0), x.cache.stride(0),
            x.row_stride, stride, splits, share * CHUNK, 0,
            FORM=(x.page_size, x.scale_format != ARBITRARY), HAS_LENGTH=x.topk_length is not None,
            HAS_SINK=sink is not None, D=width, DC=out.shape[2], num_warps=num_warps, **options,
        )  # fmt: skip
        if splits > 1:
            merged(Parts(left.partial, left.lse, x.attn_sink), out, x.out_lse)
    return Output(out, x.out_lse)
