"""One program a query token: no partial results, no merge, heads padded to 16 and not to 64.

The softmax state stays in registers and every selected row is fetched once a token. Padding 8 heads
to a 16-row tile wastes half of the tensor-core work, where padding them to 64 wastes 7/8.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ....op import Tile
from ..definition import DC, DR, D, Inputs, Output, sparse_prefill
from ._blocks import LOG2_E, MASKED, attend, finish, gather, load_lanes, load_query, store_result

MIN_ROWS = 16  # of a tensor-core tile
MAX_HEADS = 64  # the state of more heads does not fit the registers of one program


@dataclass(frozen=True)
class Config:
    block_k: int = 64  # rows a step
    num_warps: int = 4
    num_stages: int = 2


@triton.jit
def _per_token_kernel(
    q, kv, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, ROWS, TOPK, INDICES_STRIDE,
    HAS_LENGTH: tl.constexpr, HAS_SINK: tl.constexpr, KV_STRIDE: tl.constexpr,
    D: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr,
    LANES: tl.constexpr, WHOLE: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK_H)
    q_c, q_r = load_query(q, t * H + h, h < H, D, DC, DR)
    length = TOPK
    if HAS_LENGTH:
        length = tl.minimum(tl.load(topk_length + t), TOPK)
    # stop behind the last valid lane: padded tokens would else pay for their padding
    own = indices + t * INDICES_STRIDE
    lane = tl.arange(0, LANES)
    listed = tl.load(own + lane, mask=lane < length, other=-1)
    end = tl.max(tl.where((listed >= 0) & (listed < ROWS), lane + 1, 0), 0)

    acc = tl.zeros([BLOCK_H, DC], tl.float32)
    m = tl.full([BLOCK_H], MASKED, tl.float32)
    l = tl.zeros([BLOCK_H], tl.float32)
    for start in range(0, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        rows = load_lanes(own, k, end, -1, WHOLE)
        valid = rows.to(tl.uint32, bitcast=True) < ROWS  # one comparison: negative is huge
        if HAS_LENGTH:
            valid = valid & (k < end)
        keys_c, keys_r = gather(kv, rows, valid, KV_STRIDE, DC, DR)
        acc, m, l = attend(acc, m, l, q_c, q_r, keys_c, keys_r, valid[None, :], scale_log2)

    sink = tl.full([BLOCK_H], -float("inf"), tl.float32)
    if HAS_SINK:
        sink = tl.load(attn_sink + h, mask=h < H, other=0.0) * LOG2_E
    row_out, row_lse = finish(acc, m, l, sink)
    store_result(out, lse, t * H + h, h < H, row_out, row_lse, DC)


def _requires(w, config) -> str | None:
    return f"heads={w.heads} exceeds {MAX_HEADS}" if w.heads > MAX_HEADS else None


def _tile(w, config: Config) -> Tile:
    return Tile(max(MIN_ROWS, triton.next_power_of_2(w.heads)), 1, config.block_k)


@sparse_prefill.variant(
    config=Config(), step_from="eager", requires=_requires, tile=_tile,
    workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def per_token(x: Inputs, config: Config) -> Output:
    """Fuse gather, scores, softmax and values in one program a token; stop at its last lane."""
    (tokens, heads, _), topk = x.q.shape, x.indices.shape[1]
    out = torch.empty(tokens, heads, DC, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    if not tokens:
        return Output(out, lse)
    _per_token_kernel[(tokens,)](
        x.q, x.kv, x.indices, x.topk_length, x.attn_sink, out, lse,
        x.sm_scale * LOG2_E.value,
        heads, len(x.kv), topk, x.indices.stride(0),
        HAS_LENGTH=x.topk_length is not None, HAS_SINK=x.attn_sink is not None,
        KV_STRIDE=x.kv.stride(0),
        D=D, DC=DC, DR=DR,
        LANES=triton.next_power_of_2(topk), WHOLE=topk % config.block_k == 0,
        BLOCK_H=max(MIN_ROWS, triton.next_power_of_2(heads)), BLOCK_K=config.block_k,
        num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    return Output(out, lse)
