"""Mark the touched pages, then copy those only: two launches whose grids never change.

Seed 000's idea. Moves the touched pages and one mask byte a program; but programs still start for
every page of the pool, so its cost grows with the pool and not with the work.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, page_split
from ._blocks import copy_sub_page


@dataclass(frozen=True)
class Config:
    sub_pages: int = 2  # that a program copies: to start one costs, even where it does nothing
    block_words: int = 1024  # 8-byte words a program copies at a time
    block_lanes: int = 1024  # index lanes a program of the mark pass takes
    num_warps: int = 4


@triton.jit
def _mark_kernel(indices, mask, LANES, TOKENS, PAGE_SIZE, BLOCK: tl.constexpr):
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(indices + lane, mask=lane < LANES, other=-1).to(tl.int64)
    inside = (token >= 0) & (token < TOKENS)
    page = tl.where(inside, token, 0) // PAGE_SIZE
    tl.store(mask + page, 1, mask=inside)  # concurrent stores of one value need no atomic


@triton.jit
def _masked_kernel(
    source, destination, mask,
    SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, SUB_PAGES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(RATIO, SUB_PAGES)
    page = tl.program_id(0) // parts
    if tl.load(mask + page) == 0:
        return
    first = tl.program_id(0) % parts * SUB_PAGES
    for sub in range(first, tl.minimum(first + SUB_PAGES, RATIO)):
        copy_sub_page(
            source, destination, page, sub,
            SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
            DATA, SCALES, BLOCK,
        )  # fmt: skip


@page_split.variant(config=Config(), step_from="full")
def masked(x: Inputs, config: Config) -> Output:
    """Copy only pages that a mark pass over the indices has touched; fixed grids, no host read."""
    if x.page_size == PAGE:
        return Output(x.source)
    if x.indices is None:
        x.mask.fill_(1)
    else:
        x.mask.zero_()
        lanes = x.indices.contiguous()
        if lanes.numel():
            _mark_kernel[(triton.cdiv(lanes.numel(), config.block_lanes),)](
                lanes, x.mask, lanes.numel(), x.mask.shape[0] * x.page_size, x.page_size,
                BLOCK=config.block_lanes, num_warps=config.num_warps,
            )  # fmt: skip
    ratio = x.page_size // PAGE
    _masked_kernel[(x.mask.shape[0] * triton.cdiv(ratio, config.sub_pages),)](
        x.source.view(torch.int64), x.destination.view(torch.int64), x.mask,
        x.source.stride(0) // 8, x.destination.stride(0) // 8, ratio,
        DATA=DATA_BYTES // 8, SCALES=SCALES_BYTES // 8, SUB_PAGES=config.sub_pages,
        BLOCK=config.block_words,
        num_warps=config.num_warps,
    )  # fmt: skip
    return Output(x.destination)
