"""How many rows neighbouring tokens share: the number that decides whether a union pays."""

import torch

TABLE_BYTES = 1 << 28  # of the membership table that is built at a time


def union_ratio(valid_rows: torch.Tensor, rows: int, group: int) -> float:
    """Rows of a group's union over the mean rows of one of its tokens, summed over all groups.

    valid_rows [tokens, topk] integer, -1 (or any row outside [0, rows)) where a lane is invalid.
    1.0: all tokens of a group select the same rows; `group`: none is shared. nan without rows.
    Sum(|union|) / Sum(valid rows of the group / its tokens), as SGLang's seed 004 tabulates it.
    Raises ValueError on a group below 1.
    """
    if group < 1:
        raise ValueError(f"group={group} is below 1")
    tokens = len(valid_rows)
    union, single = 0, 0.0
    step = max(1, TABLE_BYTES // max(rows + 1, 1)) * group
    for first in range(0, tokens, step):
        part = valid_rows[first : first + step]
        groups = -(-len(part) // group)
        lanes = torch.where((part >= 0) & (part < rows), part, rows).long()
        owner = torch.arange(len(part), device=part.device) // group
        table = torch.zeros(groups, rows + 1, dtype=torch.bool, device=part.device)
        table[owner[:, None].expand_as(lanes), lanes] = True  # the last column takes invalid lanes
        union += int(table[:, :rows].sum())
        members = torch.bincount(owner, minlength=groups)
        single += float(((lanes < rows).sum(1) / members[owner]).double().sum())
    return union / single if single else float("nan")
