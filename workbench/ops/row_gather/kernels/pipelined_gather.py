"""Programs that stay: each walks through blocks of rows and asks for the next ones beforehand.

Rows travel to shared memory asynchronously, as in an attention kernel, several blocks ahead of the
one that is added up: bytes in flight cost no registers.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import WORD, Inputs, Output, row_gather
from ._blocks import add_rows


@dataclass(frozen=True)
class Config:
    block_rows: int = 16  # rows of a step
    piece_words: int = 16  # 8-byte words of a row that are read side by side
    programs: int = 528  # that share the blocks: four for each of 132 multiprocessors
    num_stages: int = 3  # blocks in shared memory or on their way there
    num_warps: int = 4


@triton.jit
def _pipelined_kernel(
    pool, indices, sums,
    COUNT,
    WORDS: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(COUNT, ROWS)
    for block in tl.range(tl.program_id(0), blocks, tl.num_programs(0), num_stages=STAGES):
        place = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
        inside = place < COUNT
        row = tl.load(indices + place, mask=inside, other=0)
        tl.store(sums + place, add_rows(pool, row, inside, WORDS, ROWS, PIECE), mask=inside)


@row_gather.variant(config=Config(), step_from="triton_gather")
def pipelined_gather(x: Inputs, config: Config) -> Output:
    """Keep the programs and load the rows of later blocks while this one is added up."""
    count = len(x.indices)
    sums = x.indices.new_empty(count, dtype=torch.int64)
    if count:
        _pipelined_kernel[(min(config.programs, triton.cdiv(count, config.block_rows)),)](
            x.pool.view(torch.int64), x.indices, sums,
            count,
            WORDS=x.pool.shape[1] // WORD, ROWS=config.block_rows, PIECE=config.piece_words,
            STAGES=config.num_stages,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(sums)
