"""Tiles of cache rows in shared memory, as their bytes, in Gluon: how they are copied and read.

A tile is chunks of columns, scales, rotary values and lanes, each twice or more: the next tiles are
copied beside the work on this one. A chunk has memory of its own, since the compiler makes copies
to one and the same memory wait for each other.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from ..._gluon import cp_async

STAGES = gl.constexpr(2)


@gluon.constexpr_function
def by_rows(vector, warps):
    """Layout of a copy: four threads move `vector` values each of a row, eight rows a warp."""
    return gl.BlockedLayout([1, vector], [8, 4], [warps, 1], [1, 0])


@gluon.constexpr_function
def in_shared(width, element_bytes):
    """Layout of rows of `width` values: eight rows' pieces of 16 bytes lie in different banks."""
    row, vector = width * element_bytes, 16 // element_bytes
    return gl.SwizzledSharedLayout(vector, max(1, 128 // row), min(8, row // 16), [1, 0])


@gluon.jit
def allocate(
    CHUNKS: gl.constexpr, CHUNK: gl.constexpr, GROUPS: gl.constexpr, ROPE: gl.constexpr,
    FOOTER_BYTES: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Shared memory of STAGES tiles: (codes by chunks, scales, rotary values, lanes)."""
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    codes = ()
    for _ in gl.static_range(CHUNKS):
        chunk = gl.allocate_shared_memory(gl.uint8, [STAGES, BLOCK_K, CHUNK], in_shared(CHUNK, 1))
        codes += (chunk,)
    if FOOTER_BYTES:
        scales = gl.allocate_shared_memory(gl.uint8, [STAGES, BLOCK_K, FOOTER_BYTES], PLAIN)
    else:
        scales = gl.allocate_shared_memory(gl.float32, [STAGES, GROUPS, BLOCK_K], PLAIN)
    rotary = scales
    if ROPE:
        rotary = gl.allocate_shared_memory(gl.bfloat16, [STAGES, BLOCK_K, ROPE], in_shared(ROPE, 2))
    lanes = gl.allocate_shared_memory(gl.int32, [STAGES, BLOCK_K],
                                      gl.SwizzledSharedLayout(1, 1, 1, [0]))  # fmt: skip
    return codes, scales, rotary, lanes


@gluon.jit
def read_lanes(lanes, start, end, BLOCK_K: gl.constexpr):
    """Tokens of the tile at lane `start` as the threads that copy want them, -1 behind `end`.

    Read a tile ahead of the copy that needs them, which would have to wait for them otherwise.
    """
    k = start + gl.arange(0, BLOCK_K, layout=gl.SliceLayout(1, by_rows(16, gl.num_warps())))
    return gl.load(lanes + k, mask=k < end, other=-1)


@gluon.jit
def copy_columns(to, source, read, VECTOR: gl.constexpr, WIDTH: gl.constexpr):
    """Start to copy WIDTH values from `source` on, a row each; zeros where not `read`."""
    L: gl.constexpr = by_rows(VECTOR, gl.num_warps())
    column = gl.arange(0, WIDTH, layout=gl.SliceLayout(0, L))
    source = gl.convert_layout(source, gl.SliceLayout(1, L), assert_trivial=True)
    read = gl.convert_layout(read, gl.SliceLayout(1, L), assert_trivial=True)
    cp_async(to, source[:, None] + column[None, :], mask=read[:, None])


@gluon.jit
def copy_lanes(listed, lanes, start, end, BLOCK_K: gl.constexpr):
    """Start to copy the lanes from `start` to `end`; behind it 0 is written."""
    k = start + gl.arange(0, BLOCK_K, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    cp_async(listed, lanes + k, mask=k < end)


@gluon.jit
def places(token, tokens, cache, page_units, UNIT: gl.constexpr, PAGE_SIZE: gl.constexpr):
    """(where the page of each token begins, its place there, which of `token` are tokens)."""
    read = (token >= 0) & (token < tokens)
    token = gl.where(read, token, 0)
    page = cache + (token // PAGE_SIZE).to(gl.int64) * page_units * UNIT
    return page, (token % PAGE_SIZE).to(gl.int64), read


@gluon.jit
def start_copy(
    tiles, stage, cache, lanes, token, start, end, tokens, page_units, row_stride,
    UNIT: gl.constexpr, PAGE_SIZE: gl.constexpr, CHUNKS: gl.constexpr, CHUNK: gl.constexpr,
    GROUPS: gl.constexpr, ROPE: gl.constexpr, FOOTER_BYTES: gl.constexpr, BLOCK_K: gl.constexpr,
):  # fmt: skip
    """Start to copy the rows of `token` [BLOCK_K]; a lane that does not count is zeros, no row.

    Pages are `page_units` times UNIT bytes apart: the compiler knows how much it may copy at once.
    """
    NOPE: gl.constexpr = CHUNKS * CHUNK
    codes, scales, rotary, listed = tiles
    page, place, read = places(token, tokens, cache, page_units, UNIT, PAGE_SIZE)
    row = page + place * row_stride
    for c in gl.static_range(CHUNKS):
        copy_columns(codes[c].index(stage), row + c * CHUNK, read, 16, CHUNK)
    if FOOTER_BYTES:
        footer = page + PAGE_SIZE * row_stride.to(gl.int64)
        copy_columns(scales.index(stage), footer + place * FOOTER_BYTES, read, 8, FOOTER_BYTES)
    else:
        by_token = scales.index(stage).permute((1, 0))
        copy_columns(by_token, (row + NOPE).to(gl.pointer_type(gl.float32)), read, 1, GROUPS)
    if ROPE:
        BEHIND: gl.constexpr = NOPE if FOOTER_BYTES else NOPE + 4 * GROUPS
        behind = (row + BEHIND).to(gl.pointer_type(gl.bfloat16))
        copy_columns(rotary.index(stage), behind, read, 8, ROPE)
    copy_lanes(listed.index(stage), lanes, start, end, BLOCK_K)
    async_copy.commit_group()


@gluon.jit
def counting(lanes, start, end, tokens, BLOCK_K: gl.constexpr, L: gl.constexpr):
    """Which rows of a tile count [BLOCK_K], in layout L."""
    lane = lanes.load(L)  # behind the end it is 0, a row's number
    k = start + gl.arange(0, BLOCK_K, layout=L)
    return (lane >= 0) & (lane < tokens) & (k < end)


@gluon.jit
def decoded(found, FOOTER_BYTES: gl.constexpr):
    """Stored scales as float32. Byte b of UE8M0 is 2**(b - 127), also the subnormal; 255 is NaN."""
    if FOOTER_BYTES:
        byte = found.to(gl.int32)
        bits = gl.maximum(byte << 23, 1 << 22)
        found = gl.where(byte == 255, 0x7FC00000, bits).to(gl.float32, bitcast=True)
    return found


@gluon.jit
def scales_of(
    scales, g: gl.constexpr, DOWN: gl.constexpr, FOOTER_BYTES: gl.constexpr, L: gl.constexpr
):  # fmt: skip
    """Scales of group `g` of a tile's rows, float32 in layout L: DOWN [BLOCK_K, 1], or across."""
    if FOOTER_BYTES:
        found = scales.slice(g, 1, dim=1)  # [BLOCK_K, 1]
        if not DOWN:
            found = found.permute((1, 0))
    else:
        found = scales.slice(g, 1, dim=0)  # [1, BLOCK_K]
        if DOWN:
            found = found.permute((1, 0))
    return decoded(found.load(L), FOOTER_BYTES)
