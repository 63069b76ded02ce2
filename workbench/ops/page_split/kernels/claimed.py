"""Each touched page is claimed by the first index lane that names it, and copied by the claimer.

One launch whose grid follows the index lanes and not the pool: no mask, no memset, nothing that has
to be right from an earlier call, so a captured graph replays on new indices and new bytes. Lanes of
a window stand side by side, so only the first lane of a run of equal pages is a candidate. Its
program reads its piece of the page, and while that comes, looks whether a lane further left names
the same page; only where none does, it writes. Reads grow with (candidates x lanes), from the L2.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, page_split
from ._blocks import lanes_of, load_piece, page_of, store_piece


@dataclass(frozen=True)
class Config:
    lanes: int = 128  # that a program looks at
    chunk: int = 1024  # earlier lanes that are compared at a time
    pieces: int = 3  # programs that share a sub-page: 1, 3 or 9
    num_warps: int = 4

    def __post_init__(self):
        if self.pieces not in (1, 3, 9):
            raise ValueError(f"pieces={self.pieces} is none of 1, 3, 9")


@triton.jit
def _claimed_kernel(
    source, destination, indices,
    LANES, TOKENS, SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    PAGE_SIZE: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    OWN: tl.constexpr, CHUNK: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    own = tl.arange(0, OWN)
    lane = tl.program_id(0) * OWN + own
    page = page_of(indices, lane, LANES, TOKENS, PAGE_SIZE, -1)
    left = page_of(indices, lane - 1, LANES, TOKENS, PAGE_SIZE, -1)
    candidate = (page >= 0) & (page != left)
    sub, piece = tl.program_id(1) // PIECES, tl.program_id(1) % PIECES
    for _ in range(tl.sum(candidate.to(tl.int32), 0)):
        at = tl.min(tl.where(candidate, lane, 2147483647), 0)
        mine = tl.max(tl.where(lane == at, page, -1), 0)
        candidate = candidate & (lane != at)
        data, scales = load_piece(
            source, mine, sub, piece, SOURCE_STRIDE, RATIO, DATA, SCALES, PIECES, BLOCK
        )
        named_before = 0
        for start in range(0, at, CHUNK):
            other = start + tl.arange(0, CHUNK)
            same = page_of(indices, other, at, TOKENS, PAGE_SIZE, -2) == mine
            named_before += tl.max(same.to(tl.int32), 0)
        if named_before == 0:
            store_piece(
                destination, mine, sub, piece, data, scales,
                DESTINATION_STRIDE, RATIO, DATA, SCALES, PIECES, BLOCK,
            )  # fmt: skip


@page_split.variant(config=Config(), step_from="masked")
def claimed(x: Inputs, config: Config) -> Output:
    """Let the first lane that names a page copy it: one launch that follows the lanes, no mask."""
    if x.page_size == PAGE:
        return Output(x.source)
    pages = x.source.shape[0]
    lanes = lanes_of(x)
    if lanes.numel():
        data, ratio = DATA_BYTES // 8, x.page_size // PAGE
        grid = (triton.cdiv(lanes.numel(), config.lanes), ratio * config.pieces)
        _claimed_kernel[grid](
            x.source.view(torch.int64), x.destination.view(torch.int64), lanes,
            lanes.numel(), pages * x.page_size,
            x.source.stride(0) // 8, x.destination.stride(0) // 8, ratio,
            PAGE_SIZE=x.page_size, DATA=data, SCALES=SCALES_BYTES // 8,
            OWN=config.lanes, CHUNK=config.chunk, PIECES=config.pieces,
            BLOCK=triton.next_power_of_2(data // config.pieces),
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
