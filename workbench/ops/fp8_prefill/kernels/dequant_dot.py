"""Bytes are gathered and dequantised in the loop: no pass over the pool, half the bytes of bf16.

An e4m3 code is a bf16 number, so the products are of codes, group by group; the scales of a group,
fp32 or UE8M0, go into its scores and into the weights before they meet the values. A power of two
leaves a weight its digits. Any other scale does not, and where one row has nearly all the weight no
other row averages that out: a second pass multiplies what the first one rounded away.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ....layouts import ARBITRARY, LAYOUTS
from ....op import Tile
from ..definition import Inputs, Output, fp8_prefill, sources
from ._blocks import load_scales, locate

LOG2_E = tl.constexpr(1.4426950408889634)
MASKED = tl.constexpr(-1e30)  # score of a lane that does not count, and the running maximum's start


@dataclass(frozen=True)
class Config:
    block_h: int = 16  # heads a program takes
    block_k: int = 16  # rows a step
    num_warps: int = 8
    num_stages: int = 2
    arbitrary_passes: int = 2  # 1 or 2 products of weights and values, where scales are arbitrary


@triton.jit
def _walk(
    acc, acc_r, m, l, q_c, q_r, cache, lanes,
    scale_log2, end, tokens, page_stride, row_stride,
    PAGE_SIZE: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr,
    FOOTER_BYTES: tl.constexpr, ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Fold the rows of the first `end` lanes into the softmax state (acc, acc_r, m, l), base 2."""
    g, c = tl.arange(0, BLOCK_G)[:, None, None], tl.arange(0, GROUP)[None, None, :]
    group = tl.arange(0, BLOCK_G)[:, None]
    for start in range(0, end, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        token = tl.load(lanes + k, mask=k < end, other=-1)
        valid = (token >= 0) & (token < tokens)
        row, at = locate(tl.where(valid, token, 0), page_stride, row_stride, PAGE_SIZE, NOPE,
                         FOOTER_BYTES)  # fmt: skip
        inside = (group * GROUP < NOPE) & valid[None, :]  # [BLOCK_G, BLOCK_K]
        bytes_ = tl.load(cache + row[None, :, None] + g * GROUP + c, mask=inside[:, :, None],
                         other=0)  # fmt: skip
        codes = bytes_.to(tl.float8e4nv, bitcast=True).to(tl.bfloat16)  # [BLOCK_G, BLOCK_K, GROUP]
        scales = load_scales(cache + at[None, :], group, inside, FOOTER_BYTES)
        products = tl.dot(q_c, tl.permute(codes, (0, 2, 1)))  # [BLOCK_G, BLOCK_H, BLOCK_K]
        scores = tl.sum(products * scales[:, None, :], 0)
        if ROPE:
            ROW: tl.constexpr = NOPE if FOOTER_BYTES else NOPE + 4 * (NOPE // GROUP)
            rotary = (cache + row[:, None] + ROW).to(tl.pointer_type(tl.bfloat16))
            keys_r = tl.load(rotary + tl.arange(0, ROPE)[None, :], mask=valid[:, None], other=0.0)
            scores = tl.dot(q_r, tl.trans(keys_r), scores)
        scores = tl.where(valid[None, :], scores * scale_log2, MASKED)
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.where(valid[None, :], tl.exp2(scores - m_new[:, None]), 0.0)
        alpha = tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        exact = p[None, :, :] * scales[:, None, :]  # [BLOCK_G, BLOCK_H, BLOCK_K]
        weights = exact.to(tl.bfloat16)
        acc = tl.dot(weights, codes, acc * alpha[None, :, None])
        if PASSES == 2:
            acc = tl.dot((exact - weights.to(tl.float32)).to(tl.bfloat16), codes, acc)
        if ROPE_IN_V:
            acc_r = tl.dot(p.to(tl.bfloat16), keys_r, acc_r * alpha[:, None])
        m = m_new
    return acc, acc_r, m, l


@triton.jit
def _dequant_dot_kernel(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length, attn_sink, out,
    lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE,
    PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr, NOPE: tl.constexpr, ROPE: tl.constexpr,
    GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr, ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr,
    BLOCK_G: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    head = t * H + h
    column = tl.arange(0, BLOCK_G)[:, None, None] * GROUP + tl.arange(0, GROUP)[None, None, :]
    own = (h < H)[None, :, None] & (column < NOPE)
    q_c = tl.load(q + head[None, :, None] * (NOPE + ROPE) + column, mask=own, other=0.0)
    acc = tl.zeros([BLOCK_G, BLOCK_H, GROUP], tl.float32)
    acc_r = tl.zeros([BLOCK_H, ROPE if ROPE else 16], tl.float32)
    q_r = acc_r
    if ROPE:
        rotary = NOPE + tl.arange(0, ROPE)[None, :]
        q_r = tl.load(q + head[:, None] * (NOPE + ROPE) + rotary, mask=(h < H)[:, None], other=0.0)
    m = tl.full([BLOCK_H], MASKED, tl.float32)
    l = tl.zeros([BLOCK_H], tl.float32)
    end = TOPK
    if topk_length is not None:
        end = tl.minimum(tl.load(topk_length + t), TOPK)
    acc, acc_r, m, l = _walk(
        acc, acc_r, m, l, q_c, q_r, cache, indices + t * INDICES_STRIDE,
        scale_log2, end, TOKENS, PAGE_STRIDE, ROW_STRIDE,
        PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES, ROPE_IN_V, PASSES, BLOCK_G, BLOCK_K,
    )  # fmt: skip
    if extra_cache is not None:
        end = EXTRA_TOPK
        if extra_topk_length is not None:
            end = tl.minimum(tl.load(extra_topk_length + t), EXTRA_TOPK)
        acc, acc_r, m, l = _walk(
            acc, acc_r, m, l, q_c, q_r, extra_cache, extra_indices + t * EXTRA_INDICES_STRIDE,
            scale_log2, end, EXTRA_TOKENS, EXTRA_PAGE_STRIDE, ROW_STRIDE,
            EXTRA_PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES, ROPE_IN_V, PASSES, BLOCK_G, BLOCK_K,
        )  # fmt: skip
    safe = tl.where(l == 0.0, 1.0, l)
    kept = tl.where(l == 0.0, 0.0, 1.0 / safe)
    row_lse = tl.where(l == 0.0, 0.0, m + tl.log2(safe))
    if attn_sink is not None:
        sink = tl.load(attn_sink + h, mask=h < H, other=0.0) * LOG2_E
        kept = kept / (1.0 + tl.exp2(sink - row_lse))
    D_V: tl.constexpr = NOPE + ROPE if ROPE_IN_V else NOPE
    to = out + head[None, :, None] * D_V + column
    tl.store(to, (acc * kept[None, :, None]).to(tl.bfloat16), mask=own)
    if ROPE_IN_V:
        to_r = out + head[:, None] * D_V + NOPE + tl.arange(0, ROPE)[None, :]
        tl.store(to_r, (acc_r * kept[:, None]).to(tl.bfloat16), mask=(h < H)[:, None])
    tl.store(lse + head, tl.where(l == 0.0, -float("inf"), row_lse), mask=h < H)


def _tile(w, config: Config) -> Tile:
    return Tile(triton.cdiv(w.heads, config.block_h) * config.block_h, 1, config.block_k)


def _requires(w, config: Config) -> str | None:
    passes = config.arbitrary_passes
    return None if passes in (1, 2) else f"arbitrary_passes={passes} is neither 1 nor 2"


@fp8_prefill.variant(
    config=Config(), step_from="eager", requires=_requires, tile=_tile,
    workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def dequant_dot(x: Inputs, config: Config) -> Output:
    """Gather bytes; multiply their codes, and put the groups' scales into scores and weights."""
    layout, (tokens, heads, _) = LAYOUTS[x.layout], x.q.shape
    out = torch.empty(tokens, heads, layout.d_v, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    if not tokens:
        return Output(out, lse)
    main, extra = sources(x)[0], sources(x)[-1]
    _dequant_dot_kernel[(tokens, triton.cdiv(heads, config.block_h))](
        x.q, x.cache, x.indices, x.topk_length, x.extra_cache, x.extra_indices,
        x.extra_topk_length, x.attn_sink, out, lse,
        x.sm_scale * LOG2_E.value,
        heads, main.rows, main.indices.shape[1], main.indices.stride(0), main.cache.stride(0),
        x.row_stride, extra.rows, extra.indices.shape[1], extra.indices.stride(0),
        extra.cache.stride(0),
        PAGE_SIZE=x.page_size, EXTRA_PAGE_SIZE=x.extra_page_size, NOPE=layout.nope,
        ROPE=layout.rope, GROUP=layout.group, FOOTER_BYTES=layout.footer_bytes,
        ROPE_IN_V=layout.d_v > layout.nope,
        PASSES=config.arbitrary_passes if x.scale_format == ARBITRARY else 1,
        BLOCK_G=triton.next_power_of_2(layout.groups), BLOCK_H=config.block_h,
        BLOCK_K=config.block_k, num_warps=config.num_warps, num_stages=config.num_stages,
    )  # fmt: skip
    return Output(out, lse)
