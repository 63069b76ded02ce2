"""Hopper's split-K decode for many heads: 64 of them are the tile, bytes are dequantised for it.

A part of a token's lanes is what `heads_on_m_wgmma` does with all of them. Fewer heads than 64 are
padded, which `split_k_swapped_wgmma` avoids.
"""

from dataclasses import dataclass

from triton import cdiv
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ....op import Tile
from ...fp8_prefill.kernels._heads import ROWS, enough_registers, heads_on_m
from ..definition import Inputs, Output, sparse_decode
from ._hopper import PAIR, part_of, refused, split
from ._launch import parts_bytes


@dataclass(frozen=True)
class Config:
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor
    producer_registers: int = 120  # a thread's, of the warp group that dequantises
    consumer_registers: int = 192  # of the two that multiply


@gluon.jit(do_not_specialize=["NEVER", "SPLITS"])
def _split_k_wgmma_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, LSE_STRIDE, SPLITS, SHARE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, QUERIES: gl.constexpr, PRODUCER: gl.constexpr, CONSUMER: gl.constexpr,
):  # fmt: skip
    t = gl.program_id(0).to(gl.int64)
    head = gl.program_id(1) * QUERIES
    part = gl.program_id(2)
    rows, length = part_of(indices, topk_length, t, part, TOPK, INDICES_STRIDE, SHARE,
                           HAS_LENGTH)  # fmt: skip
    th = t * H + head
    heads_on_m(
        q, (cache, PAGE_STRIDE, ROW_STRIDE), rows, attn_sink,
        out + (th * SPLITS + part) * DC, lse + t * LSE_STRIDE + head * SPLITS + part,
        scale_log2, th, SPLITS, gl.minimum(H - head, QUERIES), head, length, H, TOKENS, NEVER,
        FORM, HAS_SINK, D, DC, QUERIES, 0, PRODUCER, CONSUMER,
    )  # fmt: skip


def _requires(w, config: Config) -> str | None:
    return refused(w, config) or enough_registers(w, config)


@sparse_decode.variant(
    config=Config(), step_from="split_k", requires=_requires,
    widens=lambda x: x._replace(rounded_rows=True),
    tile=lambda w, config: Tile(ROWS, 1, 64, cdiv(w.heads, ROWS)),
    interpretable=False, archs=("sm_90",), stack_bytes=128,
    workspace_bytes=lambda w, c: parts_bytes(w, cdiv(w.heads, ROWS), c.chunks_per_block, PAIR),
)  # fmt: skip
def split_k_wgmma(x: Inputs, config: Config) -> Output:
    """Parts of a token by Hopper's matrix products: 64 heads a tile, dequantised beside them."""
    return split(
        _split_k_wgmma_kernel, x, cdiv(x.q.shape[1], ROWS), config.chunks_per_block, QUERIES=ROWS,
        PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers,
    )  # fmt: skip
