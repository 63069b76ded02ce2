"""How many rows neighbouring tokens share: the number that decides whether a union pays."""

from collections.abc import Sequence

import torch

from . import bits
from .requests import first_tokens

TABLE_BYTES = 1 << 25  # of the membership table built at a time; its sum widens it to 8 times that
LANES = 1 << 22  # that are widened to 64-bit row numbers at a time


def distinct_rows(
    valid_rows: torch.Tensor, rows: int, group: int, requests: Sequence[int] | None = None
) -> torch.Tensor:
    """How many rows each group of `group` consecutive tokens selects, each once [groups] int64.

    valid_rows [tokens, topk] integer, -1 (or any row outside [0, rows)) where a lane is invalid.
    `requests`: the first token of each request of the batch; groups then begin anew with each of
    them, and the last group of each may be short. None: groups are cut from the whole batch.
    Raises ValueError on a group below 1 or requests that are out of order.
    """
    firsts = first_tokens(len(valid_rows), group, requests)
    if not valid_rows.is_cuda:
        return torch.from_numpy(bits.distinct(valid_rows.numpy(), rows, firsts))
    return _on_device(valid_rows, rows, firsts)


def _on_device(valid_rows: torch.Tensor, rows: int, firsts: list[int]) -> torch.Tensor:
    """`bits.distinct` without leaving the device; both are tested against Python's sets."""
    bounds = [*firsts, len(valid_rows)]
    step = max(1, LANES // max(valid_rows.shape[1], 1))
    at_once = max(1, TABLE_BYTES // (rows + 1))
    owners = _owners(firsts, len(valid_rows), valid_rows.device)
    counts = [owners[:0]]
    for g in range(0, len(firsts), at_once):
        here = len(firsts[g : g + at_once])
        table = valid_rows.new_zeros(here, rows + 1, dtype=torch.bool)
        for first in range(bounds[g], bounds[g + here], step):
            end = min(first + step, bounds[g + here])
            part = valid_rows[first:end]
            lanes = torch.where((part >= 0) & (part < rows), part, rows).long()
            table[owners[first:end, None] - g, lanes] = True  # the last column: invalid lanes
        counts.append(table[:, :rows].count_nonzero(1))
    return torch.cat(counts)


def _owners(firsts: list[int], tokens: int, device) -> torch.Tensor:
    """Number of the group of each token [tokens] int64."""
    begins = torch.zeros(tokens, dtype=torch.int64)
    begins[firsts] = 1
    return (begins.cumsum(0) - 1).to(device)


def union_ratio(
    valid_rows: torch.Tensor, rows: int, group: int, requests: Sequence[int] | None = None
) -> float:
    """Rows of a group's union over the mean rows of one of its tokens, summed over all groups.

    valid_rows [tokens, topk] integer, -1 (or any row outside [0, rows)) where a lane is invalid.
    1.0: all tokens of a group select the same rows; `group`: none is shared. nan without rows.
    Sum(|union|) / Sum(valid rows of the group / its tokens), as SGLang's seed 004 tabulates it.
    `requests` as in `distinct_rows`. Raises ValueError where that does.
    """
    union = int(distinct_rows(valid_rows, rows, group, requests).sum())
    selected = ((valid_rows >= 0) & (valid_rows < rows)).sum(1)
    firsts = first_tokens(len(valid_rows), group, requests)
    owner = _owners(firsts, len(valid_rows), valid_rows.device)
    single = float((selected.double() / owner.bincount()[owner]).sum())
    return union / single if single else float("nan")
