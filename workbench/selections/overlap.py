"""How many rows neighbouring tokens share: the number that decides whether a union pays."""

import torch

TABLE_BYTES = 1 << 25  # of the membership table built at a time; its sum widens it to 8 times that
LANES = 1 << 22  # that are widened to 64-bit row numbers at a time


def distinct_rows(valid_rows: torch.Tensor, rows: int, group: int) -> torch.Tensor:
    """How many rows each group of `group` consecutive tokens selects, each once [groups] int64.

    valid_rows [tokens, topk] integer, -1 (or any row outside [0, rows)) where a lane is invalid.
    The last group may be short. Raises ValueError on a group below 1.
    """
    if group < 1:
        raise ValueError(f"group={group} is below 1")
    device = valid_rows.device
    step = max(1, LANES // max(valid_rows.shape[1], 1))
    counts = []
    for groups in valid_rows.split(max(1, TABLE_BYTES // (rows + 1)) * group):
        table = torch.zeros(-(-len(groups) // group), rows + 1, dtype=torch.bool, device=device)
        for first in range(0, len(groups), step):
            part = groups[first : first + step]
            owner = torch.arange(first, first + len(part), device=device) // group
            lanes = torch.where((part >= 0) & (part < rows), part, rows).long()
            table[owner[:, None], lanes] = True  # the last column takes invalid lanes
        counts.append(table[:, :rows].count_nonzero(1))
    return torch.cat(counts)


def union_ratio(valid_rows: torch.Tensor, rows: int, group: int) -> float:
    """Rows of a group's union over the mean rows of one of its tokens, summed over all groups.

    valid_rows [tokens, topk] integer, -1 (or any row outside [0, rows)) where a lane is invalid.
    1.0: all tokens of a group select the same rows; `group`: none is shared. nan without rows.
    Sum(|union|) / Sum(valid rows of the group / its tokens), as SGLang's seed 004 tabulates it.
    Raises ValueError on a group below 1.
    """
    union = int(distinct_rows(valid_rows, rows, group).sum())
    selected = ((valid_rows >= 0) & (valid_rows < rows)).sum(1)
    owner = torch.arange(len(valid_rows), device=valid_rows.device) // group
    single = float((selected.double() / owner.bincount()[owner]).sum())
    return union / single if single else float("nan")
