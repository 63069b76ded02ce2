"""A pass over whole pools into bf16 rows of 576, and the question of `sparse_prefill` about them.

Rows of the second cache follow those of the first. A layout of 512 columns leaves 64 zeros at the
end of a row, and so does its query: their products add nothing.
"""

import torch
import triton
import triton.language as tl

from ....layouts import LAYOUTS
from ...sparse_prefill.definition import DC, DR, D
from ...sparse_prefill.definition import Inputs as RowInputs
from ..definition import Inputs, Source, sources, valid_lanes
from ._blocks import load_scales, locate


@triton.jit
def _dequantise_kernel(
    cache, rows,
    TOKENS, PAGE_STRIDE, ROW_STRIDE,
    PAGE_SIZE: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr,
    FOOTER_BYTES: tl.constexpr, WIDTH: tl.constexpr, TAIL: tl.constexpr, BLOCK_G: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = token < TOKENS
    row, at = locate(tl.where(inside, token, 0), PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE, NOPE,
                     FOOTER_BYTES)  # fmt: skip
    to = rows + token.to(tl.int64) * WIDTH
    group, c = tl.arange(0, BLOCK_G)[None, :], tl.arange(0, GROUP)[None, None, :]
    column = group[:, :, None] * GROUP + c  # [1, BLOCK_G, GROUP]
    read = inside[:, None] & (group * GROUP < NOPE)  # [BLOCK, BLOCK_G]
    codes = tl.load(cache + row[:, None, None] + column, mask=read[:, :, None], other=0)
    codes = codes.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    scales = load_scales(cache + at[:, None], group, read, FOOTER_BYTES)
    values = (codes * scales[:, :, None]).to(tl.bfloat16)
    tl.store(to[:, None, None] + column, values, mask=read[:, :, None])
    tail = tl.arange(0, TAIL)[None, :]  # [NOPE, WIDTH): rotary values, zeros behind them
    ROW: tl.constexpr = NOPE if FOOTER_BYTES else NOPE + 4 * (NOPE // GROUP)
    rotary = (cache + row[:, None] + ROW).to(tl.pointer_type(tl.bfloat16)) + tail
    values_r = tl.load(rotary, mask=inside[:, None] & (tail < ROPE), other=0.0)
    tl.store(to[:, None] + NOPE + tail, values_r, mask=inside[:, None])


def dequantised(x: Inputs, block: int, num_warps: int) -> torch.Tensor:
    """Every row of the caches of `x`, one cache behind the other [rows, 576] bf16."""
    layout, caches = LAYOUTS[x.layout], sources(x)
    rows = torch.empty(sum(s.rows for s in caches), D, dtype=torch.bfloat16, device=x.q.device)
    first = 0
    for source in caches:
        if source.rows:
            _dequantise_kernel[(triton.cdiv(source.rows, block),)](
                source.cache, rows[first:],
                source.rows, source.cache.stride(0), source.row_stride,
                PAGE_SIZE=source.page_size, NOPE=layout.nope, ROPE=layout.rope,
                GROUP=layout.group, FOOTER_BYTES=layout.footer_bytes, WIDTH=D,
                TAIL=D - layout.nope, BLOCK_G=triton.next_power_of_2(layout.groups), BLOCK=block,
                num_warps=num_warps,
            )  # fmt: skip
        first += source.rows
    return rows


def asked(x: Inputs, rows: torch.Tensor) -> RowInputs:
    """The question of `x` about `rows`, as `sparse_prefill` puts it."""
    q, caches = x.q, sources(x)
    if q.shape[2] < D:
        q = torch.nn.functional.pad(q, (0, D - q.shape[2]))
    indices, length = x.indices, x.topk_length
    if len(caches) > 1:
        main, extra = (_numbered(s, first) for s, first in
                       zip(caches, (0, caches[0].rows), strict=True))  # fmt: skip
        indices, length = torch.cat((main, extra), 1), None
    return RowInputs(q, rows, indices, x.positions, length, x.attn_sink, x.sm_scale)


def _numbered(source: Source, first: int) -> torch.Tensor:
    """The lanes of a cache whose rows begin at `first`; -1 where a lane does not count."""
    return torch.where(valid_lanes(source), source.indices + first, -1)


def rounded(x: Inputs) -> Inputs:
    """The question that bf16 rows answer: arbitrary scales leave more digits than bf16 has."""
    return x._replace(rounded_rows=True)


def no_rows_of_576(w) -> str | None:
    """Why a workload's rows are none of 512 + 64 columns, or None."""
    layout = LAYOUTS[w.layout]
    if layout.d_v != DC or layout.d_qk > D:
        return f"rows of {layout.d_qk} with values of {layout.d_v} are not {DC} + {DR}"
    return None
