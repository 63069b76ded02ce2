"""Scores in `split_k_registers`: queries in memory, and products of a tile's rows with them.

Cache rows fill the tensor core's tile, heads are its columns. Codes are f16 numbers, exactly, when
they are registers: the first operand of `wgmma`.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma, warpgroup_mma_wait

from ...fp8_prefill.kernels._operands import as_bf16_reads, as_operand
from ._tile import GROUP, GROUPS, ROPE, TILE, WEIGHERS, WIDTH

HALF = gl.constexpr(64)  # columns that are converted at once


@gluon.jit
def load_query(q, left, queries, C: gl.constexpr, HEADS: gl.constexpr):
    """Half C of HEADS query rows at `q`, of which `left` are there, into memory: a head in units
    of a power of two."""
    codes, scales, rotary = queries
    # sixteen columns a thread: renamed, they are two stores
    R: gl.constexpr = gl.BlockedLayout([1, 16], [4, 8], [4, 1], [1, 0])
    HALF_HEADS: gl.constexpr = HEADS // WEIGHERS
    r = C * HALF_HEADS + gl.arange(0, HALF_HEADS, layout=gl.SliceLayout(1, R))
    read = (r < left)[:, None]
    row = q + (r * (WIDTH + ROPE))[:, None]
    column = gl.arange(0, GROUP, layout=gl.SliceLayout(0, R))[None, :]
    held = ()
    for g in gl.static_range(GROUPS):
        held += (gl.load(row + (g * GROUP + column), mask=read, other=0.0),)
    column = gl.arange(0, ROPE, layout=gl.SliceLayout(0, R))[None, :]
    turned = gl.load(row + (WIDTH + column), mask=read, other=0.0)
    most = gl.abs(held[0].to(gl.float32))
    for g in gl.static_range(1, GROUPS):
        most = gl.maximum(most, gl.abs(held[g].to(gl.float32)))
    # the largest one's power of two, times 2**-14: f16 has room for that, and 29 binades below it
    bits = gl.maximum((gl.max(most, 1).to(gl.int32, bitcast=True) >> 23) - 14, 64)
    scales.slice(C * HALF_HEADS, HALF_HEADS, 0).store((bits << 23).to(gl.float32, bitcast=True))
    inverse = ((254 - bits) << 23).to(gl.float32, bitcast=True)[:, None]
    for g in gl.static_range(GROUPS):
        part = (held[g].to(gl.float32) * inverse).to(gl.float16)
        codes[g].index(0).slice(C * HALF_HEADS, HALF_HEADS, 0).store(as_bf16_reads(part, 1))
    rotary.index(0).slice(C * HALF_HEADS, HALF_HEADS, 0).store(turned)


@gluon.jit
def _keys(found, S: gl.constexpr):
    """Bytes as the first operand of a product in f16: columns renamed, none moved."""
    numbers = as_bf16_reads(found.to(gl.float8e4nv, bitcast=True).to(gl.float16), 1)
    return gl.convert_layout(numbers, gl.DotOperandLayout(0, S, 2), assert_trivial=True)


@gluon.jit
def by_group(scales, S: gl.constexpr):
    """Scales [TILE, GROUPS] of the rows that a thread has, as [TILE, 1] by groups."""
    even, odd = gl.split(scales.reshape((TILE, 2, 2)))  # groups 0 and 2, groups 1 and 3
    found = gl.split(even) + gl.split(odd)
    ROW: gl.constexpr = gl.SliceLayout(1, S)
    by_group = ()
    for g in gl.static_range(GROUPS):
        one = gl.convert_layout(found[g % 2 * 2 + g // 2], ROW, assert_trivial=True)
        by_group += (one[:, None],)
    return by_group


@gluon.jit
def _inverse(x):
    return gl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32,
                                     is_pure=True, pack=1)  # fmt: skip


@gluon.jit
def scores(queries, codes, scales, rotary, z, S: gl.constexpr, HEADS: gl.constexpr):
    """Products of a tile's rows and the queries [TILE, HEADS].

    Sums are in units of the scale of the group that is added: registers have no room for others.
    """
    q_codes, q_scale, q_rotary = queries
    s = gl.zeros([TILE, HEADS], gl.float32, S)
    found = as_operand(codes.slice(0, HALF, 1), 0, S, 4)
    for c in gl.static_range(2 * GROUPS):
        rows = _keys(found, S)
        if c + 1 < 2 * GROUPS:
            found = as_operand(codes.slice((c + 1) * HALF, HALF, 1), 0, S, 4)
        if c % 2 == 0 and c:
            s = warpgroup_mma_wait(0, deps=[s])
            s *= scales[c // 2 - 1] * _inverse(scales[c // 2])
        query = q_codes[c // 2].index(z).slice(c % 2 * HALF, HALF, 1).permute((1, 0))
        s = warpgroup_mma(rows, query, s, use_acc=c > 0, is_async=True)
        if c % 2:
            s = warpgroup_mma_wait(1, deps=[s])  # registers of the half before are free
    turned = as_operand(rotary, 0, S, 2)
    s = warpgroup_mma_wait(0, deps=[s])
    s *= scales[GROUPS - 1] * q_scale.load(gl.SliceLayout(0, S))[None, :]
    s = warpgroup_mma(turned, q_rotary.index(z).permute((1, 0)), s, is_async=True)
    return warpgroup_mma_wait(0, deps=[s])
