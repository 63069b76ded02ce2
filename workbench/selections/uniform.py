"""Every visible row equally likely, every token drawn afresh: neighbours share by chance only."""

import numpy as np
import torch

CHUNK = 1 << 24  # random numbers drawn at a time


def uniform(positions: torch.Tensor, rows: int, topk: int, rng: np.random.Generator):
    """Return indices [tokens, topk] int32, a fresh random subset of the visible rows a token."""
    indices = torch.full((len(positions), topk), -1, dtype=torch.int32)
    visible = (positions + 1).clamp(0, rows)
    kept = min(topk, rows)
    step = max(1, CHUNK // max(rows, 1))
    for first in range(0, len(positions), step):
        here = visible[first : first + step]
        keys = torch.from_numpy(rng.random((len(here), rows), dtype=np.float32))
        keys.masked_fill_(torch.arange(rows) >= here[:, None], -1.0)
        drawn = keys.topk(kept, sorted=True)
        indices[first : first + step, :kept] = drawn.indices.where(drawn.values >= 0, -1).int()
    return indices
