"""List the touched pages once each, then share the list's copies evenly among programs.

Two launches whose grids never change. The first exchanges the stamp of each page that a lane names
with this launch's epoch, as `stamped` does, and appends what it claims to a list; the second goes
through the list. However the lanes are scattered, no program has more to copy than another, so the
cost follows the touched pages: `stamped` and `claimed` leave all pages of a program's lanes to it.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, page_split
from ._blocks import LAST_EPOCH, lanes_of, load_piece, next_epoch, page_of, store_piece


@dataclass(frozen=True)
class Config:
    lanes: int = 1024  # that a program of the list looks at
    programs: int = 1056  # that copy
    pieces: int = 3  # of a sub-page, each copied at a time: 1, 3 or 9
    num_warps: int = 8

    def __post_init__(self):
        if self.pieces not in (1, 3, 9):
            raise ValueError(f"pieces={self.pieces} is none of 1, 3, 9")
        if self.programs < 1:  # no launch at all, and no error
            raise ValueError(f"programs={self.programs} is below 1")


@triton.jit
def _list_kernel(
    indices, state, LANES, TOKENS, PAGES,
    PAGE_SIZE: tl.constexpr, OWN: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """`state`: epoch, programs that are done, listed so far, length of the list; stamps; list."""
    epoch = tl.load(state) + 1  # nobody advances it before the last program has read it
    lane = tl.program_id(0) * OWN + tl.arange(0, OWN)
    page = page_of(indices, lane, LANES, TOKENS, PAGE_SIZE, -1)
    left = page_of(indices, lane - 1, LANES, TOKENS, PAGE_SIZE, -1)
    candidate = (page >= 0) & ((page != left) | (lane % OWN == 0))
    place = tl.where(candidate, page, 0)
    before = tl.atomic_xchg(state + 4 + place, epoch, mask=candidate, sem="relaxed")
    mine = (candidate & (before != epoch)).to(tl.int32)
    first = tl.atomic_add(state + 2, tl.sum(mine, 0), sem="relaxed")
    to = tl.where(mine > 0, first + tl.cumsum(mine, 0) - 1, 0)
    tl.store(state + 4 + PAGES + to, page, mask=mine > 0)
    tl.debug_barrier()  # this program has read the epoch and told its pages: it counts as done
    if tl.atomic_add(state + 1, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        tl.store(state + 3, tl.atomic_xchg(state + 2, 0, sem="relaxed"))
        next_epoch(state, epoch, state + 4, PAGES, OWN, LAST)


@triton.jit
def _copy_kernel(
    source, destination, state,
    PAGES, SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    parts = RATIO * PIECES
    for unit in range(tl.program_id(0), tl.load(state + 3) * parts, tl.num_programs(0)):
        page = tl.load(state + 4 + PAGES + unit // parts)
        sub, piece = unit % parts // PIECES, unit % PIECES
        data, scales = load_piece(
            source, page, sub, piece, SOURCE_STRIDE, RATIO, DATA, SCALES, PIECES, BLOCK
        )
        store_piece(
            destination, page, sub, piece, data, scales,
            DESTINATION_STRIDE, RATIO, DATA, SCALES, PIECES, BLOCK,
        )  # fmt: skip


@page_split.variant(config=Config(), step_from="stamped")
def listed(x: Inputs, config: Config) -> Output:
    """Write claimed pages to a list that all programs copy from: even work for scattered lanes."""
    if x.page_size == PAGE:
        return Output(x.source)
    pages, ratio = x.source.shape[0], x.page_size // PAGE
    lanes = lanes_of(x)
    if lanes.numel():
        state, data = x.stamps[1], DATA_BYTES // 8
        room = (len(state) - 4) // 2  # pages that this state has room for, of a larger pool too
        _list_kernel[(triton.cdiv(lanes.numel(), config.lanes),)](
            lanes, state, lanes.numel(), pages * x.page_size, room,
            PAGE_SIZE=x.page_size, OWN=config.lanes, LAST=LAST_EPOCH, num_warps=config.num_warps,
        )  # fmt: skip
        most = min(lanes.numel(), pages) * ratio * config.pieces
        _copy_kernel[(min(config.programs, most),)](
            x.source.view(torch.int64), x.destination.view(torch.int64), state,
            room, x.source.stride(0) // 8, x.destination.stride(0) // 8, ratio,
            DATA=data, SCALES=SCALES_BYTES // 8, PIECES=config.pieces,
            BLOCK=triton.next_power_of_2(data // config.pieces),
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
