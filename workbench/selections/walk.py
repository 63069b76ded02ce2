"""A random walk: each token keeps the last one's rows and swaps a share of them for other rows.

An indexer's scores drift slowly along the sequence, so neighbouring tokens select nearly the same
rows (SGLang's sparse prefill, seed 004, measures unions of 2 tokens of 1.00 to 1.12 times one).
"""

from itertools import pairwise

import numpy as np
import torch


def walk(
    positions: torch.Tensor, rows: int, topk: int, rng: np.random.Generator, churn: float = 0.10
):
    """Return indices [tokens, topk] int32; a step swaps round-down(churn * topk) rows.

    While all visible rows fit into topk a token takes them all and the walk has nothing to swap.
    A row that becomes visible joins the rows that may be swapped in. Positions must not decrease.
    Raises ValueError where they do or churn is outside [0, 1].
    """
    if not 0.0 <= churn <= 1.0:
        raise ValueError(f"churn={churn} is outside [0, 1]")
    places = positions.tolist()
    if any(b < a for a, b in pairwise(places)):
        raise ValueError("the positions of a walk must not decrease")
    indices = np.full((len(places), topk), -1, np.int32)
    swapped = int(churn * topk)
    order = np.arange(rows, dtype=np.int32)  # order[:kept] is selected, order[kept:seen] may be
    kept, seen = 0, 0
    for t, position in enumerate(places):
        visible = min(position + 1, rows)
        if seen == 0 and visible > topk:  # begins in the middle of a request
            order[:visible] = rng.permutation(visible)
            kept, seen = topk, visible
        elif visible > seen:
            grown = min(topk, visible)  # rows below `visible` fill the free slots in order
            kept, seen = max(kept, grown), visible
        spare = seen - kept
        if t and spare and swapped:
            count = min(swapped, spare)
            out = rng.choice(kept, count, replace=False, shuffle=False)
            into = kept + rng.choice(spare, count, replace=False, shuffle=False)
            order[out], order[into] = order[into], order[out]
        indices[t, :kept] = order[:kept]
    return torch.from_numpy(indices)
