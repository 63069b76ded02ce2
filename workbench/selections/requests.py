"""Several requests in one batch: their tokens follow one another, and so do their cache rows.

Row numbers are those of the whole cache (what SGLang calls RAGGED), positions those of a request:
the query at position p of a request whose rows begin at b sees the rows b .. b + p.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Request(NamedTuple):
    token: int  # its first token in the batch; it ends where the next request begins
    row: int  # the cache row of its position 0
    rows: int  # cache rows that are its own


class Selection(NamedTuple):
    """Which rows each token reads, with all that is needed to say what that means."""

    indices: torch.Tensor  # [tokens, topk] int32, rows of the cache; any other number: no row
    positions: torch.Tensor  # [tokens] int32, place of each query in its request
    rows: int  # S, of the cache
    requests: tuple[Request, ...]  # in the order of their tokens


def split(total: int, parts: int) -> list[int]:
    """`total` in `parts` shares, in order; the first total % parts get one more."""
    least, more = divmod(total, parts)
    return [least + (i < more) for i in range(parts)]


def even_requests(tokens: int, rows: int, requests: int) -> tuple[Request, ...]:
    """A batch whose tokens and cache rows are both split evenly, in order."""
    return in_order(zip(split(tokens, requests), split(rows, requests), strict=True))


def in_order(sizes) -> tuple[Request, ...]:
    """Requests of (tokens, rows) each, one behind the other: mixed batches are written so."""
    found, token, row = [], 0, 0
    for tokens, rows in sizes:
        found.append(Request(token, row, rows))
        token, row = token + tokens, row + rows
    return tuple(found)


def ends(starts: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    """(first token, one past the last) of each request of a batch.

    `starts`: the first token of each. Raises ValueError unless they ascend from 0 to `tokens`.
    """
    starts = list(starts)
    if not starts or starts[0] != 0 or sorted(starts) != starts or starts[-1] > tokens:
        raise ValueError(f"requests begin at {starts}, not at 0 and then in order up to {tokens}")
    return list(zip(starts, [*starts[1:], tokens], strict=True))


def first_tokens(tokens: int, group: int, starts: Sequence[int] | None = None) -> list[int]:
    """The first token of each group of `group` neighbours.

    `starts` (the first token of each request) begins a group anew with every request, whose last
    group may be short; None groups across requests, as a kernel does that knows of none.
    Raises ValueError on a group below 1 or starts that are out of order.
    """
    if group < 1:
        raise ValueError(f"group={group} is below 1")
    spans = ends(starts, tokens) if starts is not None else [(0, tokens)]
    return [t for first, end in spans for t in range(first, end, group)]
