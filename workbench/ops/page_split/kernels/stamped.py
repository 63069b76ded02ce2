"""Each destination page carries the epoch of its last copy; the first who raises it copies.

One launch that follows the index lanes, at a cost that grows with them and not with their square:
a program exchanges the stamp of each page that its lanes name with this launch's epoch, and copies
where the stamp was another one. The epoch lives on the device, where a captured graph can advance
it: the last program of a launch does. Before it would repeat an old value, every stamp is cleared.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, page_split
from ._blocks import LAST_EPOCH, copy_sub_page, lanes_of, next_epoch, page_of


@dataclass(frozen=True)
class Config:
    lanes: int = 128  # that a program looks at
    block_words: int = 8192  # 8-byte words a program copies at a time
    num_warps: int = 8


@triton.jit
def _stamped_kernel(
    source, destination, indices, stamps,
    LANES, TOKENS, STAMPS, SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    PAGE_SIZE: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    OWN: tl.constexpr, BLOCK: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """`stamps`: the epoch before this launch, the programs that are done, then a stamp a page."""
    epoch = tl.load(stamps) + 1  # nobody advances it before the last program has read it
    lane = tl.program_id(0) * OWN + tl.arange(0, OWN)
    page = page_of(indices, lane, LANES, TOKENS, PAGE_SIZE, -1)
    left = page_of(indices, lane - 1, LANES, TOKENS, PAGE_SIZE, -1)
    candidate = (page >= 0) & ((page != left) | (lane % OWN == 0))
    sub = tl.program_id(1)
    place = tl.where(candidate, page, 0).to(tl.int64) * RATIO + sub
    before = tl.atomic_xchg(stamps + 2 + place, epoch, mask=candidate, sem="relaxed")
    mine = candidate & (before != epoch)
    claims = tl.sum(mine.to(tl.int32), 0)
    tl.debug_barrier()  # this program has read the epoch and holds its pages: it counts as done
    programs = tl.num_programs(0) * tl.num_programs(1)
    if tl.atomic_add(stamps + 1, 1, sem="acq_rel") == programs - 1:
        next_epoch(stamps, epoch, stamps + 2, STAMPS, BLOCK, LAST)
    for _ in range(claims):
        at = tl.min(tl.where(mine, lane, 2147483647), 0)
        copy_sub_page(
            source, destination, tl.max(tl.where(lane == at, page, -1), 0), sub,
            SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
            DATA, SCALES, BLOCK,
        )  # fmt: skip
        mine = mine & (lane != at)


@page_split.variant(config=Config(), step_from="claimed")
def stamped(x: Inputs, config: Config) -> Output:
    """Claim a page by exchanging its stamp for this launch's epoch: linear in the lanes."""
    if x.page_size == PAGE:
        return Output(x.source)
    pages, ratio = x.source.shape[0], x.page_size // PAGE
    lanes = lanes_of(x)
    if lanes.numel():
        _stamped_kernel[(triton.cdiv(lanes.numel(), config.lanes), ratio)](
            x.source.view(torch.int64), x.destination.view(torch.int64), lanes, x.stamps[0],
            lanes.numel(), pages * x.page_size, x.stamps.shape[1] - 2,
            x.source.stride(0) // 8, x.destination.stride(0) // 8, ratio,
            PAGE_SIZE=x.page_size, DATA=DATA_BYTES // 8, SCALES=SCALES_BYTES // 8,
            OWN=config.lanes, BLOCK=config.block_words, LAST=LAST_EPOCH,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
