"""Each touched page is claimed by the first index lane that names it, and copied by the claimer.

One launch whose grid follows the index lanes and not the pool: no mask, no memset, nothing that has
to be right from an earlier call, so a captured graph replays on new indices and new bytes. A
program looks at a few lanes, finds which of them name a page that no lane before them names, and
copies a piece of those pages. Moves the touched pages, and for each program that has a candidate
the lanes before it, which come from the L2.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, page_split
from ._blocks import copy_sub_page


@dataclass(frozen=True)
class Config:
    lanes: int = 16  # that a program looks at
    chunk: int = 256  # earlier lanes that are compared at a time
    block_words: int = 1024  # 8-byte words a program copies at a time
    num_warps: int = 4


@triton.jit
def _page_of(indices, lane, until, TOKENS, PAGE_SIZE: tl.constexpr, absent: tl.constexpr):
    """The page that each lane below `until` names; `absent` where it names none."""
    token = tl.load(indices + lane, mask=(lane >= 0) & (lane < until), other=-1)
    inside = (token >= 0) & (token < TOKENS)
    return tl.where(inside, token // PAGE_SIZE, absent)


@triton.jit
def _claimed_kernel(
    source, destination, indices,
    LANES, TOKENS, SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    PAGE_SIZE: tl.constexpr, DATA: tl.constexpr, SCALES: tl.constexpr,
    OWN: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    own = tl.arange(0, OWN)
    lane = tl.program_id(0) * OWN + own
    page = _page_of(indices, lane, LANES, TOKENS, PAGE_SIZE, -1)
    # a window's tokens stand side by side: most lanes name the page of their left neighbour
    left = _page_of(indices, lane - 1, LANES, TOKENS, PAGE_SIZE, -1)
    first = (page >= 0) & (page != left)
    if tl.max(first.to(tl.int32), 0) > 0:
        end = tl.program_id(0) * OWN + OWN
        for start in range(0, end, CHUNK):
            other = start + tl.arange(0, CHUNK)
            named = _page_of(indices, other, LANES, TOKENS, PAGE_SIZE, -2)
            same = (named[None, :] == page[:, None]) & (other[None, :] < lane[:, None])
            first = first & (tl.max(same.to(tl.int32), 1) == 0)
        for i in range(OWN):
            mine = tl.max(tl.where((own == i) & first, page, -1), 0)
            if mine >= 0:
                copy_sub_page(
                    source, destination, mine, tl.program_id(1),
                    SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
                    DATA, SCALES, BLOCK,
                )  # fmt: skip


@page_split.variant(config=Config(), step_from="masked")
def claimed(x: Inputs, config: Config) -> Output:
    """Let the first lane that names a page copy it: one launch that follows the lanes, no mask."""
    if x.page_size == PAGE:
        return Output(x.source)
    pages = x.source.shape[0]
    lanes = x.indices
    if lanes is None:  # every page is named, by its first token
        lanes = torch.arange(pages, device=x.source.device) * x.page_size
    lanes = lanes.contiguous()
    if lanes.numel():
        _claimed_kernel[(triton.cdiv(lanes.numel(), config.lanes), x.page_size // PAGE)](
            x.source.view(torch.int64), x.destination.view(torch.int64), lanes,
            lanes.numel(), pages * x.page_size,
            x.source.stride(0) // 8, x.destination.stride(0) // 8, x.page_size // PAGE,
            PAGE_SIZE=x.page_size, DATA=DATA_BYTES // 8, SCALES=SCALES_BYTES // 8,
            OWN=config.lanes, CHUNK=config.chunk, BLOCK=config.block_words,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
