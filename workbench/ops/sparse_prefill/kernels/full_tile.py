"""Eight tokens with eight heads fill the tensor core's 64 rows with queries that all do work.

One token of 8 heads leaves 7/8 of such a tile empty; a union of eight tokens leaves none. All warps
do everything: while they compute a tile, the copies of the next one are under way.
"""

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma_wait

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import (
    ROWS,
    UNSEEN,
    copy_query,
    copy_tile,
    cta_barrier,
    filled,
    lists_bytes,
    one_tile,
    over_unions,
    settled,
)
from ._tile import start_scores, start_values, store

STAGES = gl.constexpr(2)  # tiles in shared memory: a third does not fit beside the queries


@dataclass(frozen=True)
class Config:
    group: int = 0  # tokens that share a gather; 0: as many as fill the tile of 64 query rows


@gluon.jit(do_not_specialize=["NEVER"])
def _full_tile_kernel(
    q, kv, union_rows, owners, union_length, attn_sink, out, lse,
    scale_log2,
    T, H, WIDTH, NEVER,
    HAS_SINK: gl.constexpr, KV_STRIDE: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    G: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 32, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 2], [16, 256, 16])
    latent = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 64, DC], K)
    rope = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 64, 64], K)
    q_latent = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, DC], K)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, 64], K)
    weights_s = gl.allocate_shared_memory(gl.bfloat16, [QUERIES, 64], K)
    g = (gl.num_programs(0) - 1 - gl.program_id(0)).to(gl.int64)  # the longest first
    th = g * G * H
    end = gl.minimum(T - g * G, G).to(gl.int32) * H
    rows, owners = union_rows + g * WIDTH, owners + g * WIDTH
    count = gl.load(union_length + g)
    copy_query(q_latent.index(0), q, th, end, 0, D, QUERIES, DC)
    copy_query(q_rope.index(0), q, th, end, DC, D, QUERIES, 64)
    copy_tile(kv, rows, 0, count, latent.index(0), rope.index(0), KV_STRIDE, DC)
    r = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, S))
    mine = gl.where(r < end, 1 << (r // H), 0)
    k = gl.arange(0, 64, layout=gl.SliceLayout(0, S))
    m = gl.full([QUERIES], UNSEEN, gl.float32, gl.SliceLayout(1, S))
    l = gl.zeros([QUERIES], gl.float32, gl.SliceLayout(1, S))
    acc = gl.zeros([QUERIES, DC], gl.float32, O)
    zeros = gl.zeros([QUERIES, 64], gl.float32, S)
    stage = 0
    for start in range(0, count, 64):
        bits = gl.load(owners + start + k, mask=start + k < count, other=0)
        cta_barrier()  # all warps are done with the tile before
        other = 1 - stage
        copy_tile(kv, rows, start + 64, count, latent.index(other), rope.index(other),
                  KV_STRIDE, DC)  # fmt: skip
        async_copy.wait_group(1)
        cta_barrier()
        fence_async_shared()
        z = start & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        s = start_scores(q_latent.index(z), q_rope.index(z), latent.index(stage),
                         rope.index(stage), zeros)  # fmt: skip
        s = warpgroup_mma_wait(0, deps=[s])
        acc, m, l = start_values(s, acc, m, l, bits, mine, scale_log2, weights_s,
                                 latent.index(stage), O)  # fmt: skip
        acc = warpgroup_mma_wait(0, deps=[acc])
        stage = other
    async_copy.wait_group(0)
    store(out, lse, th, end, acc, m, l, attn_sink, H, HAS_SINK, DC, QUERIES, S, O)


@sparse_prefill.variant(
    config=Config(), step_from="swapped", requires=lambda w, config: one_tile(w, config.group),
    settled=settled,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
)  # fmt: skip
def full_tile(x: Inputs, config: Config) -> Output:
    """A group as large as fills the tile of 64 query rows, operands in their usual places."""
    return over_unions(_full_tile_kernel, x, filled(config.group, x.q.shape[1]), QUERIES=ROWS,
                       num_warps=8)  # fmt: skip
