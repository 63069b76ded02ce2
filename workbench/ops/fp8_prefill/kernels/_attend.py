"""Steps of the kernel in `_mma`: a tile's scores, the softmax, products with the tile's values.

The cache's rows are operand CACHE of each product, the first one where SWAPPED: scores and weights
are [BLOCK_K, HEADS] then, sums [columns, HEADS], and otherwise all of it is transposed.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ._operands import (
    BF16,
    FP8,
    LARGEST,
    LEAST,
    as_operand,
    in_fp8_order,
    keys,
    largest_scale,
    operand_type,
    product,
    rounded,
    values,
)
from ._ring import in_shared, scales_of

LOG2_E = gl.constexpr(1.4426950408889634)
MASKED = gl.constexpr(-1e30)  # score of a lane that does not count
UNSEEN = gl.constexpr(-5e29)  # the running maximum's start: a masked score's weight is 0 beside it


@gluon.jit
def scores(
    query, tiles, stage,
    CHUNKS: gl.constexpr, GROUPS: gl.constexpr, ROPE: gl.constexpr, FOOTER_BYTES: gl.constexpr,
    KIND: gl.constexpr, SWAPPED: gl.constexpr, ZEROS: gl.constexpr, S: gl.constexpr,
):  # fmt: skip
    """Products of the queries with a tile's rows: [BLOCK_K, HEADS] where SWAPPED, or transposed."""
    CACHE: gl.constexpr = 0 if SWAPPED else 1  # which operand the cache's rows are
    AXIS: gl.constexpr = 0 if SWAPPED else 1  # along which they lie
    SPLIT: gl.constexpr = CHUNKS // GROUPS
    codes, scales, rotary, _ = tiles
    q_codes, q_scales, q_rotary = query
    zeros = gl.zeros(ZEROS, gl.float32, S)
    s = zeros
    if ROPE:
        s = product(as_operand(rotary.index(stage), CACHE, S, 2),
                    as_operand(q_rotary, 1 - CACHE, S, 2), s, SWAPPED)  # fmt: skip
    for g in gl.static_range(GROUPS):
        part = zeros
        for c in gl.static_range(SPLIT):
            queries = q_codes[g * SPLIT + c]
            if not (KIND == FP8 and SWAPPED):
                queries = as_operand(queries, 1 - CACHE, S, 4 if KIND == FP8 or SWAPPED else 2)
            rows = keys(codes[g * SPLIT + c].index(stage), CACHE, S, KIND)
            part = product(rows, queries, part, SWAPPED)
        part *= scales_of(scales.index(stage), g, SWAPPED, FOOTER_BYTES, S)
        if KIND != BF16:
            of_head = q_scales.index(g).load(gl.SliceLayout(AXIS, S)).to(gl.float32)
            part *= of_head.expand_dims(AXIS)
        s += part
    return s


@gluon.jit
def softmax_step(scores, m, l, counts, scale_log2, AXIS: gl.constexpr):
    """(weights, m, l, alpha) of the online softmax in base 2; cache rows lie along AXIS.

    A maximum that has seen nothing lies above a masked score, so that exp2 of their difference is
    zero: a query that has met no valid lane gets no weight, and needs no second mask.
    """
    scores = gl.where(counts.expand_dims(1 - AXIS), scores * scale_log2, MASKED)
    m_new = gl.maximum(m, gl.max(scores, AXIS))
    weights = gl.exp2(scores - m_new.expand_dims(AXIS))
    alpha = gl.exp2(m - m_new)
    return weights, m_new, l * alpha + gl.sum(weights, AXIS), alpha


@gluon.jit
def _weights(
    p, scales, g: gl.constexpr, alpha, unit,
    SWAPPED: gl.constexpr, FOOTER_BYTES: gl.constexpr, KIND: gl.constexpr, PASSES: gl.constexpr,
):  # fmt: skip
    """(weights of the codes of group `g` as what is multiplied, what is kept of sums, their unit).

    f16 and e4m3 have no room for a weight times any scale: sums are in units of a tile's largest.
    """
    L: gl.constexpr = p.type.layout
    exact = p * scales_of(scales, g, SWAPPED, FOOTER_BYTES, L)
    if KIND != BF16:
        largest = largest_scale(scales, g, FOOTER_BYTES)
        new = gl.where(largest > LEAST, largest, unit)
        alpha = alpha * (unit / new)
        exact *= LARGEST / new
        unit = new
    return rounded(exact, KIND, PASSES), alpha, unit


@gluon.jit
def add_values(
    acc, units, acc_r, p, alpha, tiles, handed, stage,
    CHUNKS: gl.constexpr, CHUNK: gl.constexpr, GROUPS: gl.constexpr, ROPE_IN_V: gl.constexpr,
    FOOTER_BYTES: gl.constexpr, BLOCK_K: gl.constexpr, KIND: gl.constexpr, PASSES: gl.constexpr,
    SWAPPED: gl.constexpr, HANDED: gl.constexpr, O: gl.constexpr,
):  # fmt: skip
    """(acc, units, acc_r), times `alpha`, and the products of weights `p` with a tile's values.

    HANDED: warps need weights of each other, which go through shared memory, all of them at once.
    """
    CACHE: gl.constexpr = 0 if SWAPPED else 1
    OTHER: gl.constexpr = 1 - CACHE
    SPLIT: gl.constexpr = CHUNKS // GROUPS
    K_WIDTH: gl.constexpr = 4 if KIND == FP8 else 2
    codes, scales, rotary, _ = tiles
    scales = scales.index(stage)
    alpha_o = gl.convert_layout(alpha, gl.SliceLayout(1 - OTHER, O)).expand_dims(1 - OTHER)
    new_acc, new_units, shrunk = (), (), ()
    if HANDED:
        for g in gl.static_range(GROUPS):
            weights, kept, unit = _weights(p, scales, g, alpha_o, units[g], SWAPPED, FOOTER_BYTES,
                                           KIND, PASSES)  # fmt: skip
            for j in gl.static_range(PASSES):
                handed[g * PASSES + j].store(weights[j])
            shrunk += (kept,)
            new_units += (unit,)
        if ROPE_IN_V:
            handed[GROUPS * PASSES].store(p.to(gl.bfloat16))
    else:
        p = gl.convert_layout(p, gl.DotOperandLayout(OTHER, O, 2))
    for g in gl.static_range(GROUPS):
        if HANDED:
            kept = shrunk[g]
        else:
            weights, kept, unit = _weights(p, scales, g, alpha_o, units[g], SWAPPED, FOOTER_BYTES,
                                           KIND, PASSES)  # fmt: skip
            new_units += (unit,)
        operands = ()
        for j in gl.static_range(PASSES):
            if HANDED:
                operand = as_operand(handed[g * PASSES + j], OTHER, O, K_WIDTH)
            elif KIND == FP8:
                operand = in_fp8_order(weights[j], OTHER, gl.DotOperandLayout(OTHER, O, 4))
            else:
                operand = weights[j]
            operands += (operand,)
        for c in gl.static_range(SPLIT):
            columns = values(codes[g * SPLIT + c].index(stage), CACHE, O, KIND, HANDED, BLOCK_K,
                             CHUNK)  # fmt: skip
            sums = acc[g * SPLIT + c] * kept
            for j in gl.static_range(PASSES):
                sums = product(columns, operands[j], sums, SWAPPED)
            new_acc += (sums,)
    if ROPE_IN_V:
        if HANDED:
            operand = as_operand(handed[GROUPS * PASSES], OTHER, O, 2)
        else:
            operand = p.to(gl.bfloat16)
        columns = as_operand(rotary.index(stage).permute((1, 0)), CACHE, O, 2)
        acc_r = product(columns, operand, acc_r * alpha_o, SWAPPED)
    return new_acc, new_units, acc_r


@gluon.jit
def allocate_handed(
    GROUPS: gl.constexpr, ROPE_IN_V: gl.constexpr, BLOCK_K: gl.constexpr, KIND: gl.constexpr,
    PASSES: gl.constexpr, HANDED: gl.constexpr, HEADS: gl.constexpr,
):  # fmt: skip
    """Shared memory [HEADS, BLOCK_K] for each weight that is handed over; none: an empty tuple."""
    T: gl.constexpr = operand_type(KIND)
    L: gl.constexpr = in_shared(BLOCK_K, T.primitive_bitwidth // 8)
    handed = ()
    if HANDED:
        for _ in gl.static_range(GROUPS * PASSES):
            handed += (gl.allocate_shared_memory(T, [HEADS, BLOCK_K], L),)
        if ROPE_IN_V:
            last = gl.allocate_shared_memory(gl.bfloat16, [HEADS, BLOCK_K], in_shared(BLOCK_K, 2))
            handed += (last,)
    return handed


@gluon.jit
def finish(m, l, attn_sink, head, H, HAS_SINK: gl.constexpr):
    """(factor of the sums of values, base-2 lse) of the softmax state; no valid lane: 0, -inf."""
    none = l == 0.0
    safe = gl.where(none, 1.0, l)
    lse = gl.where(none, 0.0, m + gl.log2(safe))
    factor = gl.where(none, 0.0, 1.0 / safe)
    if HAS_SINK:
        sink = gl.load(attn_sink + head, mask=head < H, other=0.0)
        factor = factor / (1.0 + gl.exp2(sink * LOG2_E - lse))
    return factor, gl.where(none, -float("inf"), lse)
