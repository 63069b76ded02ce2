"""A producer for Hopper's kernels: it reads rows of bytes, and writes tiles of bf16.

A warp group loads the codes of a piece while it converts the piece before: 64 rows of 256 columns
are 128 bytes a thread. Codes travel as words of four, since registers hold no bytes. A code times a
power of two is a bf16 number; times any other scale it is rounded to one, as a pass over the pool
would round it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from ..._gluon import cp_async, cta_barrier, reinterpret

TILE = gl.constexpr(64)  # cache rows
HALF = gl.constexpr(256)  # columns of a piece
WIDTH = gl.constexpr(512)  # codes of a row
ROPE = gl.constexpr(64)
GROUP = gl.constexpr(128)  # codes that share a scale


@gluon.jit
def _start(token, read, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE: gl.constexpr):
    """Bytes from the cache's first to the rows of int32 `token`, as int64; 0 where not `read`."""
    token = gl.where(read, token, 0)
    page = (token // PAGE_SIZE).to(gl.int64) * PAGE_STRIDE
    return page + (token % PAGE_SIZE).to(gl.int64) * ROW_STRIDE


@gluon.jit
def _codes(cache, row, read, group, L: gl.constexpr):
    """(words [64, 8, 4] of the codes of a group of 128, their float32 scales [64])."""
    BY_CHUNK: gl.constexpr = gl.SliceLayout(2, L)
    chunk = gl.arange(0, GROUP // 16, layout=gl.SliceLayout(0, BY_CHUNK))[None, :]
    word = gl.arange(0, 4, layout=gl.SliceLayout(0, gl.SliceLayout(1, L)))[None, None, :]
    at = ((cache + row)[:, None] + (GROUP * group + 16 * chunk)).to(gl.pointer_type(gl.int32))
    codes = gl.load(at.expand_dims(2) + word, mask=read[:, None, None], other=0)
    at = (cache + row + (WIDTH + 4 * group)).to(gl.pointer_type(gl.float32))
    return codes, gl.load(at, mask=read, other=0.0)


def _in_step(registers: str, first: str, *steps: str) -> str:
    """PTX for four words of codes: each step for all eight halves, so that none waits for itself.

    Of a half, {i} is the number, {w} the word, {h} its register of 16 bits where they are split,
    {pick} what spreads its bytes, {o} the result.
    """
    lines = [f".reg {kind} {', '.join(f'{name}{i}' for name in names for i in range(8))};"
             for kind, names in (each.split() for each in registers.split(","))]  # fmt: skip
    lines.append(first)
    for step in steps:
        for i in range(8):
            word, high = divmod(i, 2)
            names = {"w": f"${8 + word}", "o": f"${4 * high + word}", "h": f"{'pq'[high]}{i}"}
            lines.append(step.format(i=i, pick=("0x1404", "0x3424")[high], **names))
    return "{\n" + "\n".join(lines) + "\n}"


# A code's seven bits, four places further right, are those of a bf16 number 2**120 times smaller,
# subnormal ones too; two products put that right. A code that is no number becomes 480.
_BY_BITS = gl.constexpr(_in_step(
    ".b32 tx", ".reg .b32 s, big; mov.b32 big, 0x7b807b80; cvt.rn.bf16x2.f32 s, $12, $12;",
    "prmt.b32 t{i}, {w}, 0, {pick};", "shr.b32 x{i}, t{i}, 4;", "and.b32 x{i}, x{i}, 0x07f007f0;",
    "lop3.b32 t{i}, t{i}, 0x80008000, x{i}, 0xea;", "mul.rn.bf16x2 t{i}, t{i}, big;",
    "mul.rn.bf16x2 {o}, t{i}, s;",
))  # fmt: skip
_BY_FLOATS = gl.constexpr(_in_step(
    ".b32 t,.b16 pq,.f32 ab", "",
    "mov.b32 {{p{i}, q{i}}}, {w};", "cvt.rn.f16x2.e4m3x2 t{i}, {h};",
    "mov.b32 {{p{i}, q{i}}}, t{i};", "cvt.f32.f16 a{i}, p{i};", "cvt.f32.f16 b{i}, q{i};",
    "mul.f32 a{i}, a{i}, $12;", "mul.f32 b{i}, b{i}, $12;", "cvt.rn.bf16x2.f32 {o}, b{i}, a{i};",
))  # fmt: skip


@gluon.jit
def _widened(codes, scales, EXACT: gl.constexpr):
    """Words [64, 64] of two bf16 each: code times scale, rounded to nearest even.

    EXACT: scales are powers of two.
    """
    scales = gl.broadcast(scales[:, None, None], codes)[0]
    CODE: gl.constexpr = _BY_BITS if EXACT else _BY_FLOATS
    low, high = gl.inline_asm_elementwise(
        CODE, "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r,r,r,r,f,f,f,f", [codes, scales],
        dtype=(gl.int32, gl.int32), is_pure=False, pack=4,
    )  # fmt: skip
    return gl.join(low, high).reshape([TILE, GROUP // 2])


@gluon.jit
def _write(piece, codes_a, scales_a, codes_b, scales_b, EXACT: gl.constexpr):
    """A piece of 256 columns: two groups."""
    W: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=2)
    words = reinterpret(piece, gl.int32, [TILE, HALF // 2], W)
    words.slice(0, GROUP // 2, 1).store(_widened(codes_a, scales_a, EXACT))
    words.slice(GROUP // 2, GROUP // 2, 1).store(_widened(codes_b, scales_b, EXACT))


@gluon.jit
def _full(barrier):
    """What this warp group wrote into a piece is there for whoever waits for the barrier.

    Readers fence it for their matrix products. A fence here would first wait for all loads that are
    under way, those of the pieces to come.
    """
    cta_barrier()
    mbarrier.arrive(barrier, count=1)


@gluon.jit
def dequantised(
    source, rows, owners, barriers, left, right, rope, lanes, ROWS, count, pairs,
    UNION: gl.constexpr, FORM: gl.constexpr,
):  # fmt: skip
    """A producer of `_turns` that writes; `source` is (cache, page stride, row stride) in bytes.

    FORM is (tokens of a page, whether all scales are powers of two).
    """
    PAGE_SIZE: gl.constexpr = FORM[0]
    EXACT: gl.constexpr = FORM[1]
    cache, PAGE_STRIDE, ROW_STRIDE = source
    full_early, full_late, empty_early, empty_late = barriers
    # four threads of a row, eight rows: stores of a swizzled tile then meet in no bank
    L: gl.constexpr = gl.BlockedLayout([1, 1, 4], [8, 4, 1], [4, 1, 1], [2, 1, 0])
    R: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    BY_ROW_R: gl.constexpr = gl.SliceLayout(1, R)
    turned = gl.arange(0, ROPE, layout=gl.SliceLayout(0, R))[None, :]
    BY_ROW: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, L))
    k = gl.arange(0, TILE, layout=BY_ROW)
    lane = gl.arange(0, TILE, layout=gl.BlockedLayout([1], [32], [4], [0]))
    token = gl.load(rows + k, mask=k < count, other=-1)
    read = (token >= 0) & (token < ROWS)
    row = _start(token, read, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE)
    a, a_scales = _codes(cache, row, read, 0, L)
    b, b_scales = _codes(cache, row, read, 1, L)
    for pair in range(pairs):
        for c in gl.static_range(2):
            start = (2 * pair + c) * TILE
            early, late = (left, right) if c == 0 else (right, left)
            d, d_scales = _codes(cache, row, read, 2 * (1 - c), L)
            e, e_scales = _codes(cache, row, read, 2 * (1 - c) + 1, L)
            ahead = start + TILE + k
            token = gl.load(rows + ahead, mask=ahead < count, other=-1)
            mbarrier.wait(empty_early.index(c), (pair & 1) ^ 1)
            cp_async(lanes.index(c), rows + start + lane, mask=start + lane < count)
            async_copy.mbarrier_arrive(full_early.index(c), increment_count=False)
            _write(early.index(c), a, a_scales, b, b_scales, EXACT)
            _full(full_early.index(c))
            now, seen = gl.convert_layout(row, BY_ROW_R), gl.convert_layout(read, BY_ROW_R)
            read = (token >= 0) & (token < ROWS)
            row = _start(token, read, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE)
            # the next tile begins with the other half
            a, a_scales = _codes(cache, row, read, 2 * (1 - c), L)
            b, b_scales = _codes(cache, row, read, 2 * (1 - c) + 1, L)
            mbarrier.wait(empty_late.index(c), (pair & 1) ^ 1)
            rotary = (cache + now[:, None] + (WIDTH + 16)).to(gl.pointer_type(gl.bfloat16))
            cp_async(rope.index(c), rotary + turned, mask=seen[:, None])
            async_copy.mbarrier_arrive(full_late.index(c), increment_count=False)
            _write(late.index(c), d, d_scales, e, e_scales, EXACT)
            _full(full_late.index(c))
    async_copy.wait_group(0)


@gluon.jit
def half_dequantised(
    source, rows, full, empty, tiles, beside, ROWS, count, pairs, FORM: gl.constexpr,
    RIGHT: gl.constexpr,
):  # fmt: skip
    """A producer of one half of the columns of all tiles, where two warp groups share the work.

    The left one copies lanes, the right one rotary values, into `beside`. Codes are under way for
    two tiles; `source` and FORM are as in `dequantised`.
    """
    PAGE_SIZE: gl.constexpr = FORM[0]
    EXACT: gl.constexpr = FORM[1]
    cache, PAGE_STRIDE, ROW_STRIDE = source
    L: gl.constexpr = gl.BlockedLayout([1, 1, 4], [8, 4, 1], [4, 1, 1], [2, 1, 0])
    R: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    BY_ROW_R: gl.constexpr = gl.SliceLayout(1, R)
    turned = gl.arange(0, ROPE, layout=gl.SliceLayout(0, R))[None, :]
    k = gl.arange(0, TILE, layout=gl.SliceLayout(1, gl.SliceLayout(2, L)))
    lane = gl.arange(0, TILE, layout=gl.BlockedLayout([1], [32], [4], [0]))
    GROUP_0: gl.constexpr = 2 if RIGHT else 0
    token_0 = gl.load(rows + k, mask=k < count, other=-1)
    token_1 = gl.load(rows + TILE + k, mask=TILE + k < count, other=-1)
    read_0 = (token_0 >= 0) & (token_0 < ROWS)
    row_0 = _start(token_0, read_0, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE)
    a_0, a_scales_0 = _codes(cache, row_0, read_0, GROUP_0, L)
    b_0, b_scales_0 = _codes(cache, row_0, read_0, GROUP_0 + 1, L)
    read_1 = (token_1 >= 0) & (token_1 < ROWS)
    row_1 = _start(token_1, read_1, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE)
    a_1, a_scales_1 = _codes(cache, row_1, read_1, GROUP_0, L)
    b_1, b_scales_1 = _codes(cache, row_1, read_1, GROUP_0 + 1, L)
    for pair in range(pairs):
        for c in gl.static_range(2):
            start = (2 * pair + c) * TILE
            ahead = start + 2 * TILE + k
            token = gl.load(rows + ahead, mask=ahead < count, other=-1)
            row, read = (row_0, read_0) if c == 0 else (row_1, read_1)
            mbarrier.wait(empty.index(c), (pair & 1) ^ 1)
            if RIGHT:
                now, seen = gl.convert_layout(row, BY_ROW_R), gl.convert_layout(read, BY_ROW_R)
                rotary = (cache + now[:, None] + (WIDTH + 16)).to(gl.pointer_type(gl.bfloat16))
                cp_async(beside.index(c), rotary + turned, mask=seen[:, None])
            else:
                cp_async(beside.index(c), rows + start + lane, mask=start + lane < count)
            async_copy.mbarrier_arrive(full.index(c), increment_count=False)
            if c == 0:
                _write(tiles.index(c), a_0, a_scales_0, b_0, b_scales_0, EXACT)
            else:
                _write(tiles.index(c), a_1, a_scales_1, b_1, b_scales_1, EXACT)
            _full(full.index(c))
            read = (token >= 0) & (token < ROWS)
            row = _start(token, read, PAGE_STRIDE, ROW_STRIDE, PAGE_SIZE)
            if c == 0:
                read_0, row_0 = read, row
                a_0, a_scales_0 = _codes(cache, row, read, GROUP_0, L)
                b_0, b_scales_0 = _codes(cache, row, read, GROUP_0 + 1, L)
            else:
                read_1, row_1 = read, row
                a_1, a_scales_1 = _codes(cache, row, read, GROUP_0, L)
                b_1, b_scales_1 = _codes(cache, row, read, GROUP_0 + 1, L)
    async_copy.wait_group(0)
