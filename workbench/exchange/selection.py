"""`sparse_indices` of others as a selection: what can be checked of them, and what cannot.

They are rows of the whole cache (scope `flat`: page * page_size + offset), and nothing says where
in its request a query stands. So a query is put behind the last row: no row is after it.
"""

from dataclasses import dataclass

import torch

from ..selections import refusals, valid_lanes, violations
from ..selections.requests import Selection
from ..selections.validity import SAME_TOKENS

CHECKED = ("rows in range", "padding of -1", "no row twice in a token", "no dummies")
UNCHECKED = ("rows up to the query's position", "rows of the query's own request")


@dataclass(frozen=True, eq=False)
class Imported:
    """A selection whose positions are not known."""

    selection: Selection  # positions: that of the last row, for each token
    refusals: tuple[str, ...]  # why it is no capture of a model: `selections.refusals`
    notes: tuple[str, ...]  # what is legal here and refused by some kernels
    scope: str = "flat"  # what an index counts: rows of the whole cache
    checked: tuple[str, ...] = CHECKED
    unchecked: tuple[str, ...] = UNCHECKED


def imported(indices: torch.Tensor, rows: int) -> Imported:
    """The selection of indices [tokens, topk] int32 in a cache of `rows` rows."""
    places = torch.full((len(indices),), max(0, rows - 1), dtype=torch.int32)
    s = Selection(indices, places, rows, ())
    found = refusals(s)
    if not any(sentence.startswith(("constant", "all zero", "empty")) for sentence in found):
        found += _alike(indices, rows)
    holes = [w for w in violations(indices, rows) if "invalid lane before" in w]
    empty = int((~valid_lanes(indices, rows, None)).all(1).sum())
    notes = holes + ([f"{empty} tokens name no row: their lse is -inf"] if empty else [])
    return Imported(s, tuple(found), tuple(notes))


def _alike(indices: torch.Tensor, rows: int) -> list[str]:
    """Whether so many tokens name the same rows that it is no accident, though there are more."""
    alike = len(indices) >= SAME_TOKENS and bool((indices == indices[0]).all())
    named = int(((indices[:1] >= 0) & (indices[:1] < rows)).sum())
    return [f"constant: all {len(indices)} tokens name the same rows"] * (alike and named < rows)
