"""A warp group of `split_k_registers` that weighs rows, in turns with another one."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.language.extra.cuda import gdc_launch_dependents

from ..._gluon import cta_barrier
from ...fp8_prefill.kernels._attend import MASKED, UNSEEN, finish
from ._hopper import lanes_that_count
from ._scores import by_group, load_query, scores
from ._tile import (
    BESIDE,
    ENDED,
    GROUPS,
    LARGEST,
    RAISES,
    STARTS,
    TILE,
    WARPS,
    WEIGHERS,
    WHOLE,
    number_in,
)

# a score in base 2 may be above the maximum that weights are relative to: far, since weights of
# 2**12 times codes of LARGEST * FAR are f16 numbers, and weighing again costs half a tile's time
ABOVE = gl.constexpr(12.0)
FAR = gl.constexpr(8.0)  # times: a tile's largest scale may be that far from the unit of the sums
LOST = gl.constexpr(2.0**-12)  # of the unit: below, a row's codes begin to lose digits in f16
# of a scale; what is not above, also a scale that is no number, is 0. Neighbouring groups of a row
# may differ by 2**90.
LEAST = gl.constexpr(2.0**-60)


@gluon.constexpr_function
def _of_every_warp(heads):
    """Layout of [WARPS, heads]: a thread has all warps' numbers of the heads of its scores."""
    far = [[0, 8 << i] for i in range((heads // 8).bit_length() - 1)]
    return gl.DistributedLinearLayout(
        [[0, 1], *far, [1, 0], [2, 0]], [[0, 2], [0, 4], [0, 0], [0, 0], [0, 0]],
        [[0, 0], [0, 0]], [], [4, heads],
    )  # fmt: skip


@gluon.constexpr_function
def _of_rows():
    """Layout of [TILE, GROUPS]: a thread has all scales of the rows of its scores."""
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [8, 0]], [[0, 0], [0, 0], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [],
        [64, 4],
    )  # fmt: skip


@gluon.jit
def _vote(above, factors):
    """By warp, whether a score is far `above` its head's maximum, or a scale far from its unit.

    What a thread has of a tile is two rows of some heads: it need not ask another.
    """
    HEADS: gl.constexpr = above.shape[1]
    most = gl.max(gl.max(above.reshape((TILE, HEADS // 8, 4, 2)), 3), 1)  # [TILE, 4]
    least = gl.min(gl.where(factors > 0.0, factors, LARGEST), 1)
    far = (gl.max(factors, 1) > LARGEST * FAR) | (least < LARGEST * LOST)
    far = gl.convert_layout(far, gl.SliceLayout(1, most.type.layout), assert_trivial=True)
    votes = gl.where(far[:, None] | (most > ABOVE), 1, 0).reshape((WARPS, 2, 8, 4))
    return gl.max(gl.max(votes, 1).reshape((WARPS, 32)), 1)


@gluon.jit
def _factors(scales, room):
    """What the codes of a row are times [TILE, GROUPS] before they are added: LARGEST at a unit."""
    return gl.where(scales > LEAST, scales * room[None, :], 0.0)


@gluon.jit
def _hand(handed, b, p, f):
    """Hand over the weights and the factors of a tile."""
    handed[0].index(b).store(p.to(gl.float16))
    handed[1].index(b).permute((1, 0)).store(f.to(gl.float16))


@gluon.jit
def _by_lanes(p):
    """Sums of the two rows that a thread has [TILE / 2, HEADS]."""
    HEADS: gl.constexpr = p.shape[1]
    return gl.sum(p.reshape((WARPS, 2, 8, HEADS)), 1).reshape((TILE // 2, HEADS))


@gluon.jit
def _whole_tile(s, scales, maxima, largest, HEADS: gl.constexpr):
    """(each head's largest score, each group's largest scale) of a tile, in all threads."""
    PART: gl.constexpr = TILE // WARPS
    maxima.store(gl.max(s.reshape((WARPS, PART, HEADS)), 1))
    largest.store(gl.max(scales.reshape((WARPS, PART, GROUPS)), 1))
    cta_barrier()
    most = gl.max(maxima.load(_of_every_warp(HEADS)), 0)
    most = gl.convert_layout(most, gl.SliceLayout(0, s.type.layout), assert_trivial=True)
    return most, gl.max(largest.load(gl.BlockedLayout([4, 4], [32, 1], [4, 1], [1, 0])), 0)


@gluon.jit
def _again(s, of_rows, m, l, handed, reference, between, C: gl.constexpr, HEADS: gl.constexpr):
    """Weigh a tile again, by the reference as it is now, which is raised where it must be.

    (maxima, sums of weights, factors of units, sums of this tile's weights, 1 where it is raised)
    """
    HEAD: gl.constexpr = m.type.layout
    OF_GROUP: gl.constexpr = gl.SliceLayout(0, _of_rows())
    shared_m, shared_room, _, _, _ = reference
    _, maxima, largest = between
    _, _, of_heads, of_groups, _ = handed
    m_before, room_before = shared_m.load(HEAD), shared_room.load(OF_GROUP)
    most, of_tile = _whole_tile(s, of_rows, maxima.index(C), largest.index(C), HEADS)
    of_tile = gl.convert_layout(of_tile, OF_GROUP)
    scaled = of_tile * room_before
    far = (scaled > LARGEST * FAR) | (scaled < LARGEST / FAR)
    far = far & (of_tile > LEAST)
    raised = gl.maximum(gl.max(gl.where(most - m_before > ABOVE, 1, 0), 0),
                        gl.max(gl.where(far, 1, 0), 0))  # fmt: skip
    m_new = gl.where(raised != 0, gl.maximum(m_before, most), m_before)
    room = gl.where((raised != 0) & (of_tile > LEAST), LARGEST / of_tile, room_before)
    of_heads.index(C).store(gl.exp2(m_before - m_new))
    of_groups.index(C).store(room / room_before)
    shared_m.store(m_new)
    shared_room.store(room)
    shrunk = gl.convert_layout(gl.exp2(m - m_new), gl.SliceLayout(0, l.type.layout),
                               assert_trivial=True)  # fmt: skip
    p = gl.exp2(s - m_new[None, :])
    _hand(handed, C, p, _factors(of_rows, room))
    fence_async_shared()
    cta_barrier()
    return m_new, l * shrunk[None, :], room, _by_lanes(p), raised


@gluon.jit
def _end(m, l, handed, reference, barriers, attn_sink, lse, step, left, head, count,
         C: gl.constexpr, HEADS: gl.constexpr):  # fmt: skip
    """The group that ended first tells its sums; the other one writes lse, and factors of sums."""
    HEAD: gl.constexpr = m.type.layout
    shared_m, shared_room, _, other_m, other_l = reference
    _, _, of_heads, of_groups, _ = handed
    _, _, _, _, taken, _, _, done = barriers
    total = gl.convert_layout(gl.sum(l, 0), HEAD)
    if count % WEIGHERS == C:
        other_m.store(m)
        other_l.store(total)
        cta_barrier()
        mbarrier.arrive(done.index(ENDED), count=1)
    else:
        # not sooner: programs of the next kernel would crowd on the first multiprocessors to end
        gdc_launch_dependents()
        mbarrier.wait(done.index(ENDED), 0)
        most = shared_m.load(HEAD)
        total = total * gl.exp2(m - most) + other_l.load(HEAD) * gl.exp2(other_m.load(HEAD) - most)
        h = gl.arange(0, HEADS, layout=HEAD)
        factor, row_lse = finish(most, total, attn_sink, head + h, head + left,
                                 attn_sink is not None)  # fmt: skip
        # the place of the last tile but one: what its sums were multiplied by is read no more
        b = count % WEIGHERS
        mbarrier.wait(taken.index(b), count // WEIGHERS & 1 ^ 1)
        room = shared_room.load(gl.SliceLayout(0, _of_rows()))
        of_heads.index(b).store(factor)
        of_groups.index(b).store(1.0 / room)
        cta_barrier()
        mbarrier.arrive(done.index(WHOLE), count=1)
        gl.store(lse + h * step, row_lse, mask=h < left)


@gluon.jit
def weigh(given, C: gl.constexpr, HEADS: gl.constexpr, DEPTH: gl.constexpr):
    """Weights of tiles C, C + 2, ... of a share; at the end what the sums are multiplied by.

    Weights are relative to maxima, and codes' factors to units, that both groups share and seldom
    raise. They hand tiles over in turns: a tile whose reference the other group has raised
    meanwhile is weighed again. Of the `left` heads at `q` the first one is `head`; rows of `lse`
    are `step` apart.
    """
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    (share, q, queries, tiles, handed, barriers, reference, between, attn_sink, lse, scale_log2,
     step, left, head, NEVER) = given  # fmt: skip
    codes, scales, rotary, starts = tiles
    full, _, spare, ready, taken, turn, loaded, _ = barriers
    shared_m, shared_room, raises, _, _ = reference
    votes, changed = between[0].index(C), handed[4].index(C)
    m = gl.full([HEADS], UNSEEN, gl.float32, gl.SliceLayout(0, S))
    l = _by_lanes(gl.zeros([TILE, HEADS], gl.float32, S))
    room = gl.full([GROUPS], LARGEST, gl.float32, gl.SliceLayout(0, _of_rows()))
    seen = gl.to_tensor(0)
    if C == 0:
        shared_m.store(m)
        shared_room.store(room)
        raises.index(RAISES - 1).store(gl.full([1], 0, gl.int32, ONE))
    load_query(q, left, queries, C, HEADS)
    fence_async_shared()
    cta_barrier()
    mbarrier.arrive(loaded.index(0), count=1)
    count = gl.cdiv(lanes_that_count(share), TILE)
    mbarrier.wait(loaded.index(0), 0)
    for i in range(C, count, WEIGHERS):
        slot, beside, phase = i % DEPTH, i % BESIDE, i // WEIGHERS & 1
        z = i & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        mbarrier.wait(full.index(slot), i // DEPTH & 1)
        of_rows = gl.maximum(scales.index(beside).load(_of_rows()), LEAST)
        counts = starts.index(i % STARTS).load(gl.SliceLayout(1, S)) >= 0
        s = scores(queries, codes.index(slot), by_group(of_rows, S), rotary.index(beside), z, S,
                   HEADS)  # fmt: skip
        s = gl.where(counts[:, None], s * scale_log2, MASKED)
        factors = _factors(of_rows, room)
        votes.store(_vote(s - m[None, :], factors))
        mbarrier.wait(taken.index(C), phase ^ 1)
        p = gl.exp2(s - m[None, :])
        weighed = _by_lanes(p)
        _hand(handed, C, p, factors)
        fence_async_shared()
        cta_barrier()
        mbarrier.arrive(spare.index(beside), count=1)
        any_vote = gl.max(votes.load(gl.BlockedLayout([4], [32], [4], [0])), 0)
        mbarrier.wait(turn.index(C), phase ^ (1 - C))
        raised = gl.to_tensor(0)
        before = number_in(raises.index((i + RAISES - 1) % RAISES))
        if (any_vote != 0) | (before != seen):
            m, l, room, weighed, raised = _again(s, of_rows, m, l, handed, reference, between, C,
                                                 HEADS)  # fmt: skip
        seen = before + raised
        raises.index(i % RAISES).store(gl.full([1], 0, gl.int32, ONE) + seen)
        changed.store(gl.full([1], 0, gl.int32, ONE) + raised)
        cta_barrier()  # a warp that still waits for its turn would miss it
        mbarrier.arrive(ready.index(C), count=1)
        mbarrier.arrive(turn.index(1 - C), count=1)
        l += weighed
    _end(m, l, handed, reference, barriers, attn_sink, lse, step, left, head, count, C, HEADS)
