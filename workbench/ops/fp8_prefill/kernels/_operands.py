"""Operands of a warp's `mma` in Gluon: codes as numbers, values without a byte moved, queries.

An operand's memory is given as rows of the inner dimension; operand 1 wants it the other way round.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

from ..._gluon import reinterpret
from ._ring import by_rows, in_shared, scales_of

BF16, F16, FP8 = (gl.constexpr(kind) for kind in range(3))  # what the tensor core multiplies
LARGEST = gl.constexpr(256.0)  # weight beside a row of the largest scale, in f16 and e4m3
LEAST = gl.constexpr(2.0**-100)  # of that scale: a tile without a row has none


@gluon.constexpr_function
def operand_type(kind):
    return (gl.bfloat16, gl.float16, gl.float8e4nv)[kind]


@gluon.jit
def product(rows, others, sums, SWAPPED: gl.constexpr):
    """`sums` and a product with an operand of cache rows: the first one where SWAPPED."""
    if SWAPPED:
        sums = mma_v2(rows, others, sums)
    else:
        sums = mma_v2(others, rows, sums)
    return sums


@gluon.jit
def as_operand(shared, INDEX: gl.constexpr, L: gl.constexpr, K_WIDTH: gl.constexpr):
    """Memory [rows, inner] as operand INDEX of products in layout L."""
    if INDEX == 1:
        shared = shared.permute((1, 0))
    return shared.load(gl.DotOperandLayout(INDEX, L, K_WIDTH))


@gluon.jit
def _widened(found, KIND: gl.constexpr):
    if KIND == BF16:
        found = found.to(gl.float32).to(gl.bfloat16)  # straight from f16 is a slow instruction
    return found


@gluon.jit
def as_bf16_reads(found, DIM: gl.constexpr):
    """Inner positions, along DIM, renamed: 4t + 2a + b of 16, bytes of one thread, to 8a + 2t + b.

    Products sum over the inner positions in any order. These are a thread's where numbers have 16
    bits: bytes that were widened stay where they are, and queries are stored in that order.
    """
    A: gl.constexpr = found.shape[0]
    B: gl.constexpr = found.shape[1]
    if DIM == 0:
        found = found.reshape((A // 16, 4, 2, 2, B)).permute((0, 2, 1, 3, 4))
    else:
        found = found.reshape((A, B // 16, 4, 2, 2)).permute((0, 1, 3, 2, 4))
    return found.reshape((A, B))


@gluon.jit
def keys(codes, INDEX: gl.constexpr, L: gl.constexpr, KIND: gl.constexpr):
    """A chunk [BLOCK_K, CHUNK] of codes as operand INDEX: each code is an f16 and a bf16 number."""
    found = as_operand(codes, INDEX, L, 4).to(gl.float8e4nv, bitcast=True)
    if KIND != FP8:
        found = _widened(found.to(gl.float16), KIND)
    if KIND != FP8 and INDEX == 1:
        found = as_bf16_reads(found, 0)
        found = gl.convert_layout(found, gl.DotOperandLayout(INDEX, L, 2), assert_trivial=True)
    return found


@gluon.constexpr_function
def as_values(rows, width, handed):
    """Bytes of `in_shared(width, 1)` as the values of a product in fp8: rows or columns renamed.

    A thread has the weights of rows 2t, 2t + 1, 2t + 8, 2t + 9 of 16 as scores have them, and in
    fp8 wants four that follow each other. Sums over rows may take them in any order: row
    8a + 2t + b of 16 is called 4t + 2a + b here, and no weight has to change threads for it.
    Where weights are `handed` over they are in order, but a warp has two times eight columns, far
    apart, and a transposing load wants sixteen: column 16w + 8j + c is called width / 2 j + 8w + c.
    """
    swizzle = in_shared(width, 1)
    columns = [1 << i for i in range(width.bit_length() - 1)]
    if handed:
        columns = [1, 2, 4, width // 2, *columns[3:-1]]
    bases = [[0, column] for column in columns]
    for i in range(rows.bit_length() - 1):
        row, name = 1 << i, (1 << i if handed else {1: 1, 2: 4, 4: 8, 8: 2}.get(1 << i, 1 << i))
        piece = row // swizzle.per_phase % swizzle.max_phase * swizzle.vec
        bases.append([name, sum(c for b, c in enumerate(columns) if piece >> b & 1)])
    return gl.SharedLinearLayout(bases)


@gluon.jit
def in_fp8_order(weights, INDEX: gl.constexpr, P: gl.constexpr):
    """Weights in e4m3 as operand INDEX in layout P: rows renamed, none moved."""
    A: gl.constexpr = weights.shape[0]
    B: gl.constexpr = weights.shape[1]
    if INDEX == 1:
        weights = weights.reshape((A // 16, 2, 4, 2, B)).permute((0, 2, 1, 3, 4))
    else:
        weights = weights.reshape((A, B // 16, 2, 4, 2)).permute((0, 1, 3, 2, 4))
    return gl.convert_layout(weights.reshape((A, B)), P, assert_trivial=True)


TAKE_APART = gl.constexpr("""{
    .reg .b32 even, odd;
    .reg .b16 two, none;
    prmt.b32 even, $2, 0, 0x4420;
    prmt.b32 odd, $2, 0, 0x4431;
    mov.b32 {two, none}, even;
    cvt.rn.f16x2.e4m3x2 $0, two;
    mov.b32 {two, none}, odd;
    cvt.rn.f16x2.e4m3x2 $1, two;
}""")


@gluon.jit
def values(
    codes, INDEX: gl.constexpr, L: gl.constexpr, KIND: gl.constexpr, HANDED: gl.constexpr,
    BLOCK_K: gl.constexpr, CHUNK: gl.constexpr,
):  # fmt: skip
    """A chunk [BLOCK_K, CHUNK] of codes, rows inner, as operand INDEX; `in_order` names columns.

    A transposing load moves 16 bits at a time, two columns of a row. Taken apart in registers they
    are the even columns, then the odd ones, and no byte had to be loaded alone.
    """
    if KIND == FP8:
        V: gl.constexpr = as_values(BLOCK_K, CHUNK, HANDED)
        found = reinterpret(codes, gl.uint8, [BLOCK_K, CHUNK], V).permute((1, 0))
        found = as_operand(found, INDEX, L, 4).to(gl.float8e4nv, bitcast=True)
    else:
        pairs = reinterpret(codes, gl.int16, [BLOCK_K, CHUNK // 2], in_shared(CHUNK // 2, 2))
        even, odd = gl.inline_asm_elementwise(
            TAKE_APART, "=r,=r,r", [as_operand(pairs.permute((1, 0)), INDEX, L, 2)],
            dtype=(gl.float16, gl.float16), is_pure=True, pack=2,
        )  # fmt: skip
        found = gl.join(_widened(even, KIND), _widened(odd, KIND))
        if INDEX == 0:
            found = found.permute((2, 0, 1)).reshape((CHUNK, BLOCK_K))
        else:
            found = found.permute((0, 2, 1)).reshape((BLOCK_K, CHUNK))
        found = gl.convert_layout(found, gl.DotOperandLayout(INDEX, L, 2), assert_trivial=True)
    return found


@gluon.jit
def in_order(
    sums, KIND: gl.constexpr, HANDED: gl.constexpr, HEADS: gl.constexpr, CHUNK: gl.constexpr
):
    """Sums [HEADS, CHUNK] of `values`, their columns in the order of the cache's."""
    if KIND != FP8:
        sums = sums.reshape((HEADS, 2, CHUNK // 2)).permute((0, 2, 1))
    elif HANDED:
        sums = sums.reshape((HEADS, 2, CHUNK // 16, 8)).permute((0, 2, 1, 3))
    return sums.reshape((HEADS, CHUNK))


@gluon.jit
def rounded(exact, KIND: gl.constexpr, PASSES: gl.constexpr):
    """Weights as what is multiplied, and with two PASSES what that rounded away as well."""
    T: gl.constexpr = operand_type(KIND)
    parts = (exact.to(T),)
    if PASSES == 2:
        high = exact.to(T).to(gl.float32)
        if KIND == BF16:  # cut off, not rounded: one instruction on bits
            high = (exact.to(gl.int32, bitcast=True) & -65536).to(gl.float32, bitcast=True)
        parts = (high.to(T), (exact - high).to(T))
    return parts


@gluon.jit
def largest_scale(scales, g: gl.constexpr, FOOTER_BYTES: gl.constexpr):
    """The largest scale of group `g` of a tile's rows: each warp reads them all, none waits."""
    L: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, gl.num_warps()], [1, 0])
    found = scales_of(scales, g, True, FOOTER_BYTES, L)
    return gl.max(gl.max(found, 0), 0)


@gluon.jit
def _power_of_two(largest):
    """The least power of two, 2**-13 or more, times which 448 is not below `largest`.

    448 is 1.75 * 2**8: a fraction above 1.75 carries into the exponent. As `layouts.scales` has it.
    """
    bits = largest.to(gl.int32, bitcast=True)
    return (gl.maximum(((bits + 0x1FFFFF) >> 23) - 8, 114) << 23).to(gl.float32, bitcast=True)


@gluon.jit
def load_query(
    q, left, SWAPPED: gl.constexpr, KIND: gl.constexpr, CHUNKS: gl.constexpr,
    CHUNK: gl.constexpr, GROUPS: gl.constexpr, ROPE: gl.constexpr, HEADS: gl.constexpr,
    L: gl.constexpr,
):  # fmt: skip
    """The first `left` query rows at `q`: (codes by chunks, scales by groups [HEADS], rotary part).

    They lie in shared memory, except for codes in fp8 as the second operand: a warp's eight heads
    fit into its registers. bf16 keeps them as they are; otherwise a group of a head is in units of
    a power of two, as a quantiser of caches takes it.
    """
    R: gl.constexpr = by_rows(8, gl.num_warps())
    T: gl.constexpr = operand_type(KIND)
    Q: gl.constexpr = in_shared(CHUNK, T.primitive_bitwidth // 8)
    SPLIT: gl.constexpr = CHUNKS // GROUPS
    D: gl.constexpr = CHUNKS * CHUNK + ROPE
    r = gl.arange(0, HEADS, layout=gl.SliceLayout(1, R))
    read = r < left
    row = q + r[:, None] * D + gl.arange(0, CHUNK, layout=gl.SliceLayout(0, R))[None, :]
    codes = ()
    # powers of two: where queries take their place beside them, in half of it
    HALF: gl.constexpr = gl.float32 if SWAPPED else gl.bfloat16
    scales = gl.allocate_shared_memory(HALF, [GROUPS, HEADS],
                                       gl.SwizzledSharedLayout(1, 1, 1, [0]))  # fmt: skip
    for g in gl.static_range(GROUPS):
        held = ()
        for c in gl.static_range(SPLIT):
            held += (gl.load(row + (g * SPLIT + c) * CHUNK, mask=read[:, None], other=0.0),)
        if KIND != BF16:
            largest = gl.max(gl.abs(held[0].to(gl.float32)), 1)
            for c in gl.static_range(1, SPLIT):
                largest = gl.maximum(largest, gl.max(gl.abs(held[c].to(gl.float32)), 1))
            scale = _power_of_two(largest)
            scales.index(g).store(scale.to(HALF))
        for c in gl.static_range(SPLIT):
            part = held[c]
            if KIND != BF16:
                part = (part.to(gl.float32) / scale[:, None]).to(T)
            if KIND != FP8 and not SWAPPED:
                part = as_bf16_reads(part, 1)
            if KIND == FP8 and SWAPPED:
                part = gl.convert_layout(part.trans(), gl.DotOperandLayout(1, L, 4))
                codes += (part,)
            else:
                codes += (gl.allocate_shared_memory(T, [HEADS, CHUNK], Q, part),)
    rotary = codes
    if ROPE:
        column = gl.arange(0, ROPE, layout=gl.SliceLayout(0, R))
        row = q + r[:, None] * D + CHUNKS * CHUNK + column[None, :]
        part = gl.load(row, mask=read[:, None], other=0.0)
        rotary = gl.allocate_shared_memory(gl.bfloat16, [HEADS, ROPE], in_shared(ROPE, 2), part)
    return codes, scales, rotary
