"""Hopper's kernel for few heads, out of bytes: operands swapped, so that heads are columns.

With 64 query rows a tile of 16 heads is three quarters padding; columns come in eights. The rows of
a token are fetched once and dequantised in the kernel, as in `heads_on_m_wgmma`.
"""

from dataclasses import dataclass

import torch
from triton import next_power_of_2
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .... import ranges
from ....layouts import ARBITRARY
from ....op import Tile
from ..definition import Inputs, Output, fp8_prefill
from ._columns import COLUMNS, columns, registers_for
from ._launch import LOG2_E, outputs, rows_of_656
from ._rows import rounded


@dataclass(frozen=True)
class Config:
    producer_registers: int = 120  # a thread's, of the two warp groups that dequantise
    consumer_registers: int = 136  # of the two that multiply


@gluon.jit(do_not_specialize=["NEVER"])
def _swapped_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, LANES: gl.constexpr, QUERIES: gl.constexpr, PRODUCER: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    t = gl.program_id(0).to(gl.int64)
    length = TOPK
    if HAS_LENGTH:
        length = gl.minimum(gl.load(topk_length + t), TOPK)
    columns(
        q, (cache, PAGE_STRIDE, ROW_STRIDE), indices + t * INDICES_STRIDE, attn_sink,
        out + t * H * DC, lse + t * H,
        scale_log2, t * H, 1, H, 0, length, H, TOKENS, NEVER,
        FORM, HAS_SINK, D, DC, QUERIES, LANES, PRODUCER, CONSUMER,
    )  # fmt: skip


def _requires(w, config: Config) -> str | None:
    if w.heads > COLUMNS:
        return f"heads={w.heads} exceeds {COLUMNS} columns"
    return rows_of_656(w) or registers_for(config)


def launch(x: Inputs, config: Config, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Write the answer to `x` into out [T, H, 512] and lse [T, H], both contiguous."""
    (tokens, heads, width), topk = x.q.shape, x.indices.shape[1]
    if not tokens:
        return
    with ranges.span("kernel"):
        _swapped_kernel[(tokens,)](
            x.q, x.cache, x.indices, x.topk_length, x.attn_sink, out, lse,
            x.sm_scale * LOG2_E,
            heads, len(x.cache) * x.page_size, topk, x.indices.stride(0), x.cache.stride(0),
            x.row_stride, 0,
            FORM=(x.page_size, x.scale_format != ARBITRARY), HAS_LENGTH=x.topk_length is not None,
            HAS_SINK=x.attn_sink is not None, D=width, DC=out.shape[2],
            LANES=max(128, min(2048, next_power_of_2(topk))), QUERIES=COLUMNS,
            PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers, num_warps=4,
        )  # fmt: skip


@fp8_prefill.variant(
    config=Config(), step_from="heads_on_m_wgmma", widens=rounded, requires=_requires,
    tile=lambda w, config: Tile(COLUMNS, 1, 64),
    interpretable=False, archs=("sm_90",), workspace_bytes=lambda w, config: 0, stack_bytes=32,
)  # fmt: skip
def swapped_wgmma(x: Inputs, config: Config) -> Output:
    """Swap the operands: dequantised rows fill the tensor core's tile, heads are its columns."""
    result = outputs(x)
    launch(x, config, *result)
    return result
