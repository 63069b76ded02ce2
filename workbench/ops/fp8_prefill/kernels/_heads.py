"""Hopper's kernel in which 64 heads of a token are the tile, out of bytes.

The kernel of `sparse_prefill`'s turns with a producer that dequantises (`_bytes`).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ...sparse_prefill.kernels._hopper import ROWS as ROWS
from ...sparse_prefill.kernels._hopper import Registers as Registers
from ...sparse_prefill.kernels._hopper import enough_registers as enough_registers
from ...sparse_prefill.kernels._turns import turns
from ._bytes import dequantised


@gluon.jit
def heads_on_m(
    q, source, rows, attn_sink, out, lse,
    scale_log2, th, step, end, head, length, H, TOKENS, NEVER,
    FORM: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    QUERIES: gl.constexpr, LANES: gl.constexpr, PRODUCER: gl.constexpr, CONSUMER: gl.constexpr,
):  # fmt: skip
    """Query rows th .. th + end, heads from `head` on, over the first `length` lanes of `rows`.

    `source` and FORM are as in `dequantised`; all else is as in `turns`.
    """
    turns(
        q, source, rows, rows, attn_sink, out, lse,
        scale_log2, th, step, end, head, length, H, TOKENS, NEVER,
        dequantised, FORM, 1, False, True, HAS_SINK, D, DC, QUERIES, LANES, PRODUCER, CONSUMER,
    )  # fmt: skip
