"""What a server holds for the split pages of one cache: memory that outlives calls and graphs.

One object a cache. Two caches of a layer (its main one and its extra one, C4A or C128A) that shared
a destination would overwrite each other inside one forward; a destination first touched under
`torch.inference_mode()` would be an inference tensor, which a later capture cannot write; one that
is freed when it grows would leave a captured graph on memory of somebody else.
"""

import torch

from ...layouts import footer_584
from .definition import PAGE, Inputs, Scratch


class SplitBuffers:
    """Destination, mask and stamps of one cache; they grow by replacement, old memory stays alive.

    A pool that is not larger than the largest so far gets views of the same memory: equal
    `data_ptr` in every call, so that a captured graph stays right.
    """

    def __init__(self, device: str):
        self.device = device
        self.kept: list[Scratch] = []  # all so far: a captured graph may hold an old one

    def take(self, pages: int, page_size: int) -> Scratch:
        """The memory for a pool. Raises RuntimeError where it would have to grow in a capture."""
        if page_size < PAGE or page_size % PAGE or pages < 0:
            raise ValueError(f"pages={pages} of page_size={page_size}: not whole pages of {PAGE}")
        # pages of 64 are read as they lie: nothing is copied
        copies = 0 if page_size == PAGE else pages * page_size // PAGE
        have = (len(self.kept[-1].destination), len(self.kept[-1].mask)) if self.kept else (-1, -1)
        if have[0] < copies or have[1] < pages:
            self._grow(max(pages, have[1]), max(copies, have[0]))  # neither side ever shrinks
        destination, mask, stamps = self.kept[-1]
        # whole stamps: what an epoch clears when it starts anew are those of the largest pool
        return Scratch(destination[:copies], mask[:pages], stamps)

    def _grow(self, pages: int, copies: int) -> None:
        if torch.device(self.device).type == "cuda" and torch.cuda.is_current_stream_capturing():
            have = len(self.kept[-1].destination) if self.kept else 0
            raise RuntimeError(
                f"{copies} split pages exceed the {have} of these buffers, which cannot grow while "
                "a CUDA graph is captured: take the largest pool once before"
            )
        # normal tensors, whoever asks first: an inference tensor cannot be written later
        with torch.inference_mode(False):
            self.kept.append(Scratch(
                torch.zeros(copies, footer_584.page_stride(PAGE), dtype=torch.uint8,
                            device=self.device),
                torch.zeros(pages, dtype=torch.uint8, device=self.device),
                torch.zeros(2, 4 + copies, dtype=torch.int32, device=self.device),
            ))  # fmt: skip


def split_inputs(
    buffers: SplitBuffers, source: torch.Tensor, page_size: int, indices: torch.Tensor | None
) -> Inputs:
    """The inputs of a variant on a server's cache `source` [pages, >= page bytes] uint8."""
    return Inputs(source, page_size, indices, *buffers.take(len(source), page_size))
