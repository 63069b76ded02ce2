"""The warp group of `split_k_registers` that copies rows into shared memory."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..._gluon import cp_async, cta_barrier, reinterpret
from ._hopper import lanes_that_count
from ._tile import BESIDE, FOUND, GROUPS, STARTS, TILE, WIDTH


@gluon.jit
def _start_copy(to, starts, cache, first: gl.constexpr, L: gl.constexpr):
    """Start to copy what rows at `starts` [TILE] have from byte `first` on; zeros where it is -1.
    """
    source = (cache + first + starts.to(gl.int64) * 16).to(gl.pointer_type(to.dtype))
    column = gl.arange(0, to.shape[1], layout=gl.SliceLayout(0, L))
    cp_async(to, source[:, None] + column[None, :], mask=(starts >= 0)[:, None])


@gluon.jit
def feed(given, PAGE_SIZE: gl.constexpr, DEPTH: gl.constexpr):
    """Copy tile after tile into the next place that is free; pages and rows are in 16 bytes.

    A warp copies a whole row at a time: fewer lines of the L1 are looked up than by pieces of many
    rows, and other groups' reads of shared memory wait in the same queue.
    """
    share, cache, lanes, tiles, barriers, TOKENS, PAGE_UNITS, ROW_UNITS = given
    codes, scales, rotary, starts = tiles
    full, empty, spare, _, _, _, _, _ = barriers
    WHOLE: gl.constexpr = gl.BlockedLayout([16, 16], [1, 32], [4, 1], [1, 0])
    ONE: gl.constexpr = gl.BlockedLayout([1, 4], [32, 1], [4, 1], [1, 0])
    EIGHTH: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    F: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    many = reinterpret(starts, gl.int32, [STARTS // FOUND, FOUND * TILE], F)
    k = gl.arange(0, FOUND * TILE, layout=gl.BlockedLayout([1], [32], [4], [0]))
    # all lanes of the part, so that the first load does not wait for how many count
    token = gl.load(lanes + k, mask=k < share[2], other=-1)
    end = lanes_that_count(share)
    for i in range(gl.cdiv(end, TILE)):
        slot, beside = i % DEPTH, i % BESIDE
        if i % FOUND == 0:
            there = (i * TILE + k < end) & (token >= 0) & (token < TOKENS)
            # in units of 16 bytes, which fit into 32 bits
            start = token // PAGE_SIZE * PAGE_UNITS + token % PAGE_SIZE * ROW_UNITS
            many.index(i // FOUND % (STARTS // FOUND)).store(gl.where(there, start, -1))
            k_ahead = (i + FOUND) * TILE + k
            token = gl.load(lanes + k_ahead, mask=k_ahead < end, other=-1)
            cta_barrier()
        here = starts.index(i % STARTS)
        whole, one = here.load(gl.SliceLayout(1, WHOLE)), here.load(gl.SliceLayout(1, ONE))
        eighth = here.load(gl.SliceLayout(1, EIGHTH))
        mbarrier.wait(spare.index(beside), i // BESIDE & 1 ^ 1)
        mbarrier.wait(empty.index(slot), i // DEPTH & 1 ^ 1)
        mbarrier.arrive(full.index(slot), count=1)  # `starts` are there: copies say nothing of them
        _start_copy(codes.index(slot), whole, cache, 0, WHOLE)
        _start_copy(scales.index(beside), one, cache, WIDTH, ONE)
        _start_copy(rotary.index(beside), eighth, cache, WIDTH + 4 * GROUPS, EIGHTH)
        async_copy.mbarrier_arrive(full.index(slot), increment_count=False)
