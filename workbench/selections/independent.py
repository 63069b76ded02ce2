"""Every token draws its rows afresh, as `uniform` does, at the speed of a long context.

The same distribution, other tensors: `uniform` gives each row a random key, which old records
depend on; here a token's work grows with the rows it takes.
"""

import numpy as np
import torch


def independent(positions: torch.Tensor, rows: int, topk: int, rng: np.random.Generator, law=None):
    """Return indices [tokens, topk] int32, ascending: a random subset of the visible rows."""
    indices = np.full((len(positions), topk), -1, np.int32)
    for t, position in enumerate(positions.tolist()):
        seen = max(0, min(position + 1, rows))
        if seen <= topk:
            indices[t, :seen] = np.arange(seen)
        else:
            indices[t] = rng.choice(seen, topk, replace=False, shuffle=False)
            indices[t].sort()
    return torch.from_numpy(indices)
