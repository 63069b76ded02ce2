"""One kernel for warps' own `mma`, in Gluon, whose orientation is an argument.

Codes are multiplied as they are; scales go into the scores and into the weights, as in
`dequant_dot`. What differs between the variants is which operand the cache's rows are, and over
what the warps are spread: a variant's file says it and why.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ....layouts import ARBITRARY, LAYOUTS
from ....layouts import scales as of_scales
from ....op import Tile
from ..._gluon import cta_barrier
from ..definition import Inputs, Output, sources
from ._attend import (
    LOG2_E,
    UNSEEN,
    add_values,
    allocate_handed,
    finish,
    scores,
    softmax_step,
)
from ._operands import BF16, F16, FP8, LARGEST, in_order, load_query
from ._ring import STAGES, allocate, by_rows, counting, read_lanes, start_copy

HEADS = 64  # of a program
KINDS = {"bf16": BF16.value, "f16": F16.value}  # of `Config.arithmetic`


@dataclass(frozen=True)
class Config:  # of each orientation in 16 bits
    block_k: int = 64  # rows of a tile: 32 or 64
    arithmetic: str = "bf16"  # of the products: bf16, or f16
    passes: int = 0  # products of weights and values; 0: 2 where one would lose digits, else 1


class Orientation(NamedTuple):
    """Which operand the cache's rows are, and where the warps stand."""

    swapped: bool  # rows are the first operand, heads the second one
    handed: bool  # weights go from warp to warp, through shared memory
    scores: gl.NVMMADistributedLayout
    sums: gl.NVMMADistributedLayout
    chunk: int  # columns of the cache that lie together
    warps: int


@gluon.jit
def _walk(
    acc, units, acc_r, m, l, query, tiles, handed, cache, lanes,
    scale_log2, end, tokens, page_units, row_stride,
    PAGE_SIZE: gl.constexpr, UNIT: gl.constexpr, CHUNKS: gl.constexpr, CHUNK: gl.constexpr,
    GROUPS: gl.constexpr, ROPE: gl.constexpr, ROPE_IN_V: gl.constexpr, FOOTER_BYTES: gl.constexpr,
    BLOCK_K: gl.constexpr, KIND: gl.constexpr, PASSES: gl.constexpr, SWAPPED: gl.constexpr,
    HANDED: gl.constexpr, ZEROS: gl.constexpr, S: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    """Fold the rows of the first `end` lanes into the softmax state, in base 2."""
    AXIS: gl.constexpr = 0 if SWAPPED else 1
    cta_barrier()  # of another cache's last tile all is read
    token = read_lanes(lanes, 0, end, BLOCK_K)
    start_copy(tiles, 0, cache, lanes, token, 0, end, tokens, page_units, row_stride,
               UNIT, PAGE_SIZE, CHUNKS, CHUNK, GROUPS, ROPE, FOOTER_BYTES, BLOCK_K)  # fmt: skip
    token = read_lanes(lanes, BLOCK_K, end, BLOCK_K)
    for start in range(0, end, BLOCK_K):
        stage = (start // BLOCK_K) % STAGES
        async_copy.wait_group(0)
        cta_barrier()  # this tile is there, and of the last one all is read
        start_copy(tiles, stage ^ 1, cache, lanes, token, start + BLOCK_K, end, tokens, page_units,
                   row_stride, UNIT, PAGE_SIZE, CHUNKS, CHUNK, GROUPS, ROPE, FOOTER_BYTES,
                   BLOCK_K)  # fmt: skip
        token = read_lanes(lanes, start + 2 * BLOCK_K, end, BLOCK_K)
        s = scores(query, tiles, stage, CHUNKS, GROUPS, ROPE, FOOTER_BYTES, KIND, SWAPPED, ZEROS,
                    S)  # fmt: skip
        counts = counting(tiles[3].index(stage), start, end, tokens, BLOCK_K,
                          gl.SliceLayout(1 - AXIS, S))  # fmt: skip
        p, m, l, alpha = softmax_step(s, m, l, counts, scale_log2, AXIS)
        acc, units, acc_r = add_values(acc, units, acc_r, p, alpha, tiles, handed, stage, CHUNKS,
                                        CHUNK, GROUPS, ROPE_IN_V, FOOTER_BYTES, BLOCK_K, KIND,
                                        PASSES, SWAPPED, HANDED, O)  # fmt: skip
    async_copy.wait_group(0)
    return acc, units, acc_r, m, l


@gluon.jit
def _store(to, sums, left, STRIDE: gl.constexpr):
    """Write `sums` [HEADS, width] to rows at `to`, the first `left` of them."""
    R: gl.constexpr = by_rows(8, gl.num_warps())
    sums = gl.convert_layout(sums.to(gl.bfloat16), R)
    r = gl.arange(0, sums.shape[0], layout=gl.SliceLayout(1, R))
    column = gl.arange(0, sums.shape[1], layout=gl.SliceLayout(0, R))
    gl.store(to + r[:, None] * STRIDE + column[None, :], sums, mask=(r < left)[:, None])


@gluon.jit
def _mma_kernel(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length, attn_sink, out,
    lse,
    scale_log2,
    H, TILES, TOKENS, TOPK, INDICES_STRIDE, PAGE_UNITS, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_UNITS,
    PAGE_SIZE: gl.constexpr, EXTRA_PAGE_SIZE: gl.constexpr, UNIT: gl.constexpr,
    CHUNKS: gl.constexpr, CHUNK: gl.constexpr, GROUPS: gl.constexpr, ROPE: gl.constexpr,
    ROPE_IN_V: gl.constexpr, FOOTER_BYTES: gl.constexpr, HEADS: gl.constexpr,
    BLOCK_K: gl.constexpr, KIND: gl.constexpr, PASSES: gl.constexpr, SWAPPED: gl.constexpr,
    HANDED: gl.constexpr, S: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    AXIS: gl.constexpr = 0 if SWAPPED else 1
    NOPE: gl.constexpr = CHUNKS * CHUNK
    ZEROS: gl.constexpr = [BLOCK_K, HEADS] if SWAPPED else [HEADS, BLOCK_K]
    t, first = gl.program_id(0) // TILES, gl.program_id(0) % TILES * HEADS
    th = t * H + first  # 2**31 rows of an answer would take two terabytes
    t = t.to(gl.int64)
    query = load_query(q + th.to(gl.int64) * (NOPE + ROPE), H - first, SWAPPED, KIND, CHUNKS,
                       CHUNK, GROUPS, ROPE, HEADS, S)  # fmt: skip
    tiles = allocate(CHUNKS, CHUNK, GROUPS, ROPE, FOOTER_BYTES, BLOCK_K, STAGES)
    handed = allocate_handed(GROUPS, ROPE_IN_V, BLOCK_K, KIND, PASSES, HANDED, HEADS)
    acc = ()
    units = ()
    for _ in gl.static_range(CHUNKS):
        zeros = gl.zeros([CHUNK, HEADS] if SWAPPED else [HEADS, CHUNK], gl.float32, O)
        acc += (zeros,)
    m = gl.full([HEADS], UNSEEN, gl.float32, gl.SliceLayout(AXIS, S))
    acc_r = m  # in place of sums that there are not
    for _ in gl.static_range(GROUPS):
        units += (gl.to_tensor(1.0),)
    if ROPE_IN_V:
        acc_r = gl.zeros([ROPE, HEADS] if SWAPPED else [HEADS, ROPE], gl.float32, O)
    l = gl.zeros([HEADS], gl.float32, gl.SliceLayout(AXIS, S))
    end = TOPK
    if topk_length is not None:
        end = gl.minimum(gl.load(topk_length + t), TOPK)
    acc, units, acc_r, m, l = _walk(
        acc, units, acc_r, m, l, query, tiles, handed, cache, indices + t * INDICES_STRIDE,
        scale_log2, end, TOKENS, PAGE_UNITS, ROW_STRIDE,
        PAGE_SIZE, UNIT, CHUNKS, CHUNK, GROUPS, ROPE, ROPE_IN_V, FOOTER_BYTES, BLOCK_K, KIND,
        PASSES, SWAPPED, HANDED, ZEROS, S, O,
    )  # fmt: skip
    if extra_cache is not None:
        end = EXTRA_TOPK
        if extra_topk_length is not None:
            end = gl.minimum(gl.load(extra_topk_length + t), EXTRA_TOPK)
        acc, units, acc_r, m, l = _walk(
            acc, units, acc_r, m, l, query, tiles, handed, extra_cache,
            extra_indices + t * EXTRA_INDICES_STRIDE,
            scale_log2, end, EXTRA_TOKENS, EXTRA_PAGE_UNITS, ROW_STRIDE,
            EXTRA_PAGE_SIZE, UNIT, CHUNKS, CHUNK, GROUPS, ROPE, ROPE_IN_V, FOOTER_BYTES, BLOCK_K,
            KIND, PASSES, SWAPPED, HANDED, ZEROS, S, O,
        )  # fmt: skip
    r = gl.arange(0, HEADS, layout=gl.SliceLayout(AXIS, S))
    factor, row_lse = finish(m, l, attn_sink, first + r, H, attn_sink is not None)
    gl.store(lse + th + r, row_lse, mask=r < H - first)
    factor = gl.convert_layout(factor, gl.SliceLayout(AXIS, O)).expand_dims(AXIS)
    D_V: gl.constexpr = NOPE + ROPE if ROPE_IN_V else NOPE
    to = out + th.to(gl.int64) * D_V
    for c in gl.static_range(CHUNKS):
        sums = acc[c] * factor
        if KIND != BF16:
            sums *= units[c // (CHUNKS // GROUPS)] / LARGEST
        if SWAPPED:
            sums = sums.trans()
        _store(to + c * CHUNK, in_order(sums, KIND, HANDED, HEADS, CHUNK), H - first, D_V)
    if ROPE_IN_V:
        sums = acc_r * factor
        if SWAPPED:
            sums = sums.trans()
        _store(to + NOPE, sums, H - first, D_V)


def _unit(x: Inputs) -> int:
    """Bytes of which every place that is copied from is a multiple: 16, or 8 where scales allow it.

    Raises ValueError where rows or pages do not begin at such places.
    """
    caches = [source.cache for source in sources(x)]
    if any(t.data_ptr() % 16 for t in (x.q, *caches)) or x.row_stride % 16:
        raise ValueError(f"q, a cache or rows {x.row_stride} bytes apart do not begin at multiples "
                         "of 16 bytes")  # fmt: skip
    strides = [cache.stride(0) for cache in caches]
    if any(stride % 8 for stride in strides):
        raise ValueError(f"pages {strides} bytes apart do not begin at multiples of 8 bytes")
    return 16 if all(stride % 16 == 0 for stride in strides) else 8


def launch(x: Inputs, orientation: Orientation, kind: int, passes: int, block_k: int) -> Output:
    """Run the kernel on `x`. Raises ValueError on addresses that it cannot copy from."""
    layout, (tokens, heads, _) = LAYOUTS[x.layout], x.q.shape
    out = torch.empty(tokens, heads, layout.d_v, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    if not tokens:
        return Output(out, lse)
    main, extra, unit = sources(x)[0], sources(x)[-1], _unit(x)
    if not passes:
        passes = 2 if kind == FP8 or (kind == BF16 and x.scale_format == ARBITRARY) else 1
    tiles = triton.cdiv(heads, HEADS)
    _mma_kernel[(tokens * tiles,)](
        x.q, x.cache, x.indices, x.topk_length, x.extra_cache, x.extra_indices,
        x.extra_topk_length, x.attn_sink, out, lse,
        x.sm_scale * LOG2_E.value,
        heads, tiles, main.rows, main.indices.shape[1], main.indices.stride(0),
        main.cache.stride(0) // unit, x.row_stride, extra.rows, extra.indices.shape[1],
        extra.indices.stride(0), extra.cache.stride(0) // unit,
        PAGE_SIZE=x.page_size, EXTRA_PAGE_SIZE=x.extra_page_size, UNIT=unit,
        CHUNKS=layout.nope // orientation.chunk, CHUNK=orientation.chunk, GROUPS=layout.groups,
        ROPE=layout.rope, ROPE_IN_V=layout.d_v > layout.nope, FOOTER_BYTES=layout.footer_bytes,
        HEADS=HEADS, BLOCK_K=block_k, KIND=kind, PASSES=passes, SWAPPED=orientation.swapped,
        HANDED=orientation.handed, S=orientation.scores, O=orientation.sums,
        num_warps=orientation.warps,
    )  # fmt: skip
    return Output(out, lse)


def quantised_query(x: Inputs) -> Inputs:
    """The question that fp8 products answer: of queries in units of their groups, in e4m3.

    Four digits and a power of two are a bf16 number again.
    """
    layout = LAYOUTS[x.layout]
    latent, rotary = x.q[..., : layout.nope].float(), x.q[..., layout.nope :]
    rounded = of_scales.dequantise(
        *of_scales.quantise(latent, layout.group, of_scales.POW2), torch.float32
    )
    return x._replace(q=torch.cat((rounded.bfloat16(), rotary), -1))


def tile(w, config) -> Tile:
    return Tile(HEADS, 1, config.block_k, triton.cdiv(w.heads, HEADS))


def why_not(w, config) -> str | None:
    """Why the kernel does not take a workload or a config, or None."""
    layout = LAYOUTS[w.layout]
    if layout.d_v != 512:
        return f"{layout.name}: {layout.d_v} sums of a head leave no registers to {HEADS} heads"
    if (w.row_stride or 0) % 16:
        return f"row_stride={w.row_stride} is no multiple of 16: rows are copied by 16 bytes"
    if config.block_k not in (32, 64):
        return f"block_k={config.block_k} is neither 32 nor 64"
    if config.passes not in (0, 1, 2):
        return f"passes={config.passes} is none of 0, 1, 2"
    if getattr(config, "arithmetic", "bf16") not in KINDS:
        return f"arithmetic={config.arithmetic!r} is none of {', '.join(KINDS)}"
    return None
