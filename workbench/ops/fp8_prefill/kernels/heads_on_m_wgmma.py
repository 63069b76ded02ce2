"""Hopper's kernel for 64 heads of a token, out of bytes: one warp group dequantises, two compute.

What `alone` computes, with another producer: it loads codes, scales them and writes the tiles of
bf16 that the matrix products read. A row is fetched with 656 bytes where `alone` fetches 1,152, and
no pass over the pool comes first. Two programs of a token with 128 heads dequantise its rows twice.
"""

from dataclasses import dataclass

import torch
from triton import cdiv, next_power_of_2
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .... import ranges
from ....layouts import ARBITRARY
from ....op import Tile
from ..definition import Inputs, Output, fp8_prefill
from ._heads import ROWS, Registers, enough_registers, heads_on_m
from ._launch import LOG2_E, outputs, rows_of_656
from ._rows import rounded


@dataclass(frozen=True)
class Config(Registers):
    producer_registers: int = 120
    consumer_registers: int = 192


@gluon.jit(do_not_specialize=["NEVER"])
def _heads_on_m_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, LANES: gl.constexpr, QUERIES: gl.constexpr, PRODUCER: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    t = gl.program_id(0).to(gl.int64)
    rows = indices + t * INDICES_STRIDE
    length = TOPK
    if HAS_LENGTH:
        length = gl.minimum(gl.load(topk_length + t), TOPK)
    head = gl.program_id(1) * QUERIES
    th = t * H + head
    heads_on_m(
        q, (cache, PAGE_STRIDE, ROW_STRIDE), rows, attn_sink, out + th * DC, lse + th,
        scale_log2, th, 1, gl.minimum(H - head, QUERIES), head, length, H, TOKENS, NEVER,
        FORM, HAS_SINK, D, DC, QUERIES, LANES, PRODUCER, CONSUMER,
    )  # fmt: skip


def _requires(w, config: Config) -> str | None:
    return rows_of_656(w) or enough_registers(w, config)


def launch(x: Inputs, config: Config, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Write the answer to `x` into out [T, H, 512] and lse [T, H], both contiguous."""
    (tokens, heads, width), topk = x.q.shape, x.indices.shape[1]
    if not tokens:
        return
    with ranges.span("kernel"):
        _heads_on_m_kernel[(tokens, cdiv(heads, ROWS))](
            x.q, x.cache, x.indices, x.topk_length, x.attn_sink, out, lse,
            x.sm_scale * LOG2_E,
            heads, len(x.cache) * x.page_size, topk, x.indices.stride(0), x.cache.stride(0),
            x.row_stride, 0,
            FORM=(x.page_size, x.scale_format != ARBITRARY), HAS_LENGTH=x.topk_length is not None,
            HAS_SINK=x.attn_sink is not None, D=width, DC=out.shape[2],
            LANES=max(128, min(2048, next_power_of_2(topk))), QUERIES=ROWS,
            PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers, num_warps=4,
        )  # fmt: skip


@fp8_prefill.variant(
    config=Config(), step_from="dequant_then_alone", widens=rounded, requires=_requires,
    tile=lambda w, config: Tile(ROWS, 1, 64, cdiv(w.heads, ROWS)),
    interpretable=False, archs=("sm_90",), workspace_bytes=lambda w, config: 0, stack_bytes=128,
)  # fmt: skip
def heads_on_m_wgmma(x: Inputs, config: Config) -> Output:
    """Dequantise in the kernel: one warp group turns bytes into tiles, two multiply them."""
    result = outputs(x)
    launch(x, config, *result)
    return result
