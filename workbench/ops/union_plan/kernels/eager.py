"""The plan in plain PyTorch: one sort a group, no host read."""

import torch

from ....selections import valid_lanes
from ..definition import Inputs, Output, groups, union_plan


@union_plan.variant()
def eager(x: Inputs, config: None) -> Output:
    """Sort all rows of a group together, keep each first one, add up the bits of its run."""
    tokens, topk = x.indices.shape
    shape, device = (groups(x), x.group * topk), x.indices.device
    valid = valid_lanes(x.indices, x.rows, x.topk_length)
    member = torch.arange(tokens, device=device) % x.group
    # one key a (row, token): sorting brings equal rows together and repeats of a pair side by side
    nothing = (x.rows + 1) * x.group
    keys = torch.full((shape[0] * x.group, topk), nothing, dtype=torch.int64, device=device)
    keys[:tokens] = torch.where(valid, x.indices.long() * x.group + member[:, None], nothing)
    keys = keys.view(shape).sort(dim=1).values
    rows = keys // x.group
    before = keys.roll(1, dims=1)
    before[:, :1] = -1
    listed = keys < nothing
    first = listed & (rows != before // x.group)  # first of its row
    fresh = listed & (keys != before)  # a token that selects a row twice counts once
    place = (first.cumsum(1) - 1).clamp(min=0)
    union_rows = torch.zeros(shape, dtype=torch.int64, device=device)
    owners = torch.zeros(shape, dtype=torch.int64, device=device)
    union_rows.scatter_add_(1, place, torch.where(first, rows, 0))
    owners.scatter_add_(1, place, torch.where(fresh, 1 << (keys % x.group), 0))
    return Output(union_rows.int(), owners.int(), first.sum(1, dtype=torch.int32))
