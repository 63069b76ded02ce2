"""Steps of the kernels whose one consumer of eight warps shares a tile: scores, softmax, values.

Warps stand four by two: four take 16 query rows each, two take half of the columns: of the cache
rows for the scores, of the value width for the sums. Weights go through shared memory, since each
half of the values needs all of them.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma

from ._hopper import cta_barrier, finish, softmax_step


@gluon.jit
def start_scores(q_latent, q_rope, latent, rope, zeros):
    """Start scores [QUERIES, 64] of the queries and a tile's cache rows."""
    s = warpgroup_mma(q_latent, latent.permute((1, 0)), zeros, use_acc=False, is_async=True)
    return warpgroup_mma(q_rope, rope.permute((1, 0)), s, is_async=True)


@gluon.jit
def start_values(s, acc, m, l, bits, mine, scale_log2, weights_s, latent, O: gl.constexpr):
    """Softmax of scores, and the start of the product of its weights with the tile's values."""
    counts = (bits[None, :] & mine[:, None]) != 0
    weights, m, l, alpha = softmax_step(s, m, l, counts, scale_log2, 1)
    weights_s.store(weights.to(gl.bfloat16))
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    fence_async_shared()
    cta_barrier()
    return warpgroup_mma(weights_s, latent, acc, is_async=True), m, l


@gluon.jit
def store(
    out, lse, th, end, acc, m, l, attn_sink, H,
    HAS_SINK: gl.constexpr, DC: gl.constexpr, QUERIES: gl.constexpr, S: gl.constexpr,
    O: gl.constexpr,
):  # fmt: skip
    """Write the query rows th .. th + end of out and lse."""
    r = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, S))
    factor, row_lse = finish(m, l, attn_sink, r % H, HAS_SINK)
    gl.store(lse + th + r, row_lse, mask=r < end)
    acc = acc * gl.convert_layout(factor, gl.SliceLayout(1, O))[:, None]
    ro = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, O))
    d = gl.arange(0, DC, layout=gl.SliceLayout(0, O))
    place = out + (th + ro)[:, None] * DC + d[None, :]
    gl.store(place, acc.to(gl.bfloat16), mask=(ro < end)[:, None])
