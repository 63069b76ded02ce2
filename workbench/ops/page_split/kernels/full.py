"""One program a destination page: the whole pool, every call.

Moves pages * (page bytes) each way whatever is touched: 4.9 GB for 16,384 pages of 256 tokens.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import DATA_BYTES, PAGE, SCALES_BYTES, Inputs, Output, all_pages, page_split
from ._blocks import copy_sub_page


@dataclass(frozen=True)
class Config:
    block_words: int = 1024  # 8-byte words a program copies at a time
    num_warps: int = 4


@triton.jit
def _full_kernel(
    source, destination,
    SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0)
    copy_sub_page(
        source, destination, place // RATIO, place % RATIO,
        SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
        DATA, SCALES, BLOCK,
    )  # fmt: skip


@page_split.variant(config=Config(), step_from="eager_full", widens=all_pages)
def full(x: Inputs, config: Config) -> Output:
    """Fuse data and scale copies into one launch: one program a destination page."""
    if x.page_size == PAGE:
        return Output(x.source)
    _full_kernel[(x.destination.shape[0],)](
        x.source.view(torch.int64), x.destination.view(torch.int64),
        x.source.stride(0) // 8, x.destination.stride(0) // 8, x.page_size // PAGE,
        DATA=DATA_BYTES // 8, SCALES=SCALES_BYTES // 8, BLOCK=config.block_words,
        num_warps=config.num_warps,
    )  # fmt: skip
    return Output(x.destination)
