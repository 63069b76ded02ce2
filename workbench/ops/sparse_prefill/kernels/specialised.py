"""Copies by warps of their own: a producer fills a ring of tiles, eight warps consume it.

No warp that computes waits for a copy to be issued, and registers go where the sums are. Scores of
the next tile are started beside this tile's product with its values.
"""

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma_wait,
)

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import (
    ROWS,
    UNSEEN,
    copy_query,
    copy_rows,
    cta_barrier,
    filled,
    lists_bytes,
    one_tile,
    over_unions,
    registers_fit,
    settled,
)
from ._tile import start_scores, start_values, store

STAGES = gl.constexpr(2)  # tiles in shared memory: a third does not fit beside the queries


@dataclass(frozen=True)
class Config:
    group: int = 0  # tokens that share a gather; 0: as many as fill the tile of 64 query rows
    producer_registers: int = 56


@gluon.jit
def _produce(
    kv, rows, count, latent, rope, full, empty, KV_STRIDE: gl.constexpr, DC: gl.constexpr
):  # fmt: skip
    L: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    k = gl.arange(0, 64, layout=gl.SliceLayout(1, L))
    after = gl.load(rows + k, mask=k < count, other=0)
    for i in range((count + 63) // 64):
        start = i * 64
        row = after
        ahead = start + 64 + k
        after = gl.load(rows + ahead, mask=ahead < count, other=0)
        stage = i % STAGES
        mbarrier.wait(empty.index(stage), ((i // STAGES) & 1) ^ 1)
        copy_rows(latent.index(stage), kv, row, start + k < count, 0, KV_STRIDE, DC, L)
        copy_rows(rope.index(stage), kv, row, start + k < count, DC, KV_STRIDE, 64, L)
        async_copy.mbarrier_arrive(full.index(stage), increment_count=False)
    async_copy.wait_group(0)


@gluon.jit
def _consume(
    out, lse, attn_sink, owners, q_latent, q_rope, weights_s, latent, rope, full, empty,
    scale_log2, th, end, count, H, NEVER,
    HAS_SINK: gl.constexpr, DC: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    r = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, S))
    mine = gl.where(r < end, 1 << (r // H), 0)
    k = gl.arange(0, 64, layout=gl.SliceLayout(0, S))
    m = gl.full([QUERIES], UNSEEN, gl.float32, gl.SliceLayout(1, S))
    l = gl.zeros([QUERIES], gl.float32, gl.SliceLayout(1, S))
    acc = gl.zeros([QUERIES, DC], gl.float32, O)
    zeros = gl.zeros([QUERIES, 64], gl.float32, S)
    s = zeros
    if count > 0:
        mbarrier.wait(full.index(0), 0)
        fence_async_shared()
        s = start_scores(q_latent.index(0), q_rope.index(0), latent.index(0), rope.index(0), zeros)
        s = warpgroup_mma_wait(0, deps=[s])
    for i in range((count + 63) // 64):
        start, stage = i * 64, i % STAGES
        bits = gl.load(owners + start + k, mask=start + k < count, other=0)
        acc, m, l = start_values(s, acc, m, l, bits, mine, scale_log2, weights_s,
                                 latent.index(stage), O)  # fmt: skip
        # behind the last tile this is a product of whatever stands there, which nobody reads
        after = (i + 1) % STAGES
        if start + 64 < count:
            mbarrier.wait(full.index(after), ((i + 1) // STAGES) & 1)
            fence_async_shared()
        z = start & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        s = start_scores(q_latent.index(z), q_rope.index(z), latent.index(after),
                         rope.index(after), zeros)  # fmt: skip
        acc = warpgroup_mma_wait(2, deps=[acc])
        cta_barrier()
        mbarrier.arrive(empty.index(stage), count=1)
        s = warpgroup_mma_wait(0, deps=[s])
    store(out, lse, th, end, acc, m, l, attn_sink, H, HAS_SINK, DC, QUERIES, S, O)


@gluon.jit(do_not_specialize=["NEVER"])
def _specialised_kernel(
    q, kv, union_rows, owners, union_length, attn_sink, out, lse,
    scale_log2,
    T, H, WIDTH, NEVER,
    HAS_SINK: gl.constexpr, KV_STRIDE: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    G: gl.constexpr, QUERIES: gl.constexpr, PRODUCER: gl.constexpr,
):  # fmt: skip
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    B: gl.constexpr = mbarrier.MBarrierLayout()
    latent = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 64, DC], K)
    rope = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 64, 64], K)
    q_latent = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, DC], K)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, 64], K)
    weights_s = gl.allocate_shared_memory(gl.bfloat16, [QUERIES, 64], K)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], B)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], B)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=128)  # threads of the producer
        mbarrier.init(empty.index(i), count=1)
    g = (gl.num_programs(0) - 1 - gl.program_id(0)).to(gl.int64)  # the longest first
    th = g * G * H
    end = gl.minimum(T - g * G, G).to(gl.int32) * H
    rows, owners = union_rows + g * WIDTH, owners + g * WIDTH
    count = gl.load(union_length + g)
    copy_query(q_latent.index(0), q, th, end, 0, D, QUERIES, DC)
    copy_query(q_rope.index(0), q, th, end, DC, D, QUERIES, 64)
    async_copy.commit_group()
    async_copy.wait_group(0)
    fence_async_shared()
    cta_barrier()
    gl.warp_specialize([
        (_consume, (out, lse, attn_sink, owners, q_latent, q_rope, weights_s, latent, rope, full,
                    empty, scale_log2, th, end, count, H, NEVER,
                    HAS_SINK, DC, QUERIES)),
        (_produce, (kv, rows, count, latent, rope, full, empty, KV_STRIDE, DC)),
    ], [4], [PRODUCER])  # fmt: skip


def _requires(w, config: Config) -> str | None:
    return one_tile(w, config.group) or registers_fit(config.producer_registers, 216)


@sparse_prefill.variant(
    config=Config(), step_from="full_tile", requires=_requires,
    settled=settled,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
)  # fmt: skip
def specialised(x: Inputs, config: Config) -> Output:
    """Copies by warps of their own, and the next tile's scores beside this one's values."""
    return over_unions(
        _specialised_kernel, x, filled(config.group, x.q.shape[1]),
        QUERIES=ROWS, PRODUCER=config.producer_registers, num_warps=8,
    )  # fmt: skip
