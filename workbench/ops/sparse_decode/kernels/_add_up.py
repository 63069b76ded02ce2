"""A warp group of `split_k_registers` that adds up values: a tile's columns times its weights.

Codes are f16 in registers, times a factor of their row and group: the first operand of `wgmma`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from ..._gluon import cta_barrier, reinterpret
from ...fp8_prefill.kernels._operands import as_operand
from ...fp8_prefill.kernels._ring import in_shared
from ._hopper import lanes_that_count
from ._tile import GROUP, TILE, WEIGHERS, WHOLE, WIDTH, number_in

HALF = gl.constexpr(32)  # rows that are converted at once
BY_COLUMN = gl.constexpr("""{
    .reg .b32 both;
    .reg .b16 even, odd;
    prmt.b32 both, $2, 0, 0x3120;
    mov.b32 {even, odd}, both;
    cvt.rn.f16x2.e4m3x2 $0, even;
    cvt.rn.f16x2.e4m3x2 $1, odd;
}""")


@gluon.jit
def _pairs(codes, g: gl.constexpr, half: gl.constexpr, S: gl.constexpr):
    """Bytes of half a tile's rows, two columns together, as a first operand [GROUP / 2, HALF]."""
    pairs = reinterpret(codes, gl.int16, [TILE, WIDTH // 2], in_shared(WIDTH // 2, 2))
    pairs = pairs.slice(half * HALF, HALF, 0).slice(g * (GROUP // 2), GROUP // 2, 1)
    return as_operand(pairs.permute((1, 0)), 0, S, 2)


@gluon.jit
def _values(pairs, S: gl.constexpr):
    """Pairs as numbers [GROUP, HALF]: the even columns, then the odd ones."""
    even, odd = gl.inline_asm_elementwise(
        BY_COLUMN, "=r,=r,r", [pairs], dtype=(gl.float16, gl.float16), is_pure=True, pack=2,
    )  # fmt: skip
    found = gl.join(even, odd).permute((2, 0, 1)).reshape((GROUP, HALF))
    return gl.convert_layout(found, gl.DotOperandLayout(0, S, 2), assert_trivial=True)


@gluon.jit
def _times(sums, of_heads, of_group):
    """Sums [GROUP, heads] times factors [heads] and that of their group [1], in memory."""
    heads = of_heads.load(gl.SliceLayout(0, sums.type.layout))
    return sums * (heads * number_in(of_group))[None, :]


@gluon.jit
def _in_order(sums):
    """Sums [GROUP, heads] of even columns, then of odd ones, as [heads, GROUP]."""
    HEADS: gl.constexpr = sums.shape[1]
    whole = sums.reshape((2, GROUP // 2, HEADS)).permute((1, 0, 2)).reshape((GROUP, HEADS))
    return whole.permute((1, 0))


@gluon.jit
def _place(codes, i, g: gl.constexpr, HEADS: gl.constexpr, DEPTH: gl.constexpr):
    """Memory [HEADS, GROUP] for the answer's column group `g`, where nobody reads codes any more.

    Tile `i` is the last one, and read. Of two adders the other one may not be that far: at DEPTH 5
    the place is that of tile i - 2, whose weights both have given back before `i` had any. One
    adder, at DEPTH 4, takes those of i - 1 and `i`.
    """
    L: gl.constexpr = gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
    FIT: gl.constexpr = TILE * WIDTH // (HEADS * GROUP * 4)  # groups that lie in a tile's place
    there = codes.index((i + 3 + g // FIT) % DEPTH)
    return reinterpret(there, gl.float32, [FIT, HEADS, GROUP], L).index(g % FIT)


@gluon.jit
def _write(sums, out, step, left):
    """Sums in memory [heads, GROUP] as columns of the answer's rows, whole lines at a time."""
    L: gl.constexpr = gl.BlockedLayout([1, 4], [1, 32], [4, 1], [1, 0])
    h = gl.arange(0, sums.shape[0], layout=gl.SliceLayout(1, L))
    d = gl.arange(0, GROUP, layout=gl.SliceLayout(0, L))
    to = out + (h * step)[:, None] * WIDTH + d[None, :]
    gl.store(to, sums.load(L).to(out.dtype.element_ty), mask=(h < left)[:, None])


@gluon.jit
def add_up(
    given, FIRST: gl.constexpr, EACH: gl.constexpr, HEADS: gl.constexpr, DEPTH: gl.constexpr
):  # fmt: skip
    """Sums of the values of EACH groups of columns from group FIRST on, over a share's tiles.

    Head h is written to row h * `step` of `out`, for the first `left` heads.
    """
    S: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEADS, 16])
    A: gl.constexpr = gl.DotOperandLayout(0, S, 2)
    share, codes, handed, barriers, out, step, left, NEVER = given
    weights, factors, of_heads, of_groups, changed = handed
    full, empty, _, ready, taken, _, _, done = barriers
    count = gl.cdiv(lanes_that_count(share), TILE)
    acc = ()
    for _ in gl.static_range(EACH):
        acc += (gl.zeros([GROUP, HEADS], gl.float32, S),)
    for i in range(count):
        slot, b = i % DEPTH, i % WEIGHERS
        z = i & NEVER  # zero, in a way that keeps no matrix descriptor across the loop
        mbarrier.wait(full.index(slot), i // DEPTH & 1)
        found = _pairs(codes.index(slot), FIRST, 0, S)
        mbarrier.wait(ready.index(b), i // WEIGHERS & 1)
        if number_in(changed.index(b)) != 0:
            less = ()
            for g in gl.static_range(EACH):
                less += (_times(acc[g], of_heads.index(b), of_groups.index(b).slice(FIRST + g, 1)),)
            acc = less
        new = ()
        last = acc[0]
        for c in gl.static_range(2 * EACH):
            of_group = factors.index(b).slice(FIRST + c // 2, 1, 0)
            columns = _values(found, S) * of_group.slice(c % 2 * HALF, HALF, 1).load(A)
            if c + 1 < 2 * EACH:
                found = _pairs(codes.index(slot), FIRST + (c + 1) // 2, (c + 1) % 2, S)
            else:
                cta_barrier()
                mbarrier.arrive(empty.index(slot), count=1)
            weighed = weights.index(b + z).slice(c % 2 * HALF, HALF, 0)
            if c % 2 == 0:
                sums = warpgroup_mma(columns, weighed, acc[c // 2], is_async=True)
                if c:
                    new += (warpgroup_mma_wait(1, deps=[last]),)
            else:
                sums = warpgroup_mma(columns, weighed, last, is_async=True)
                sums = warpgroup_mma_wait(1, deps=[sums])  # registers of the half before are free
            last = sums
        new += (warpgroup_mma_wait(0, deps=[last]),)
        acc = new
        cta_barrier()
        mbarrier.arrive(taken.index(b), count=1)
    mbarrier.wait(done.index(WHOLE), 0)
    place = count % WEIGHERS
    for g in gl.static_range(FIRST, FIRST + EACH):
        whole = _times(acc[g - FIRST], of_heads.index(place), of_groups.index(place).slice(g, 1))
        _place(codes, count - 1, g, HEADS, DEPTH).store(_in_order(whole))
    cta_barrier()
    for g in gl.static_range(FIRST, FIRST + EACH):
        _write(_place(codes, count - 1, g, HEADS, DEPTH), out + g * GROUP, step, left)
