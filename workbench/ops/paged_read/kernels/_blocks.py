"""The read itself, behind every variant but the plain one, and the split before it."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ....op import Variant
from ...page_split.definition import PAGE
from ...page_split.definition import Inputs as SplitInputs
from ..definition import ROW, Inputs, Output


@dataclass(frozen=True)
class Config:
    lanes: int = 4  # index lanes a program reads
    num_warps: int = 4


@triton.jit
def _read_kernel(
    source, indices, rows,
    LANES, WINDOW, TOKENS, SOURCE_STRIDE, REQUEST_STRIDE, LANE_STRIDE,
    PAGE_SIZE: tl.constexpr, ROW: tl.constexpr, OWN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Strides and ROW count 8-byte words; the word behind a row's data is its scales."""
    lane = tl.program_id(0).to(tl.int64) * OWN + tl.arange(0, OWN)  # [OWN]
    token = tl.load(indices + lane, mask=lane < LANES, other=-1).to(tl.int64)
    inside = (token >= 0) & (token < TOKENS)
    token = tl.where(inside, token, 0)[:, None]
    word = tl.arange(0, BLOCK)[None, :]
    place = token % PAGE_SIZE
    at = tl.where(word < ROW, place * ROW + word, PAGE_SIZE * ROW + place)  # [OWN, BLOCK]
    words = tl.load(
        source + token // PAGE_SIZE * SOURCE_STRIDE + at, mask=inside[:, None] & (word <= ROW),
        other=0,
    )  # fmt: skip
    to = lane // WINDOW * REQUEST_STRIDE + lane % WINDOW * LANE_STRIDE
    tl.store(rows + to[:, None] + word, words, mask=(lane < LANES)[:, None] & (word <= ROW))


def read(x: Inputs, pool: torch.Tensor, page_size: int, config: Config) -> Output:
    """The rows of the lanes of `x` out of `pool`, which holds its tokens by `page_size`."""
    lanes = x.indices.contiguous()
    if lanes.numel():
        row = ROW // 8
        _read_kernel[(triton.cdiv(lanes.numel(), config.lanes),)](
            pool.view(torch.int64), lanes, x.rows.view(torch.int64),
            lanes.numel(), lanes.shape[1], pool.shape[0] * page_size,
            pool.stride(0) // 8, x.rows.stride(0) // 8, x.rows.stride(1) // 8,
            PAGE_SIZE=page_size, ROW=row, OWN=config.lanes,
            BLOCK=triton.next_power_of_2(row + 1),
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.rows)


def read_split(x: Inputs, split: Variant, config: Config) -> Output:
    """The same out of pages of 64 tokens, into which `split` has copied what it touches."""
    scratch = x.destination, x.mask, x.stamps
    pages = split(SplitInputs(x.source, x.page_size, x.indices, *scratch)).split
    return read(x, pages, PAGE, config)


def cannot_split(w, config: Config) -> str | None:
    if w.page_size % PAGE:
        return f"pages of {w.page_size} tokens cannot be split into {PAGE}"
    return None
