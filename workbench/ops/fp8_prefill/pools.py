"""Pools of an fp8 workload: pages whose tokens are selected hold numbers, every other byte is 0xFF.

0xFF is NaN in each of the types that a byte may be read as: an e4m3 code, half of a bf16, a UE8M0
scale, a part of a float32. So rows that no token selects, the padding of rows and pages and the pad
byte of a footer all turn an answer that reads them into NaN.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from ... import layouts, selections
from ...layouts import LAYOUTS

POISON = 0xFF
BLOCK = 4096  # rows that are drawn by a generator of their own: threads share the work out
MAGNITUDES = (0.5, 1.0, 2.0)  # of groups: neighbours' scales differ, most of the time


class Pool(NamedTuple):
    cache: torch.Tensor  # [pages, page bytes] uint8; what pads the pages lies between them
    indices: torch.Tensor  # [T, topk] int32: page * page_size + place in the page
    topk_length: torch.Tensor | None  # [T] int32


def drawn(w, positions: torch.Tensor, gen: torch.Generator, device: str = "cpu") -> Pool:
    """The pool of `w`, on `device`, and what queries at `positions` [T] of its rows select.

    Numbers are drawn on the CPU: they are the same on every device.

    Reads the selection fields of `w`, `layout`, `scale_format`, `page_size`, `row_stride`,
    `padded`, `null_page` and `zeros`. The rows' pages lie in the pool in any order; behind a null
    page, where there is one, which no token selects.
    """
    layout, size, rows = LAYOUTS[w.layout], w.page_size, w.cache_rows
    pages = -(-rows // size)
    homes = torch.randperm(pages, generator=gen) + w.null_page
    pages += w.null_page
    found, length = selections.draw(w, positions)
    inside = (found >= 0) & (found < rows)
    row = torch.where(inside, found, 0).long()
    indices = homes[row // size] * size + row % size if rows else row
    beyond = torch.where(found < 0, found, found.clamp(min=pages * size))  # past the pool
    indices = torch.where(inside, indices, beyond).int()
    valid = selections.valid_lanes(indices, pages * size, length)
    selected = torch.zeros(pages * size, dtype=torch.bool)
    selected[indices[valid].long()] = True
    (token,) = selected.nonzero(as_tuple=True)  # a pool's other rows are never read: no numbers
    stride = layouts.page_stride(layout, size, w.padded, w.row_stride)
    whole = torch.full((pages, stride), POISON, dtype=torch.uint8, device=device)
    views = layouts.places(layout, whole, size, w.row_stride)
    # a tensor without memory, of which `compiled` makes its inputs, holds no numbers
    blocks = token.split(BLOCK) if type(whole) is torch.Tensor else ()
    seeds = torch.randint(2**62, (len(blocks),), generator=gen).tolist()
    with ThreadPoolExecutor() as threads:
        numbers = threads.map(lambda part, seed: _numbers(w, len(part), seed), blocks, seeds)
        for part, found in zip(blocks, numbers, strict=True):
            part = part.to(device)
            for view, field in zip(views, found, strict=True):
                view[part // size, part % size] = field.contiguous().view(torch.uint8).to(device)
    return Pool(whole[:, : layouts.page_bytes(layout, size, w.row_stride)], indices, length)


def _numbers(w, rows: int, seed: int) -> layouts.Tokens:
    """`rows` tokens of a pool, quantised."""
    layout, gen = LAYOUTS[w.layout], torch.Generator().manual_seed(seed)
    values = torch.randn(rows, layout.d_qk, generator=gen)
    _vary(values[:, : layout.nope].unflatten(-1, (-1, layout.group)), w.zeros, gen)
    return layouts.quantise(layout, values, w.scale_format)


def _vary(groups: torch.Tensor, zeros: float, gen: torch.Generator) -> None:
    """Scale `groups` [..., group] in place, and make a share `zeros` of them zero."""
    which = torch.randint(len(MAGNITUDES), groups.shape[:-1], generator=gen)
    factors = torch.tensor(MAGNITUDES)[which]
    if zeros:
        factors[torch.rand(factors.shape, generator=gen) < zeros] = 0
    groups *= factors[..., None]


def merged(first: torch.Tensor, fresh: torch.Tensor, layout: str, page_size: int,
           row_stride: int) -> None:  # fmt: skip
    """Give the rows of `first` that hold poison, in place, what `fresh` has there."""
    views = [layouts.places(LAYOUTS[layout], pool, page_size, row_stride) for pool in
             (first, fresh)]  # fmt: skip
    unread = views[0].nope[..., :1] == POISON  # no number is quantised to it
    for held, new in zip(*views, strict=True):
        held.copy_(torch.where(unread, new, held))


def read_rows(cache: torch.Tensor, page_size: int, indices, topk_length) -> torch.Tensor:
    """Which rows of the pool at least one token reads [pages * page_size] bool."""
    rows = len(cache) * page_size
    seen = torch.zeros(rows, dtype=torch.bool, device=cache.device)
    seen[indices[selections.valid_lanes(indices, rows, topk_length)].long()] = True
    return seen
