"""Each dirty row on its own: 72 eight-byte words of data and one of scales.

One launch that follows the dirty lanes; no state, no claim: lanes that name the same row write
equal bytes. Moves 584 bytes each way a lane, in place of whole pages.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import PAGE, ROW, Inputs, Output, page_split_step


@dataclass(frozen=True)
class Config:
    lanes: int = 2  # dirty lanes a program takes
    num_warps: int = 4


@triton.jit
def _rows_kernel(
    source, destination, dirty,
    LANES, TOKENS, SOURCE_STRIDE, DESTINATION_STRIDE,
    PAGE_SIZE: tl.constexpr, PAGE: tl.constexpr, ROW: tl.constexpr,
    OWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Strides and ROW count 8-byte words; the word behind a row's data is its scales."""
    lane = tl.program_id(0).to(tl.int64) * OWN + tl.arange(0, OWN)  # [OWN]
    token = tl.load(dirty + lane, mask=lane < LANES, other=-1).to(tl.int64)
    inside = (token >= 0) & (token < TOKENS)
    token = tl.where(inside, token, 0)[:, None]
    word = tl.arange(0, BLOCK)[None, :]
    place, where = token % PAGE_SIZE, token % PAGE  # of the row in its page, before and after
    at = tl.where(word < ROW, place * ROW + word, PAGE_SIZE * ROW + place)  # [OWN, BLOCK]
    to = tl.where(word < ROW, where * ROW + word, PAGE * ROW + where)
    moved = inside[:, None] & (word <= ROW)
    words = tl.load(source + token // PAGE_SIZE * SOURCE_STRIDE + at, mask=moved, other=0)
    tl.store(destination + token // PAGE * DESTINATION_STRIDE + to, words, mask=moved)


@page_split_step.variant(config=Config(), step_from="dirty_pages")
def dirty_rows(x: Inputs, config: Config) -> Output:
    """Copy the written rows alone: 73 words each, a few lanes a program, no state."""
    if x.page_size == PAGE:
        return Output(x.source)
    lanes = x.dirty.contiguous()
    if lanes.numel():
        row = ROW // 8
        _rows_kernel[(triton.cdiv(lanes.numel(), config.lanes),)](
            x.source.view(torch.int64), x.destination.view(torch.int64), lanes,
            lanes.numel(), x.source.shape[0] * x.page_size,
            x.source.stride(0) // 8, x.destination.stride(0) // 8,
            PAGE_SIZE=x.page_size, PAGE=PAGE, ROW=row,
            OWN=config.lanes, BLOCK=triton.next_power_of_2(row + 1),
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
