"""Steps shared by at least two variants. No kernel of its own lives here."""

import torch
import triton
import triton.language as tl

from ..definition import Inputs

LAST_EPOCH = 2**31 - 2  # of stamps in int32: the launch after it clears them all and leaves 0


def lanes_of(x: Inputs) -> torch.Tensor:
    """The index lanes in one piece; where every page is asked for, each by its first token."""
    if x.indices is None:
        return torch.arange(x.source.shape[0], device=x.source.device) * x.page_size
    return x.indices.contiguous()


@triton.jit
def copy_sub_page(
    source, destination, page, sub,
    SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy sub-page `sub` of `page`. All sizes and strides count 8-byte words."""
    origin = source + page.to(tl.int64) * SOURCE_STRIDE
    target = destination + (page.to(tl.int64) * RATIO + sub) * DESTINATION_STRIDE
    lane = tl.arange(0, BLOCK)
    for start in tl.static_range(0, DATA, BLOCK):
        inside = start + lane < DATA
        words = tl.load(origin + sub * DATA + start + lane, mask=inside, other=0)
        tl.store(target + start + lane, words, mask=inside)
    footer = tl.arange(0, SCALES)
    words = tl.load(origin + RATIO * DATA + sub * SCALES + footer)
    tl.store(target + DATA + footer, words)


@triton.jit
def load_piece(
    source, page, sub, piece,
    SOURCE_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One of PIECES equal parts of a sub-page's data; the first part brings the scales along."""
    origin = source + page.to(tl.int64) * SOURCE_STRIDE
    lane = tl.arange(0, BLOCK)
    footer = tl.arange(0, SCALES)
    inside = lane < DATA // PIECES
    data = tl.load(origin + sub * DATA + piece * (DATA // PIECES) + lane, mask=inside, other=0)
    scales = tl.load(
        origin + RATIO * DATA + sub * SCALES + footer, mask=(footer < SCALES) & (piece == 0),
        other=0,
    )  # fmt: skip
    return data, scales


@triton.jit
def store_piece(
    destination, page, sub, piece, data, scales,
    DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write what `load_piece` read."""
    target = destination + (page.to(tl.int64) * RATIO + sub) * DESTINATION_STRIDE
    lane = tl.arange(0, BLOCK)
    footer = tl.arange(0, SCALES)
    tl.store(target + piece * (DATA // PIECES) + lane, data, mask=lane < DATA // PIECES)
    tl.store(target + DATA + footer, scales, mask=(footer < SCALES) & (piece == 0))


@triton.jit
def next_epoch(state, epoch, stamps, STAMPS, BLOCK: tl.constexpr, LAST: tl.constexpr):
    """What the last program of a launch does: `state` gets this epoch, and nobody is done with it.

    `state`: the epoch of the launch before, how many programs are done. Every stamp is cleared
    where the next number would be one that an old stamp may bear.
    """
    if epoch > LAST:
        for start in range(0, STAMPS, BLOCK):
            word = start + tl.arange(0, BLOCK)
            tl.store(stamps + word, 0, mask=word < STAMPS)
        epoch = 0
    tl.store(state, epoch)
    tl.store(state + 1, 0)


@triton.jit
def page_of(indices, lane, until, TOKENS, PAGE_SIZE: tl.constexpr, absent: tl.constexpr):
    """The page that each lane below `until` names; `absent` where it names none."""
    token = tl.load(indices + lane, mask=(lane >= 0) & (lane < until), other=-1)
    inside = (token >= 0) & (token < TOKENS)
    return tl.where(inside, token // PAGE_SIZE, absent)
