"""No union: 64 heads of one token fill the tile by themselves.

The kernel of `overlapped` on a token's own rows. A program first looks for the token's last valid
lane, so that padding behind it costs nothing; it stands anywhere else at the price of a row that
is zero-filled and masked. A token's result does not depend on its neighbours.
"""

from triton import cdiv, next_power_of_2
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from .... import ranges
from ....op import Tile
from ..definition import DC, D, Inputs, Output, sparse_prefill
from ._hopper import LOG2_E, ROWS, Registers, enough_registers, outputs
from ._pieces import copied
from ._turns import turns


@gluon.jit(do_not_specialize=["NEVER"])
def _alone_kernel(
    q, kv, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, CACHE_ROWS, TOPK, INDICES_STRIDE, NEVER,
    HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, KV_STRIDE: gl.constexpr, D: gl.constexpr,
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
    turns(
        q, kv, rows, rows, attn_sink, out + th * DC, lse + th,
        scale_log2, th, 1, gl.minimum(H - head, QUERIES), head, length, H,
        CACHE_ROWS, NEVER,
        copied, KV_STRIDE, 0, False, True, HAS_SINK, D, DC, QUERIES, LANES, PRODUCER, CONSUMER,
    )  # fmt: skip


@sparse_prefill.variant(
    config=Registers(), step_from="per_token", requires=enough_registers,
    tile=lambda w, config: Tile(ROWS, 1, 64, cdiv(w.heads, ROWS)),
    interpretable=False, archs=("sm_90",), workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def alone(x: Inputs, config: Registers) -> Output:
    """Each token by itself, 64 heads a tile: no plan, and the same answer beside any neighbours."""
    result = outputs(x)
    (tokens, heads, _), topk = x.q.shape, x.indices.shape[1]
    if not tokens:
        return result
    with ranges.span("kernel"):
        _alone_kernel[(tokens, cdiv(heads, ROWS))](
            x.q, x.kv, x.indices, x.topk_length, x.attn_sink, result.out, result.lse,
            x.sm_scale * LOG2_E.value,
            heads, len(x.kv), topk, x.indices.stride(0), 0,
            HAS_LENGTH=x.topk_length is not None, HAS_SINK=x.attn_sink is not None,
            KV_STRIDE=x.kv.stride(0), D=D, DC=DC, LANES=max(128, min(2048, next_power_of_2(topk))),
            QUERIES=ROWS, PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers,
            num_warps=4,
        )  # fmt: skip
    return result
