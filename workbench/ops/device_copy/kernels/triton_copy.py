"""One block of words a program, in loads and stores of 16 bytes a thread.

Where the number of words is odd the compiler cannot know that a mask ends between two vectors of
16 bytes and falls back to 8: sizes for a ceiling are multiples of 128 bytes.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import WORD, Inputs, Output, device_copy


@dataclass(frozen=True)
class Config:
    block_words: int = 2048  # 8-byte words a program copies, all in flight at once
    num_warps: int = 4


@triton.jit
def _copy_kernel(source, destination, WORDS, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < WORDS
    words = tl.load(source + place, mask=inside, other=0)
    tl.store(destination + place, words, mask=inside)


@device_copy.variant(config=Config(), step_from="torch_copy")
def triton_copy(x: Inputs, config: Config) -> Output:
    """Copy a block of words a program, 16 bytes a thread at a time."""
    words = len(x.source) // WORD
    if words:
        _copy_kernel[(triton.cdiv(words, config.block_words),)](
            x.source.view(torch.int64), x.destination.view(torch.int64),
            words,
            BLOCK=config.block_words,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(x.destination)
