"""The kernel in which cache rows fill the tensor core's tile, and a token's heads are columns.

Two warp groups dequantise tiles of 64 rows (`_bytes`), one half each, and two take
them in turns: scores [64, heads], weights through shared memory, sums of values [512, heads] of
their own tiles, which they add up at the end. Sixteen heads cost sixteen columns
where a tile of query rows would cost 64. Sums of a head lie across warps.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..._gluon import cta_barrier, reinterpret
from ...sparse_prefill.kernels._hopper import UNSEEN, copy_query, finish, softmax_step
from ...sparse_prefill.kernels._pieces import last_valid, release
from ._bytes import half_dequantised

TILE = gl.constexpr(64)
HALF = gl.constexpr(256)
ROPE = gl.constexpr(64)
COPIERS = gl.constexpr(128)
COLUMNS = 16  # heads, padded: with eight the compiler has no layout, with 32 the sums spill


def registers_for(config) -> str | None:
    """Why 8 warps that dequantise and 8 that compute cannot have these registers, or None."""
    asked = {"producer": config.producer_registers, "consumer": config.consumer_registers}
    for name, registers in asked.items():
        if registers % 8 or not 24 <= registers <= 240:
            return f"{name}_registers={registers} is no multiple of 8 in [24, 240]"
    if (total := 256 * sum(asked.values())) > 65536:
        return f"the warp groups would take {total:,} of 65,536 registers"
    return None


@gluon.jit
def _consume(
    queries, left, right, rope, lanes, weights, states, barriers, attn_sink, out, lse,
    scale_log2, step, end, head, pairs, count, H, ROWS, NEVER,
    C: gl.constexpr, HAS_SINK: gl.constexpr, DC: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    """Tiles C, C + 2, ...; then half C of the columns of both groups' sums."""
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, QUERIES, 16])
    COLUMN: gl.constexpr = gl.SliceLayout(0, S)
    ROW: gl.constexpr = gl.SliceLayout(1, S)
    q_left, q_right, q_rope, asked = queries
    full_left, full_right, empty_left, empty_right, handed = barriers
    r = gl.arange(0, QUERIES, layout=COLUMN)
    k = C * TILE + gl.arange(0, TILE, layout=ROW)
    zeros = gl.zeros([TILE, QUERIES], gl.float32, S)
    m = gl.full([QUERIES], UNSEEN, gl.float32, COLUMN)
    l = gl.zeros([QUERIES], gl.float32, COLUMN)
    acc_l = gl.zeros([HALF, QUERIES], gl.float32, S)
    acc_r = gl.zeros([HALF, QUERIES], gl.float32, S)
    mbarrier.wait(asked.index(0), 0)
    for pair in range(pairs):
        phase = pair & 1
        z = pair & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        l_tile, r_tile = left.index(z + C), right.index(z + C)
        q_l, q_r = q_left.index(z).permute((1, 0)), q_right.index(z).permute((1, 0))
        mbarrier.wait(full_left.index(C), phase)
        fence_async_shared()
        s = warpgroup_mma(l_tile, q_l, zeros, use_acc=False, is_async=True)
        mbarrier.wait(full_right.index(C), phase)
        fence_async_shared()
        s = warpgroup_mma(rope.index(z + C), q_rope.index(z).permute((1, 0)), s, is_async=True)
        s = warpgroup_mma(r_tile, q_r, s, is_async=True)
        lane = lanes.index(C).load(ROW)
        named = (lane >= 0) & (lane < ROWS) & (2 * pair * TILE + k < count)
        s = warpgroup_mma_wait(0, deps=[s])  # [64, QUERIES]
        asking = named[:, None] & (r < end)[None, :]
        p, m, l, alpha = softmax_step(s, m, l, asking, scale_log2, 0)
        acc_l = acc_l * alpha[None, :]
        acc_r = acc_r * alpha[None, :]
        weights.index(C).store(p.to(gl.bfloat16))
        fence_async_shared()
        cta_barrier()
        weighed = weights.index(z + C)
        acc_l = warpgroup_mma(l_tile.permute((1, 0)), weighed, acc_l, is_async=True)
        acc_r = warpgroup_mma(r_tile.permute((1, 0)), weighed, acc_r, is_async=True)
        acc_l, acc_r = warpgroup_mma_wait(0, deps=[acc_l, acc_r])  # [256, QUERIES]
        release(empty_left.index(C))
        mbarrier.arrive(empty_right.index(C), count=1)
    # my last tile's place takes the half that the other group finishes
    maxima, sums = states
    maxima.index(C).store(m)
    sums.index(C).store(l)
    if C == 0:
        _spare(left.index(C), QUERIES).store(acc_r)
        mine = acc_l
    else:
        _spare(left.index(C), QUERIES).store(acc_l)
        mine = acc_r
    release(handed.index(C))
    mbarrier.wait(handed.index(1 - C), 0)
    other = maxima.index(1 - C).load(COLUMN)
    most = gl.maximum(m, other)
    alpha, beta = gl.exp2(m - most), gl.exp2(other - most)
    l = l * alpha + sums.index(1 - C).load(COLUMN) * beta
    mine = mine * alpha[None, :] + _spare(left.index(1 - C), QUERIES).load(S) * beta[None, :]
    factor, row_lse = finish(most, l, attn_sink, (head + r) % H, HAS_SINK)
    if C == 0:
        gl.store(lse + r * step, row_lse, mask=r < end)
    d = C * HALF + gl.arange(0, HALF, layout=ROW)
    place = out + (r * step)[None, :] * DC + d[:, None]
    gl.store(place, (mine * factor[None, :]).to(out.dtype.element_ty), mask=(r < end)[None, :])


@gluon.jit
def _spare(tile, QUERIES: gl.constexpr):
    """The memory of half a tile of rows, as float32 [256, QUERIES]."""
    LINES: gl.constexpr = TILE * HALF // 2 // QUERIES
    F: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    return reinterpret(tile, gl.float32, [LINES, QUERIES], F).slice(0, HALF, 0)


@gluon.jit
def columns(
    q, source, rows, attn_sink, out, lse,
    scale_log2, th, step, end, head, length, H, ROWS, NEVER,
    FORM: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    QUERIES: gl.constexpr, LANES: gl.constexpr, PRODUCER: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """Query rows th .. th + end heads from `head` on, over the first `length` lanes of `rows`.

    `source`, LANES, `out`, `lse` and `step` are as in `turns`.
    """
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    P: gl.constexpr = gl.NVMMASharedLayout(QUERIES * 2, element_bitwidth=16, rank=2)
    V: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    B: gl.constexpr = mbarrier.MBarrierLayout()
    q_left = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, HALF], K)
    q_right = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, HALF], K)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, ROPE], K)
    left = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, HALF], K)
    right = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, HALF], K)
    rope = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, ROPE], K)
    lanes = gl.allocate_shared_memory(gl.int32, [2, TILE], V)
    weights = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, QUERIES], P)
    maxima = gl.allocate_shared_memory(gl.float32, [2, QUERIES], V)
    sums = gl.allocate_shared_memory(gl.float32, [2, QUERIES], V)
    full_left = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    full_right = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    empty_left = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    empty_right = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    handed = gl.allocate_shared_memory(gl.int64, [2, 1], B)  # the sums at the end
    asked = gl.allocate_shared_memory(gl.int64, [1, 1], B)
    for i in gl.static_range(2):
        mbarrier.init(full_left.index(i), count=COPIERS + 1)
        mbarrier.init(full_right.index(i), count=COPIERS + 1)
        mbarrier.init(empty_left.index(i), count=1)
        mbarrier.init(empty_right.index(i), count=1)
        mbarrier.init(handed.index(i), count=1)
    mbarrier.init(asked.index(0), count=32 * gl.num_warps())
    copy_query(q_left.index(0), q, th, end, 0, D, QUERIES, HALF)
    copy_query(q_right.index(0), q, th, end, HALF, D, QUERIES, HALF)
    copy_query(q_rope.index(0), q, th, end, 2 * HALF, D, QUERIES, ROPE)
    async_copy.mbarrier_arrive(asked.index(0), increment_count=False)
    count = length
    if LANES:
        count = last_valid(rows, length, ROWS, LANES)
    fence_async_shared()
    cta_barrier()
    pairs = (count + 2 * TILE - 1) // (2 * TILE)
    queries = (q_left, q_right, q_rope, asked)
    barriers = (full_left, full_right, empty_left, empty_right, handed)
    states = (maxima, sums)
    gl.warp_specialize([
        (_consume, (
            queries, left, right, rope, lanes, weights, states, barriers, attn_sink, out, lse,
            scale_log2, step, end, head, pairs, count, H, ROWS, NEVER, 0, HAS_SINK, DC, QUERIES)),
        (_consume, (
            queries, left, right, rope, lanes, weights, states, barriers, attn_sink, out, lse,
            scale_log2, step, end, head, pairs, count, H, ROWS, NEVER, 1, HAS_SINK, DC, QUERIES)),
        (half_dequantised, (
            source, rows, full_left, empty_left, left, lanes, ROWS, count, pairs, FORM, False)),
        (half_dequantised, (
            source, rows, full_right, empty_right, right, rope, ROWS, count, pairs, FORM, True)),
    ], [4, 4, 4], [CONSUMER, PRODUCER, PRODUCER])  # fmt: skip
