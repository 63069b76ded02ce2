"""Several rows a program, all their words in flight at once; no intermediate in memory.

Rows whose width is a multiple of 16 bytes are read 16 bytes a thread, others 8.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import WORD, Inputs, Output, row_gather
from ._blocks import add_rows


@dataclass(frozen=True)
class Config:
    block_rows: int = 16  # rows a program reads
    piece_words: int = 16  # 8-byte words of a row that are read side by side
    num_warps: int = 4


@triton.jit
def _gather_kernel(
    pool, indices, sums,
    COUNT,
    WORDS: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    inside = place < COUNT
    row = tl.load(indices + place, mask=inside, other=0)
    tl.store(sums + place, add_rows(pool, row, inside, WORDS, ROWS, PIECE), mask=inside)


@row_gather.variant(config=Config(), step_from="torch_gather")
def triton_gather(x: Inputs, config: Config) -> Output:
    """Read a few rows a program and add them up in registers."""
    count = len(x.indices)
    sums = x.indices.new_empty(count, dtype=torch.int64)
    if count:
        _gather_kernel[(triton.cdiv(count, config.block_rows),)](
            x.pool.view(torch.int64), x.indices, sums,
            count,
            WORDS=x.pool.shape[1] // WORD, ROWS=config.block_rows, PIECE=config.piece_words,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(sums)
