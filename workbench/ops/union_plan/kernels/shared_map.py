"""A map of the cache's rows in shared memory: one bit a token, set by atomic OR, read in order.

No sort, no barrier between tokens, no workspace in global memory. Tokens set their bits in any
order; one pass over the map then lists the rows whose bits are not all zero, ascending. A cache of
more rows than the map holds is taken range by range: the indices are read again for each.
"""

from dataclasses import dataclass

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..._gluon import cta_barrier
from ..definition import Inputs, Output, groups, union_plan

WORDS = 2048  # of the map that are listed at a time
MOST_ROWS = 2**31 - 2**17
MOST_BYTES = 65536  # of the map: three programs on a multiprocessor of Hopper


@dataclass(frozen=True)
class Config:
    num_warps: int = 8


@gluon.jit
def _plus(a, b):
    return a + b


@gluon.jit
def _set_bits(place, bits, wanted):
    """Atomic OR of `bits` into the word at byte `place` of the block's shared memory.

    Gluon has no scatter into shared memory. The map is the kernel's first buffer, so that it
    begins where shared memory does; tests/test_union_plan.py holds the compiler to that.
    """
    gl.inline_asm_elementwise(
        "{ .reg .u32 a; .reg .pred p; setp.ne.u32 p, $3, 0; mov.u32 a, global_smem; "
        "add.u32 a, a, $1; @p red.shared.or.b32 [a], $2; mov.u32 $0, 0; }",
        "=r,r,r,r,~{memory}", [place, bits, wanted.to(gl.int32)],
        dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def _shared_map_kernel(
    indices, topk_length, union_rows, owners, union_length,
    T, ROWS, TOPK, STRIDE,
    HAS_LENGTH: gl.constexpr, G: gl.constexpr, BITS: gl.constexpr, CHUNKS: gl.constexpr,
    WORDS: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    PER: gl.constexpr = 32 // BITS  # rows of a word
    SPAN: gl.constexpr = CHUNKS * WORDS * PER  # rows of the map
    FOUR: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    ONE: gl.constexpr = gl.BlockedLayout([1], [32], [gl.num_warps()], [0])
    TWO: gl.constexpr = gl.BlockedLayout([1, PER], [32, 1], [gl.num_warps(), 1], [1, 0])
    WORD: gl.constexpr = gl.SliceLayout(1, TWO)
    banks: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    g = gl.program_id(0).to(gl.int64)
    union_rows += g * G * TOPK
    owners += g * G * TOPK
    table = gl.allocate_shared_memory(gl.int32, [CHUNKS, WORDS], banks)
    nothing = gl.zeros([WORDS], gl.int32, ONE)
    for c in range(CHUNKS):
        table.index(c).store(nothing)
    lane = gl.arange(0, LANES, FOUR)
    word = gl.arange(0, WORDS, WORD)
    slot = gl.arange(0, PER, gl.SliceLayout(0, TWO))
    length = 0
    for base in range(0, ROWS, SPAN):
        cta_barrier()  # the map is empty
        for j in range(0, gl.minimum(T - g * G, G).to(gl.int32)):
            t = g * G + j
            end = TOPK
            if HAS_LENGTH:
                end = gl.minimum(gl.load(topk_length + t), TOPK)
            for k in range(0, TOPK, LANES):
                row = gl.load(indices + t * STRIDE + k + lane, mask=k + lane < end, other=-1)
                inside = (row >= base) & (row < ROWS) & (row - base < SPAN)
                local = (row - base).to(gl.uint32)
                _set_bits(local // PER * 4, 1 << (local % PER * BITS + j), inside)
        cta_barrier()  # all bits of the range are set
        for c in range(CHUNKS):
            bits = gl.convert_layout(table.index(c).load(ONE), WORD)
            table.index(c).store(nothing)
            owned = (bits[:, None] >> (slot * BITS)[None, :]) & ((1 << BITS) - 1)
            listed = (owned != 0).to(gl.int32)
            count = gl.convert_layout(gl.sum(listed, 1), ONE)
            before = gl.convert_layout(gl.associative_scan(count, 0, _plus) - count, WORD)
            place = length + before[:, None] + gl.associative_scan(listed, 1, _plus) - listed
            row = base + c * WORDS * PER + word[:, None] * PER + slot[None, :]
            gl.store(union_rows + place, row, mask=owned != 0)
            gl.store(owners + place, owned, mask=owned != 0)
            length += gl.sum(count, 0)
    gl.store(union_length + g, length)
    table._keep_alive()


@union_plan.variant(
    config=Config(), step_from="sort_search", interpretable=False,
    workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def shared_map(x: Inputs, config: Config) -> Output:
    """Set each token's bit in a shared-memory map of the rows, then list the rows in order."""
    if x.rows > MOST_ROWS:
        raise ValueError(f"rows={x.rows} exceeds {MOST_ROWS}: the last range would end past 2**31")
    topk, device, count = x.indices.shape[1], x.indices.device, groups(x)
    union_rows, owners = (
        torch.empty(count, x.group * topk, dtype=torch.int32, device=device) for _ in range(2)
    )
    union_length = torch.empty(count, dtype=torch.int32, device=device)
    if count == 0:
        return Output(union_rows, owners, union_length)
    bits = 8 if x.group <= 8 else 16
    span = min(max(x.rows, 1), MOST_BYTES * 8 // bits)
    chunks = triton.next_power_of_2(triton.cdiv(span * bits // 8, 4 * WORDS))
    _shared_map_kernel[(count,)](
        x.indices, x.topk_length, union_rows, owners, union_length,
        len(x.indices), x.rows, topk, x.indices.stride(0),
        HAS_LENGTH=x.topk_length is not None, G=x.group, BITS=bits, CHUNKS=chunks,
        WORDS=WORDS, LANES=min(2048, triton.next_power_of_2(max(topk, 32 * config.num_warps))),
        num_warps=config.num_warps,
    )  # fmt: skip
    return Output(union_rows, owners, union_length)
