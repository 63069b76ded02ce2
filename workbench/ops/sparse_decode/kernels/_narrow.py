"""Sixteen heads over rows that stay bytes, in Gluon: a ring of tiles and warps' own `mma`.

Eight warps have eight rows each of a tile's scores, and then some columns of its values: codes
become f16 in registers, exactly, on the way to each product. Nothing dequantised is written, so
that shared memory holds four tiles of bytes, of which two are on their way. Latent queries stay in
registers. Scores of the next tile stand beside values of this one: neither waits for the other.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy, mma_v2

from ..._gluon import cta_barrier
from ...fp8_prefill.kernels._attend import MASKED, UNSEEN, finish
from ...fp8_prefill.kernels._operands import (
    F16,
    LARGEST,
    LEAST,
    as_operand,
    in_order,
    keys,
    load_query,
    values,
)
from ...fp8_prefill.kernels._ring import (
    allocate,
    by_rows,
    copy_columns,
    copy_lanes,
    counting,
    in_shared,
    places,
    read_lanes,
    scales_of,
    start_copy,
)

HEADS = gl.constexpr(16)  # of a program
GROUPS = gl.constexpr(4)
GROUP = gl.constexpr(128)
ROPE = gl.constexpr(64)
TILE = gl.constexpr(64)
DEPTH = gl.constexpr(4)  # tiles in shared memory
WARPS = gl.constexpr(8)


@gluon.constexpr_function
def _of_every_warp():
    """Layout of [HEADS, WARPS]: a thread has all warps' numbers of the heads of its scores."""
    return gl.DistributedLinearLayout(
        [[0, 1], [0, 2], [0, 4], [8, 0]], [[0, 0], [0, 0], [1, 0], [2, 0], [4, 0]],
        [[0, 0], [0, 0], [0, 0]], [], [16, WARPS],
    )  # fmt: skip


@gluon.jit
def _unit(scales, unit):
    """The largest scale of a tile's rows; `unit`, that of a tile before, where it has no row."""
    L: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [1, gl.num_warps()], [1, 0])
    largest = gl.max(gl.max(scales.load(L), 1), 0)
    return gl.where(largest > LEAST, largest, unit)


@gluon.jit
def _show_maxima(s, counts, maxima, scale_log2):
    """Scores in base 2, those that do not count masked; each warp's maxima go to shared memory."""
    s = gl.where(counts[None, :], s * scale_log2, MASKED)
    maxima.store(gl.max(s.reshape((HEADS, WARPS, TILE // WARPS)), 2))
    cta_barrier()
    return s


@gluon.jit
def _hand(s, m, l, kept, unit, scales, maxima, handed):
    """(m, l, what is kept of the sums) with the weights of a tile handed over, times its scales.

    Sums are in units of `unit`: f16 has no room for a weight times any scale. `l` [HEADS, TILE] are
    sums by lanes of all tiles, which the end adds up.
    """
    S: gl.constexpr = s.type.layout
    of_tile = gl.max(maxima.load(_of_every_warp()), 1)
    m_new = gl.maximum(m, gl.convert_layout(of_tile, gl.SliceLayout(1, S), assert_trivial=True))
    p = gl.exp2(s - m_new[:, None])
    alpha = gl.exp2(m - m_new)
    room = LARGEST / unit
    for g in gl.static_range(GROUPS):
        exact = p * (scales_of(scales, g, False, 0, S) * room)
        handed[g].store(exact.to(gl.float16))
    return m_new, l * alpha[:, None] + p, (alpha * kept)[:, None]


@gluon.jit
def _copy_rest(tiles, to, lanes, row, read, start, end):
    """Start to copy what a tile has beside its first two groups, and end its copies."""
    codes, scales, rotary, listed = tiles
    for g in gl.static_range(2, GROUPS):
        copy_columns(codes[g].index(to), row + g * GROUP, read, 16, GROUP)
    behind = (row + GROUPS * GROUP).to(gl.pointer_type(gl.float32))
    copy_columns(scales.index(to).permute((1, 0)), behind, read, 1, GROUPS)
    behind = (row + (GROUPS * GROUP + 4 * GROUPS)).to(gl.pointer_type(gl.bfloat16))
    copy_columns(rotary.index(to), behind, read, 8, ROPE)
    copy_lanes(listed.index(to), lanes, start, end, TILE)
    async_copy.commit_group()


@gluon.jit
def _scores(query, codes, scales, stage, g: gl.constexpr, S: gl.constexpr):
    """What group `g` of a tile's columns adds to the scores [HEADS, TILE]."""
    zeros = gl.zeros([HEADS, TILE], gl.float32, S)
    part = mma_v2(query[0][g], keys(codes[g].index(stage), 1, S, F16), zeros)
    return part * (scales_of(scales.index(stage), g, False, 0, S) * query[1][g])


@gluon.jit
def _add(sums, kept, codes, handed, stage, g: gl.constexpr, S: gl.constexpr):
    """`kept` times the sums of group `g`, and the products of the weights with a tile's values."""
    weights = handed[g].load(gl.DotOperandLayout(0, S, 2))
    columns = values(codes[g].index(stage), 1, S, F16, True, TILE, GROUP)
    return mma_v2(weights, columns, sums * kept)


@gluon.jit
def _write(sums, unit, m, l, attn_sink, out, lse, step, left, head):
    """Write the answers, whose sums are in units of `unit`, and their lse."""
    S: gl.constexpr = l.type.layout
    R: gl.constexpr = by_rows(8, gl.num_warps())
    h = gl.arange(0, HEADS, layout=gl.SliceLayout(1, S))
    factor, row_lse = finish(m, gl.sum(l, 1), attn_sink, head + h, head + left,
                             attn_sink is not None)  # fmt: skip
    gl.store(lse + h * step, row_lse, mask=h < left)
    factor = (factor * (unit / LARGEST))[:, None]
    r = gl.arange(0, HEADS, layout=gl.SliceLayout(1, R))
    to = out + (r * step)[:, None] * (GROUPS * GROUP)
    to += gl.arange(0, GROUP, layout=gl.SliceLayout(0, R))[None, :]
    for g in gl.static_range(GROUPS):
        whole = in_order(sums[g] * factor, F16, True, HEADS, GROUP)
        whole = gl.convert_layout(whole.to(out.dtype.element_ty), R)
        gl.store(to + g * GROUP, whole, mask=(r < left)[:, None])


@gluon.jit
def narrow(
    q, cache, lanes, attn_sink, out, lse,
    scale_log2, step, left, head, end, TOKENS, PAGE_UNITS, ROW_STRIDE,
    PAGE_SIZE: gl.constexpr,
):  # fmt: skip
    """The `left` heads at `q`, HEADS at most, `head` the first, over the first `end` of `lanes`.

    Head h of them is written to row h * step of `out` and `lse`. Pages are PAGE_UNITS times 16
    bytes apart.
    """
    S: gl.constexpr = gl.NVMMADistributedLayout([2, 0], [1, WARPS], [16, 8])
    A: gl.constexpr = gl.DotOperandLayout(0, S, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, S)
    LANE: gl.constexpr = gl.SliceLayout(0, S)
    tiles = allocate(GROUPS, GROUP, GROUPS, ROPE, 0, TILE, DEPTH)
    codes, scales, rotary, listed = tiles
    tokens = ()
    for i in gl.static_range(DEPTH + 1):
        tokens += (read_lanes(lanes, i * TILE, end, TILE),)
    for i in gl.static_range(DEPTH - 2):
        start_copy(tiles, i, cache, lanes, tokens[i], i * TILE, end, TOKENS, PAGE_UNITS, ROW_STRIDE,
                   16, PAGE_SIZE, GROUPS, GROUP, GROUPS, ROPE, 0, TILE)  # fmt: skip
    # half of a tile's copies stand in one step, half in the next: all at once they would wait for
    # each other
    page, place, read = places(tokens[DEPTH - 2], TOKENS, cache, PAGE_UNITS, 16, PAGE_SIZE)
    row = page + place * ROW_STRIDE
    for g in gl.static_range(2):
        copy_columns(codes[g].index(DEPTH - 2), row + g * GROUP, read, 16, GROUP)
    token, token_ahead = tokens[DEPTH - 1], tokens[DEPTH]
    in_memory = load_query(q, left, False, F16, GROUPS, GROUP, GROUPS, ROPE, HEADS, S)
    maxima = gl.allocate_shared_memory(gl.float32, [HEADS, WARPS],
                                       gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))  # fmt: skip
    handed, q_codes, q_scales, acc = (), (), (), ()
    for g in gl.static_range(GROUPS):
        handed += (gl.allocate_shared_memory(gl.float16, [HEADS, TILE], in_shared(TILE, 2)),)
        q_codes += (in_memory[0][g].load(A),)
        q_scales += (in_memory[1].index(g).load(ROW).to(gl.float32)[:, None],)
        acc += (gl.zeros([HEADS, GROUP], gl.float32, S),)
    query = (q_codes, q_scales)
    q_rotary = in_memory[2]  # stays there: registers end here
    zeros = gl.zeros([HEADS, TILE], gl.float32, S)
    m = gl.full([HEADS], UNSEEN, gl.float32, ROW)
    l = zeros
    async_copy.wait_group(DEPTH - 3)
    cta_barrier()
    s = mma_v2(q_rotary.load(A), as_operand(rotary.index(0), 1, S, 2), zeros)
    for g in gl.static_range(GROUPS):
        s += _scores(query, codes, scales, 0, g, S)
    unit = _unit(scales.index(0), 1.0)
    kept = gl.to_tensor(1.0)
    last = gl.maximum(gl.cdiv(end, TILE) - 1, 0)
    for i in range(last):
        stage, next = i % DEPTH, (i + 1) % DEPTH
        counts = counting(listed.index(stage), i * TILE, end, TOKENS, TILE, LANE)
        s = _show_maxima(s, counts, maxima, scale_log2)
        _copy_rest(tiles, (i + DEPTH - 2) % DEPTH, lanes, row, read, (i + DEPTH - 2) * TILE, end)
        m, l, kept_rows = _hand(s, m, l, kept, unit, scales.index(stage), maxima, handed)
        page, place, read = places(token, TOKENS, cache, PAGE_UNITS, 16, PAGE_SIZE)
        row = page + place * ROW_STRIDE
        token, token_ahead = token_ahead, read_lanes(lanes, (i + DEPTH + 1) * TILE, end, TILE)
        async_copy.wait_group(DEPTH - 3)
        cta_barrier()  # weights and the next tile are there, and of the last tile all is read
        now = _unit(scales.index(next), unit)
        s = mma_v2(q_rotary.load(A), as_operand(rotary.index(next), 1, S, 2), zeros)
        new = ()
        for g in gl.static_range(GROUPS):
            if g == 2:
                for c in gl.static_range(2):
                    copy_columns(codes[c].index((i + DEPTH - 1) % DEPTH), row + c * GROUP, read, 16,
                                 GROUP)  # fmt: skip
            s += _scores(query, codes, scales, next, g, S)
            new += (_add(acc[g], kept_rows, codes, handed, stage, g, S),)
        acc = new
        kept, unit = unit / now, now
    stage = last % DEPTH
    counts = counting(listed.index(stage), last * TILE, end, TOKENS, TILE, LANE)
    s = _show_maxima(s, counts, maxima, scale_log2)
    m, l, kept_rows = _hand(s, m, l, kept, unit, scales.index(stage), maxima, handed)
    async_copy.commit_group()  # half a tile behind the last one: zeros that must have landed, too
    async_copy.wait_group(0)
    cta_barrier()
    sums = ()
    for g in gl.static_range(GROUPS):
        sums += (_add(acc[g], kept_rows, codes, handed, stage, g, S),)
    _write(sums, unit, m, l, attn_sink, out, lse, step, left, head)
