"""Operands of both products swapped: cache rows fill the tensor core's tile, queries are columns.

A group of four tokens with eight heads has 32 query rows, which as rows of a tile would be half
padding. As columns they may be any multiple of eight, so that a small group, whose union is
smaller, costs no padding. Sums of a query then lie across warps, and the softmax pays for that.
"""

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import (
    UNSEEN,
    copy_query,
    copy_tile,
    cta_barrier,
    finish,
    lists_bytes,
    over_unions,
    softmax_step,
)

COLUMNS = (16, 32)  # fewer waste the product, more spill the sums


@dataclass(frozen=True)
class Config:
    group: int = 4  # tokens that share a gather


@gluon.jit(do_not_specialize=["NEVER"])
def _swapped_kernel(
    q, kv, union_rows, owners, union_length, attn_sink, out, lse,
    scale_log2,
    T, H, WIDTH, NEVER,
    HAS_SINK: gl.constexpr, KV_STRIDE: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    G: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    P: gl.constexpr = gl.NVMMASharedLayout(QUERIES * 2, element_bitwidth=16, rank=2)
    M: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, QUERIES, 16])
    COLUMN: gl.constexpr = gl.SliceLayout(0, M)
    latent = gl.allocate_shared_memory(gl.bfloat16, [1, 64, DC], K)
    rope = gl.allocate_shared_memory(gl.bfloat16, [1, 64, 64], K)
    q_latent = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, DC], K)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, 64], K)
    weights_s = gl.allocate_shared_memory(gl.bfloat16, [64, QUERIES], P)
    g = (gl.num_programs(0) - 1 - gl.program_id(0)).to(gl.int64)  # the longest first
    th = g * G * H
    end = gl.minimum(T - g * G, G).to(gl.int32) * H
    rows, owners = union_rows + g * WIDTH, owners + g * WIDTH
    count = gl.load(union_length + g)
    copy_query(q_latent.index(0), q, th, end, 0, D, QUERIES, DC)
    copy_query(q_rope.index(0), q, th, end, DC, D, QUERIES, 64)
    copy_tile(kv, rows, 0, count, latent.index(0), rope.index(0), KV_STRIDE, DC)
    r = gl.arange(0, QUERIES, layout=COLUMN)
    mine = gl.where(r < end, 1 << (r // H), 0)
    k = gl.arange(0, 64, layout=gl.SliceLayout(1, M))
    m = gl.full([QUERIES], UNSEEN, gl.float32, COLUMN)
    l = gl.zeros([QUERIES], gl.float32, COLUMN)
    acc = gl.zeros([DC, QUERIES], gl.float32, M)
    zeros = gl.zeros([64, QUERIES], gl.float32, M)
    for start in range(0, count, 64):
        bits = gl.load(owners + start + k, mask=start + k < count, other=0)
        async_copy.wait_group(0)
        cta_barrier()
        fence_async_shared()
        z = start & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        values, queries = latent.index(z), q_latent.index(z).permute((1, 0))
        s = warpgroup_mma(values, queries, zeros, use_acc=False, is_async=True)
        s = warpgroup_mma(rope.index(z), q_rope.index(z).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma_wait(0, deps=[s])  # [64, QUERIES]
        counts = (bits[:, None] & mine[None, :]) != 0
        weights, m, l, alpha = softmax_step(s, m, l, counts, scale_log2, 0)
        acc = acc * alpha[None, :]
        weights_s.store(weights.to(gl.bfloat16))
        fence_async_shared()
        cta_barrier()
        acc = warpgroup_mma(values.permute((1, 0)), weights_s, acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])  # [DC, QUERIES]
        cta_barrier()
        copy_tile(kv, rows, start + 64, count, values, rope.index(z), KV_STRIDE, DC)
    async_copy.wait_group(0)
    factor, row_lse = finish(m, l, attn_sink, r % H, HAS_SINK)
    gl.store(lse + th + r, row_lse, mask=r < end)
    d = gl.arange(0, DC, layout=gl.SliceLayout(1, M))
    place = out + (th + r)[None, :] * DC + d[:, None]
    gl.store(place, (acc * factor[None, :]).to(gl.bfloat16), mask=(r < end)[None, :])


def _requires(w, config: Config) -> str | None:
    queries = config.group * w.heads
    if not 1 <= config.group <= 16:
        return f"group={config.group} is outside [1, 16]"
    if queries not in COLUMNS:
        return f"group * heads = {config.group} * {w.heads} = {queries} is none of {COLUMNS}"
    return None


@sparse_prefill.variant(
    config=Config(), step_from="union", requires=_requires,
    tile=lambda w, config: Tile(config.group * w.heads, config.group, 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
)  # fmt: skip
def swapped(x: Inputs, config: Config) -> Output:
    """Swap the operands: cache rows fill the tensor core's tile, a group's queries are columns."""
    return over_unions(_swapped_kernel, x, config.group, QUERIES=config.group * x.q.shape[1],
                       num_warps=4)  # fmt: skip
