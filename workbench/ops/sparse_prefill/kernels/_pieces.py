"""Steps of the kernel in `_turns`: a tile's pieces copied, its scores, its weights handed over."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
)

from ._hopper import copy_rows, cp_async, cta_barrier

HALF = gl.constexpr(256)  # of the latent width
ROPE = gl.constexpr(64)
TILE = gl.constexpr(64)  # cache rows


@gluon.jit
def copied(
    kv, rows, owners, barriers, left, right, rope, lanes, ROWS, count, pairs,
    UNION: gl.constexpr, KV_STRIDE: gl.constexpr,
):  # fmt: skip
    """A producer: copy the tiles' pieces, each as soon as its place is free."""
    full_early, full_late, empty_early, empty_late = barriers
    L: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    k = gl.arange(0, TILE, layout=gl.SliceLayout(1, L))
    lane = gl.arange(0, TILE, layout=gl.BlockedLayout([1], [32], [4], [0]))
    after = gl.load(rows + k, mask=k < count, other=-1)
    for pair in range(pairs):
        for c in gl.static_range(2):
            start = (2 * pair + c) * TILE
            row = after
            read = (row >= 0) & (row < ROWS)
            ahead = start + TILE + k
            after = gl.load(rows + ahead, mask=ahead < count, other=-1)
            early, late = (left, right) if c == 0 else (right, left)
            mbarrier.wait(empty_early.index(c), (pair & 1) ^ 1)
            copy_rows(early.index(c), kv, row, read, c * HALF, KV_STRIDE, HALF, L)
            # what tells whose rows these are: owner bits, or the row itself where one owns all
            source = owners if UNION else rows
            cp_async(lanes.index(c), source + start + lane, mask=start + lane < count)
            async_copy.mbarrier_arrive(full_early.index(c), increment_count=False)
            mbarrier.wait(empty_late.index(c), (pair & 1) ^ 1)
            copy_rows(rope.index(c), kv, row, read, 2 * HALF, KV_STRIDE, ROPE, L)
            copy_rows(late.index(c), kv, row, read, (1 - c) * HALF, KV_STRIDE, HALF, L)
            async_copy.mbarrier_arrive(full_late.index(c), increment_count=False)
    async_copy.wait_group(0)


@gluon.jit
def scores(q, keys, full_early, full_late, phase, zeros):
    """Start the products of the queries with a tile, piece by piece as they arrive."""
    early, rope, late = keys
    mbarrier.wait(full_early, phase)
    fence_async_shared()
    s = warpgroup_mma(q[0], early.permute((1, 0)), zeros, use_acc=False, is_async=True)
    mbarrier.wait(full_late, phase)
    fence_async_shared()
    s = warpgroup_mma(q[1], rope.permute((1, 0)), s, is_async=True)
    return warpgroup_mma(q[2], late.permute((1, 0)), s, is_async=True)  # [QUERIES, TILE]


@gluon.jit
def fold_other(
    acc, m, l, weights, values, maxima, weighed, phase, S: gl.constexpr, O: gl.constexpr
):  # fmt: skip
    """Start the product of the other group's weights with my half of its tile's values."""
    mbarrier.wait(weighed, phase)
    m_new = maxima.load(gl.SliceLayout(1, S))
    alpha = gl.exp2(m - m_new)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, O))[:, None]
    return warpgroup_mma(weights, values, acc, is_async=True), m_new, l * alpha


@gluon.jit
def release(barrier):
    """All threads of this warp group are done with a piece."""
    cta_barrier()
    mbarrier.arrive(barrier, count=1)


@gluon.jit
def counts(lanes, start, count, ROWS, mine, UNION: gl.constexpr, S: gl.constexpr):
    """Which cache rows of a tile count for which query row."""
    lane = lanes.load(gl.SliceLayout(0, S))[None, :]
    if UNION:
        wanted = (lane & mine[:, None]) != 0
    else:
        k = start + gl.arange(0, TILE, layout=gl.SliceLayout(0, S))[None, :]
        wanted = (lane >= 0) & (lane < ROWS) & (k < count) & (mine[:, None] != 0)
    return wanted


@gluon.jit
def last_valid(rows, length, ROWS, LANES: gl.constexpr):
    """One more than the last of the first `length` lanes that names a row of the cache; 0: none."""
    L: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    lane = gl.arange(0, LANES, L)
    ends = gl.zeros([LANES], gl.int32, L)
    for start in range(0, length, LANES):
        row = gl.load(rows + start + lane, mask=start + lane < length, other=-1)
        ends = gl.where((row >= 0) & (row < ROWS), start + lane + 1, ends)
    return gl.max(ends, 0)
