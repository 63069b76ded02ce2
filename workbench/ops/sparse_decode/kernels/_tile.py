"""What the warp groups of `split_k_registers` share: a tile's sizes, and the memory between them.

A tile is 64 cache rows of 656 bytes. Its codes are read twice, by a group that weighs its rows and
by those that add up its values; scales and rotary values only by the first, which gives back their
places sooner.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from ...fp8_prefill.kernels._ring import in_shared

TILE = gl.constexpr(64)  # cache rows
GROUPS = gl.constexpr(4)
GROUP = gl.constexpr(128)  # columns that share a scale
WIDTH = gl.constexpr(512)  # codes of a row
ROPE = gl.constexpr(64)
WARPS = gl.constexpr(4)  # of a warp group
WEIGHERS = gl.constexpr(2)  # groups that weigh; each has one tile's weights in memory
COPIERS = gl.constexpr(128)  # threads
BESIDE = gl.constexpr(4)  # tiles whose scales and rotary values are in memory
FOUND = gl.constexpr(4)  # tiles whose rows are found at once
# tiles of whose rows it is known where they begin: FOUND are written while BESIDE are in use
STARTS = gl.constexpr(8)
ENDED, WHOLE = gl.constexpr(0), gl.constexpr(1)  # places of `done`
RAISES = gl.constexpr(2)  # tiles whose count is kept: a slow warp may read the last one's
LARGEST = gl.constexpr(16.0)  # factor of a code in f16, where its scale is the unit of the sums


@gluon.jit
def prepare(HEADS: gl.constexpr, DEPTH: gl.constexpr, ADDERS: gl.constexpr):
    """Shared memory, with DEPTH tiles of codes: (tiles, queries, what is handed to those who add,
    what those who weigh share, what their warps tell each other, barriers)."""
    F: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    PLAIN: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    K: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    P: gl.constexpr = gl.NVMMASharedLayout(HEADS * 2, element_bitwidth=16, rank=2)
    tiles = (
        gl.allocate_shared_memory(gl.uint8, [DEPTH, TILE, WIDTH], in_shared(WIDTH, 1)),
        gl.allocate_shared_memory(gl.float32, [BESIDE, TILE, GROUPS], PLAIN),
        gl.allocate_shared_memory(gl.bfloat16, [BESIDE, TILE, ROPE], in_shared(ROPE, 2)),
        gl.allocate_shared_memory(gl.int32, [STARTS, TILE], F),  # -1: no row
    )
    codes = ()
    for _ in gl.static_range(GROUPS):
        codes += (gl.allocate_shared_memory(gl.float16, [1, HEADS, GROUP], K),)
    queries = (
        codes,
        gl.allocate_shared_memory(gl.float32, [HEADS], F),
        gl.allocate_shared_memory(gl.bfloat16, [1, HEADS, ROPE], K),
    )
    handed = (
        gl.allocate_shared_memory(gl.float16, [WEIGHERS, TILE, HEADS], P),  # weights
        gl.allocate_shared_memory(gl.float16, [WEIGHERS, GROUPS, TILE], PLAIN),  # factors of codes
        gl.allocate_shared_memory(gl.float32, [WEIGHERS, HEADS], F),  # of the sums, by head
        gl.allocate_shared_memory(gl.float32, [WEIGHERS, GROUPS], F),  # and by group
        gl.allocate_shared_memory(gl.int32, [WEIGHERS, 1], F),  # whether those are not all 1
    )
    reference = (
        gl.allocate_shared_memory(gl.float32, [HEADS], F),  # maxima that weights are relative to
        gl.allocate_shared_memory(gl.float32, [GROUPS], F),  # LARGEST / unit of the sums
        gl.allocate_shared_memory(gl.int32, [RAISES, 1], F),  # how often raised, by tile
        gl.allocate_shared_memory(gl.float32, [HEADS], F),  # maxima of the group that ends first
        gl.allocate_shared_memory(gl.float32, [HEADS], F),  # and its sums of weights
    )
    between = (
        gl.allocate_shared_memory(gl.int32, [WEIGHERS, WARPS], F),  # votes
        gl.allocate_shared_memory(gl.float32, [WEIGHERS, WARPS, HEADS], PLAIN),  # maxima
        gl.allocate_shared_memory(gl.float32, [WEIGHERS, WARPS, GROUPS], PLAIN),  # largest scales
    )
    # each is waited for by whoever needs what it says; who arrives:
    full = _barriers(DEPTH, COPIERS + 1)  # the feeder: a tile is there
    empty = _barriers(DEPTH, ADDERS)  # adders: its codes are read no more
    spare = _barriers(BESIDE, 1)  # its weigher: nor are its scales and rotary values
    ready = _barriers(WEIGHERS, 1)  # its weigher: weights and factors are there
    taken = _barriers(WEIGHERS, ADDERS)  # adders: these are read no more
    turn = _barriers(WEIGHERS, 1)  # the other weigher: the tile before has been handed over
    loaded = _barriers(1, WEIGHERS)  # weighers: queries are in memory
    done = _barriers(2, 1)  # one has ended; the other one: factors of the whole sums are there
    fence_async_shared()
    barriers = (full, empty, spare, ready, taken, turn, loaded, done)
    return tiles, queries, handed, reference, between, barriers


@gluon.jit
def number_in(memory):
    """The one number of memory [1], in all threads."""
    return gl.max(memory.load(gl.BlockedLayout([1], [32], [4], [0])), 0)


@gluon.jit
def _barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    made = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(made.index(i), count=ARRIVALS)
    return made
