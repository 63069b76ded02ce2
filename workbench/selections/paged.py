"""Rows that stand together in pages: few pages are touched, and of each a fixed part is read.

What separates a copy of touched pages from a copy of rows is how many rows of a page are wanted.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ._drift import begun, due, followed, in_range


@dataclass(frozen=True, kw_only=True)
class Paged:
    page: int = 64  # rows of a page; pages are counted from the request's first row
    fill: float = 0.5  # share of a touched page's rows that are selected
    churn: float = 0.05  # share of the pages that others replace at each step of position

    def __post_init__(self):
        in_range(self, page=(1, 1 << 20), fill=(0, 1), churn=(0, 1))


def paged(
    positions: torch.Tensor,
    rows: int,
    topk: int,
    rng: np.random.Generator,
    law: Paged = Paged(),
):
    """Return indices [tokens, topk] int32, ascending; positions must not decrease.

    The page that is not yet full is read whole. While the full ones are too few for `fill`, as
    much more of each is read as is needed.
    """
    indices, seen, first = begun(positions, rows, topk)
    places, chosen, seen = positions[first:], indices[first:], seen[first:].astype(np.int32)
    if not len(seen):
        return torch.from_numpy(indices)
    full = seen // law.page
    of_pages = topk - np.minimum(seen % law.page, topk)  # rows that full pages give
    each = np.maximum(max(1, round(law.fill * law.page)), -(-of_pages // np.maximum(full, 1)))
    kept = int((-(-of_pages // each)).max())
    parts = rng.permuted(np.tile(np.arange(law.page, dtype=np.int32), (max(int(full[-1]), 1), 1)),
                         axis=1)  # fmt: skip
    for t, units in followed(full, kept, due(places, law.churn * kept), topk, rng):
        here = slice(t, t + len(units))
        for share in np.unique(each[here]):
            mine = (each[here] == share).nonzero()[0]
            rows_of = _read(units[mine], parts, int(share), topk, law.page)
            chosen[t + mine] = _completed(rows_of, of_pages[here][mine], seen[here][mine])
    return torch.from_numpy(indices)


def _read(units: np.ndarray, parts: np.ndarray, each: int, topk: int, page: int) -> np.ndarray:
    """The first topk rows [tokens, topk] that full pages give, `each` of a page; 0 behind them."""
    pages = units[:, : -(-topk // each)] % len(parts)  # those not yet full are not read
    rows = (pages * np.int32(page))[:, :, None] + parts[pages, :each]
    found = np.zeros((len(units), topk), np.int32)
    lanes = min(topk, pages.shape[1] * each)
    found[:, :lanes] = rows.reshape(len(units), -1)[:, :lanes]
    return found


def _completed(rows: np.ndarray, of_pages: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Rows [tokens, topk] ascending: the first of_pages as given, then the latest visible ones."""
    lane = np.arange(rows.shape[1], dtype=np.int32)
    latest = seen[:, None] - np.int32(rows.shape[1]) + lane
    return np.sort(np.where(lane < of_pages[:, None], rows, latest), axis=1)
