"""Split-K decode by blocks of sixteen heads, whose products are warps' own: rows stay bytes.

`split_k_swapped_wgmma` writes what it has dequantised to shared memory, where its products read it:
two tiles fill that memory, and their bytes pass through it four times. Here a tile is 656 bytes a
row until its numbers are in the registers of the warp that multiplies them.
"""

from dataclasses import dataclass

from triton import cdiv
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ....op import Tile
from ..definition import Inputs, Output, sparse_decode
from ._hopper import part_of, refused, split
from ._launch import parts_bytes
from ._narrow import HEADS, TILE, WARPS, narrow

BLOCK = HEADS.value


@dataclass(frozen=True)
class Config:
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor


@gluon.jit(do_not_specialize=["SPLITS", "TOPK", "SHARE"])
def _split_k_mma_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, LSE_STRIDE, SPLITS, SHARE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr,
):  # fmt: skip
    t = gl.program_id(0).to(gl.int64)
    head = gl.program_id(1) * HEADS
    part = gl.program_id(2)
    lanes, length = part_of(indices, topk_length, t, part, TOPK, INDICES_STRIDE, SHARE,
                            HAS_LENGTH)  # fmt: skip
    th = t * H + head
    narrow(
        q + th * D, cache, lanes, attn_sink,
        out + (th * SPLITS + part) * DC, lse + t * LSE_STRIDE + head * SPLITS + part,
        scale_log2, SPLITS, H - head, head, length, TOKENS, PAGE_STRIDE // 16, ROW_STRIDE,
        FORM[0],
    )  # fmt: skip


@sparse_decode.variant(
    config=Config(), step_from="split_k_swapped_wgmma", requires=refused,
    tile=lambda w, config: Tile(BLOCK, 1, TILE.value, cdiv(w.heads, BLOCK)),
    interpretable=False, archs=("sm_90",),
    workspace_bytes=lambda w, c: parts_bytes(w, cdiv(w.heads, BLOCK), c.chunks_per_block),
)  # fmt: skip
def split_k_mma(x: Inputs, config: Config) -> Output:
    """Leave rows as bytes until they are operands: nothing dequantised is written to memory."""
    return split(
        _split_k_mma_kernel, x, cdiv(x.q.shape[1], BLOCK), config.chunks_per_block, 1,
        num_warps=WARPS.value,
    )  # fmt: skip
