"""Hopper's split-K decode for few heads: they are columns, so that 16 of them cost no padding.

A part of a token's lanes is what `swapped_wgmma` does with all of them.
"""

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ....op import Tile
from ...fp8_prefill.kernels._columns import COLUMNS, columns, registers_for
from ..definition import Inputs, Output, sparse_decode
from ._hopper import PAIR, part_of, refused, split
from ._launch import parts_bytes


@dataclass(frozen=True)
class Config:
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor
    producer_registers: int = 120  # a thread's, of the two warp groups that dequantise
    consumer_registers: int = 136  # of the two that multiply


@gluon.jit(do_not_specialize=["NEVER", "SPLITS"])
def _split_k_swapped_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, LSE_STRIDE, SPLITS, SHARE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, QUERIES: gl.constexpr, PRODUCER: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    t = gl.program_id(0).to(gl.int64)
    part = gl.program_id(2)
    rows, length = part_of(indices, topk_length, t, part, TOPK, INDICES_STRIDE, SHARE,
                           HAS_LENGTH)  # fmt: skip
    columns(
        q, (cache, PAGE_STRIDE, ROW_STRIDE), rows, attn_sink,
        out + (t * H * SPLITS + part) * DC, lse + t * LSE_STRIDE + part,
        scale_log2, t * H, SPLITS, H, 0, length, H, TOKENS, NEVER,
        FORM, HAS_SINK, D, DC, QUERIES, 0, PRODUCER, CONSUMER,
    )  # fmt: skip


def _requires(w, config: Config) -> str | None:
    if w.heads > COLUMNS:
        return f"heads={w.heads} exceeds {COLUMNS} columns"
    return refused(w, config) or registers_for(config)


@sparse_decode.variant(
    config=Config(), step_from="split_k_wgmma", requires=_requires,
    widens=lambda x: x._replace(rounded_rows=True),
    tile=lambda w, config: Tile(COLUMNS, 1, 64),
    interpretable=False, archs=("sm_90",), stack_bytes=32,
    workspace_bytes=lambda w, config: parts_bytes(w, 1, config.chunks_per_block, PAIR),
)  # fmt: skip
def split_k_swapped_wgmma(x: Inputs, config: Config) -> Output:
    """Swap the operands: dequantised rows fill the tensor core's tile, heads are its columns."""
    return split(
        _split_k_swapped_kernel, x, 1, config.chunks_per_block,
        QUERIES=COLUMNS, PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers,
    )  # fmt: skip
