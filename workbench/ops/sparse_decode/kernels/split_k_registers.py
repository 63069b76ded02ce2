"""Split-K decode whose rows are bytes until they are registers of a Hopper matrix product.

`split_k_mma` multiplies with warps' own `mma`, whose chains of products wait for each other. Here a
warp group's `wgmma` takes the same registers, 64 cache rows at a time; heads are its columns.
Groups have trades: one copies rows (`_feed`), two weigh them in turns (`_weigh`), and one or two
add up values (`_add_up`), all at the same time on different tiles.
"""

from dataclasses import dataclass
from typing import NamedTuple

from triton import cdiv
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.extra.cuda import gdc_wait

from ....op import Tile
from ..._gluon import cta_barrier, prefetch
from ..definition import Inputs, Output, sparse_decode
from ._add_up import add_up
from ._feed import feed
from ._hopper import refused, split
from ._launch import parts_bytes
from ._tile import GROUPS, TILE, prepare
from ._weigh import weigh

# lines that are asked for early: of queries 28 heads, of indices 8,192 lanes; bytes of one
LINES, LINE = gl.constexpr(256), gl.constexpr(128)
MOST_BYTES = 2**35  # of a cache: rows are found by 32 bits, in units of 16 bytes


@dataclass(frozen=True)
class Config:
    chunks_per_block: int = 0  # of 64 rows, that a program takes; 0: one program a multiprocessor


class Columns(NamedTuple):
    """Heads of a program, and how its warp groups share the registers of their launch out.

    A launch has as many for each thread, a multiple of eight; the first weigher has what is left.
    """

    heads: int
    depth: int  # tiles of codes that shared memory has room for
    adders: int  # groups that add up values, of some columns each
    weigher_registers: int  # a thread's, as those of the groups below
    adder_registers: int
    feeder_registers: int


FEW, MANY = Columns(16, 5, 2, 120, 96, 48), Columns(32, 4, 1, 136, 192, 48)


@gluon.jit(do_not_specialize=["NEVER", "SPLITS", "TOPK", "SHARE"])
def _split_k_registers_kernel(
    q, cache, indices, topk_length, attn_sink, out, lse,
    scale_log2,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE, LSE_STRIDE, SPLITS, SHARE, NEVER,
    FORM: gl.constexpr, HAS_LENGTH: gl.constexpr, HAS_SINK: gl.constexpr, D: gl.constexpr,
    DC: gl.constexpr, BLOCKS: gl.constexpr, HEADS: gl.constexpr, DEPTH: gl.constexpr,
    ADDERS: gl.constexpr, WEIGHER: gl.constexpr, ADDER: gl.constexpr, FEEDER: gl.constexpr,
):  # fmt: skip
    # the blocks of a token run side by side: they read the same rows
    program = gl.program_id(0) + gl.program_id(1) * gl.num_programs(0)
    t = (program // BLOCKS).to(gl.int64)
    head = program % BLOCKS * HEADS
    part = gl.program_id(2)
    # not by `part_of`: a function cannot return that there is no topk_length
    if HAS_LENGTH:
        topk_length += t
    share = (topk_length, part * SHARE, gl.minimum(TOPK - part * SHARE, SHARE))
    lanes = indices + t * INDICES_STRIDE + part * SHARE
    q += (t * H + head) * D
    out += ((t * H + head) * SPLITS + part) * DC
    lse += t * LSE_STRIDE + head * SPLITS + part
    left = H - head
    # what is above gdc_wait overlaps the end of the kernel before this one
    line = gl.arange(0, LINES, layout=gl.BlockedLayout([1], [32], [gl.num_warps()], [0]))
    prefetch(q + gl.minimum(line * (LINE // 2), gl.minimum(left, HEADS) * D - 1))
    prefetch(lanes + gl.minimum(line * (LINE // 4), share[2] - 1))
    tiles, queries, handed, reference, between, barriers = prepare(HEADS, DEPTH, ADDERS)
    gdc_wait()
    cta_barrier()
    PAGE_SIZE: gl.constexpr = FORM[0]
    EACH: gl.constexpr = GROUPS // ADDERS
    rows = (share, q, queries, tiles, handed, barriers, reference, between, attn_sink, lse,
            scale_log2, SPLITS, left, head, NEVER)  # fmt: skip
    values = (share, tiles[0], handed, barriers, out, SPLITS, left, NEVER)
    copies = (share, cache, lanes, tiles, barriers, TOKENS, PAGE_STRIDE // 16, ROW_STRIDE // 16)
    if ADDERS == 2:
        gl.warp_specialize([
            (weigh, (rows, 0, HEADS, DEPTH)), (weigh, (rows, 1, HEADS, DEPTH)),
            (add_up, (values, 0, EACH, HEADS, DEPTH)), (add_up, (values, EACH, EACH, HEADS, DEPTH)),
            (feed, (copies, PAGE_SIZE, DEPTH)),
        ], [4, 4, 4, 4], [WEIGHER, ADDER, ADDER, FEEDER])  # fmt: skip
    else:
        gl.warp_specialize([
            (weigh, (rows, 0, HEADS, DEPTH)), (weigh, (rows, 1, HEADS, DEPTH)),
            (add_up, (values, 0, EACH, HEADS, DEPTH)), (feed, (copies, PAGE_SIZE, DEPTH)),
        ], [4, 4, 4], [WEIGHER, ADDER, FEEDER])  # fmt: skip


def _columns(heads: int) -> Columns:
    return FEW if heads <= FEW.heads else MANY


def _blocks(heads: int) -> int:
    return cdiv(heads, _columns(heads).heads)


@sparse_decode.variant(
    config=Config(), step_from="split_k_mma", requires=refused,
    tile=lambda w, config: Tile(_columns(w.heads).heads, 1, TILE.value, _blocks(w.heads)),
    interpretable=False, archs=("sm_90",), stack_bytes=32,
    workspace_bytes=lambda w, c: parts_bytes(w, _blocks(w.heads), c.chunks_per_block),
)  # fmt: skip
def split_k_registers(x: Inputs, config: Config) -> Output:
    """Convert rows to registers of `wgmma`: 64 of them a tile, heads its columns.

    Raises ValueError where the cache has more bytes than rows are found in.
    """
    if (size := x.cache.stride(0) * len(x.cache)) >= MOST_BYTES:
        raise ValueError(f"a cache of {size:,} bytes exceeds {MOST_BYTES:,}")
    columns, blocks = _columns(x.q.shape[1]), _blocks(x.q.shape[1])
    return split(
        _split_k_registers_kernel, x, blocks, config.chunks_per_block, 1,
        BLOCKS=blocks, HEADS=columns.heads, DEPTH=columns.depth, ADDERS=columns.adders,
        WEIGHER=columns.weigher_registers, ADDER=columns.adder_registers,
        FEEDER=columns.feeder_registers, launch_pdl=True,
    )  # fmt: skip
