"""The kernel in which two consumer warp groups take tiles of cache rows in turn.

Group C of the two computes scores and softmax of tiles C, C + 2, ... and owns half C of the value
width for all tiles. A tile's weights go to the other group through shared memory, in the place of
the tile's rotary columns, which nobody needs after the scores. A tile is two pieces: the `early`
one is the half that its own group owns, the `late` one is the rest. Each is refilled as soon as
the group that owns that half of the values is done with it.

`NEVER` is zero, but the compiler does not know it: matrix descriptors that depend on it are added
up where they are used. Else all forty are kept across the loop, most of them in local memory.
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

from ._hopper import UNSEEN, copy_query, cta_barrier, finish, softmax_step
from ._pieces import (
    HALF,
    ROPE,
    TILE,
    counts,
    fold_other,
    last_valid,
    release,
    scores,
)

COPIERS = gl.constexpr(128)  # threads of the producer


@gluon.jit
def _turn(
    acc, m, l, queries, left, right, rope, lanes, maxima, barriers, weighed, mine, zeros,
    scale_log2, pair, count, ROWS, NEVER,
    C: gl.constexpr, OTHER: gl.constexpr, UNION: gl.constexpr, OVERLAP: gl.constexpr,
    S: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    """One tile of mine, and the other group's tile before it where there is one (OTHER).

    OVERLAP: my scores are under way before the other tile's values, and these stay under way
    during my softmax. Else one thing is finished before the next begins.
    """
    full_early, full_late, empty_early, empty_late = barriers
    z = pair & NEVER
    phase = pair & 1
    values, others = (left, right) if C == 0 else (right, left)
    before = phase if C == 1 else phase ^ 1  # of the other group's tile
    keys = (values.index(z + C), rope.index(z + C), others.index(z + C))
    q_left, q_rope, q_right = queries
    q = (q_left.index(z), q_rope.index(z), q_right.index(z))
    if C == 1:
        q = (q_right.index(z), q_rope.index(z), q_left.index(z))
    full = (full_early.index(C), full_late.index(C))
    theirs = (rope.index(z + 1 - C), values.index(z + 1 - C), maxima.index(1 - C))
    if OVERLAP:
        s = scores(q, keys, full[0], full[1], phase, zeros)
    if OTHER:
        acc, m, l = fold_other(acc, m, l, theirs[0], theirs[1], theirs[2], weighed.index(1 - C),
                                before, S, O)  # fmt: skip
        if not OVERLAP:
            acc = warpgroup_mma_wait(0, deps=[acc])
            release(empty_late.index(1 - C))
    if not OVERLAP:
        s = scores(q, keys, full[0], full[1], phase, zeros)
    s = warpgroup_mma_wait(1 if (OVERLAP and OTHER) else 0, deps=[s])
    owned = counts(lanes.index(C), (2 * pair + C) * TILE, count, ROWS, mine, UNION, S)
    weights, m, l, alpha = softmax_step(s, m, l, owned, scale_log2, 1)
    weights = weights.to(gl.bfloat16)
    rope.index(z + C).store(weights)
    maxima.index(C).store(m)
    fence_async_shared()
    release(weighed.index(C))
    if OVERLAP and OTHER:
        acc = warpgroup_mma_wait(0, deps=[acc])
        release(empty_late.index(1 - C))
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    weights = gl.convert_layout(weights, gl.DotOperandLayout(0, O, 2))
    acc = warpgroup_mma(weights, values.index(z + C), acc, is_async=True)
    acc = warpgroup_mma_wait(0, deps=[acc])
    release(empty_early.index(C))
    return acc, m, l


@gluon.jit
def _consume(
    queries, left, right, rope, lanes, maxima, sums, barriers, weighed, asked, attn_sink, out,
    lse, scale_log2, step, end, head, pairs, count, H, ROWS, NEVER,
    C: gl.constexpr, UNION: gl.constexpr, OVERLAP: gl.constexpr, HAS_SINK: gl.constexpr,
    DC: gl.constexpr, QUERIES: gl.constexpr,
):  # fmt: skip
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE, 16])
    O: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    r = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, S))
    mine = gl.where(r < end, 1 << (r // H if UNION else r * 0), 0)
    zeros = gl.zeros([QUERIES, TILE], gl.float32, S)
    m = gl.full([QUERIES], UNSEEN, gl.float32, gl.SliceLayout(1, S))
    l = gl.zeros([QUERIES], gl.float32, gl.SliceLayout(1, S))
    acc = gl.zeros([QUERIES, HALF], gl.float32, O)
    mbarrier.wait(asked.index(0), 0)
    # the first turn stands alone: nothing comes before it, and the loop's sums then always come
    # from a product, else the compiler waits for all products before it scales them
    first = gl.minimum(pairs, 1)
    for pair in range(first):
        acc, m, l = _turn(
            acc, m, l, queries, left, right, rope, lanes, maxima, barriers, weighed, mine, zeros,
            scale_log2, pair, count, ROWS, NEVER, C, C == 1, UNION, OVERLAP, S, O,
        )  # fmt: skip
    for pair in range(first, pairs):
        acc, m, l = _turn(
            acc, m, l, queries, left, right, rope, lanes, maxima, barriers, weighed, mine, zeros,
            scale_log2, pair, count, ROWS, NEVER, C, True, UNION, OVERLAP, S, O,
        )  # fmt: skip
    if C == 0:
        for pair in range(gl.maximum(pairs - 1, 0), pairs):  # the other group has the last tile
            acc, m, l = fold_other(acc, m, l, rope.index(1), left.index(1), maxima.index(1),
                                    weighed.index(1), pair & 1, S, O)  # fmt: skip
            acc = warpgroup_mma_wait(0, deps=[acc])
    sums.index(C).store(l)  # of my tiles
    release(weighed.index(2 + C))
    mbarrier.wait(weighed.index(3 - C), 0)
    l += sums.index(1 - C).load(gl.SliceLayout(1, S))
    factor, row_lse = finish(m, l, attn_sink, (head + r) % H, HAS_SINK)
    if C == 0:
        gl.store(lse + r * step, row_lse, mask=r < end)
    acc = acc * gl.convert_layout(factor, gl.SliceLayout(1, O))[:, None]
    ro = gl.arange(0, QUERIES, layout=gl.SliceLayout(1, O))
    d = C * HALF + gl.arange(0, HALF, layout=gl.SliceLayout(0, O))
    place = out + (ro * step)[:, None] * DC + d[None, :]
    gl.store(place, acc.to(out.dtype.element_ty), mask=(ro < end)[:, None])


@gluon.jit
def _produce(
    source, rows, owners, barriers, left, right, rope, lanes, ROWS, count, pairs,
    PRODUCE: gl.constexpr, UNION: gl.constexpr, FORM: gl.constexpr,
):  # fmt: skip
    """A warp group's function has a name of its own; one that is an argument is called from it."""
    PRODUCE(source, rows, owners, barriers, left, right, rope, lanes, ROWS, count, pairs, UNION,
            FORM)  # fmt: skip


@gluon.jit
def turns(
    q, source, rows, owners, attn_sink, out, lse,
    scale_log2, th, step, end, head, length, H, ROWS, NEVER,
    PRODUCE: gl.constexpr, FORM: gl.constexpr, WRITERS: gl.constexpr, UNION: gl.constexpr,
    OVERLAP: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, QUERIES: gl.constexpr, LANES: gl.constexpr, PRODUCER: gl.constexpr,
    CONSUMER: gl.constexpr,
):  # fmt: skip
    """Query rows th .. th + end, heads from `head` on, over the first `length` lanes of `rows`.

    `out` and `lse` are where the first of these rows is answered, `step` rows from each other.

    UNION: `owners` says which of the tokens of a group want a row; else all query rows do, lanes
    outside the cache count for none, and `owners` is not read. PRODUCE brings the rows of `source`
    into tiles of bf16, FORM is what it knows of them as it is compiled. A piece is full when the
    copies of its threads are there, and WRITERS have written their part. LANES: padding at the end
    is looked for, so many lanes at a time; 0: it is not.
    """
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    V: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    B: gl.constexpr = mbarrier.MBarrierLayout()
    q_left = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, HALF], K)
    q_right = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, HALF], K)
    q_rope = gl.allocate_shared_memory(gl.bfloat16, [1, QUERIES, ROPE], K)
    left = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, HALF], K)
    right = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, HALF], K)
    rope = gl.allocate_shared_memory(gl.bfloat16, [2, TILE, ROPE], K)
    lanes = gl.allocate_shared_memory(gl.int32, [2, TILE], V)
    maxima = gl.allocate_shared_memory(gl.float32, [2, QUERIES], V)
    sums = gl.allocate_shared_memory(gl.float32, [2, QUERIES], V)
    full_early = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    full_late = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    empty_early = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    empty_late = gl.allocate_shared_memory(gl.int64, [2, 1], B)
    weighed = gl.allocate_shared_memory(gl.int64, [4, 1], B)  # two of tiles, two of the sums
    asked = gl.allocate_shared_memory(gl.int64, [1, 1], B)  # the queries are there
    for i in gl.static_range(2):
        mbarrier.init(full_early.index(i), count=COPIERS + WRITERS)
        mbarrier.init(full_late.index(i), count=COPIERS + WRITERS)
        mbarrier.init(empty_early.index(i), count=1)
        mbarrier.init(empty_late.index(i), count=1)
    for i in gl.static_range(4):
        mbarrier.init(weighed.index(i), count=1)
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
    queries = (q_left, q_rope, q_right)
    barriers = (full_early, full_late, empty_early, empty_late)
    gl.warp_specialize([
        (_consume, (
            queries, left, right, rope, lanes, maxima, sums, barriers, weighed, asked, attn_sink,
            out, lse, scale_log2, step, end, head, pairs, count, H, ROWS, NEVER,
            0, UNION, OVERLAP, HAS_SINK, DC, QUERIES)),
        (_consume, (
            queries, left, right, rope, lanes, maxima, sums, barriers, weighed, asked, attn_sink,
            out, lse, scale_log2, step, end, head, pairs, count, H, ROWS, NEVER,
            1, UNION, OVERLAP, HAS_SINK, DC, QUERIES)),
        (_produce, (
            source, rows, owners, barriers, left, right, rope, lanes, ROWS, count, pairs,
            PRODUCE, UNION, FORM)),
    ], [4, 4], [CONSUMER, PRODUCER])  # fmt: skip
