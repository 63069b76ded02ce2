"""The arithmetic of a lightning indexer on hidden states that change slowly along the text.

score[t, s] = sum_h weight[t, h] * relu(q[t, h] . k[s]), top-k over s <= t (DeepSeek-V3.2: 64 heads
of 128, GLM-5: 32 of 128); without rotary positions. All operands are small whole numbers and every
sum is below 2^24: float32 gives it exactly in any order, so that all devices select the same rows.
Of equal scores the lower row is taken.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ._drift import in_range

HIDDEN = 256  # numbers of a hidden state
STATE = 8  # a number of a hidden state lies in [-STATE, STATE]
SHIFT = 4  # bits that a projection loses before it is clipped
CLIP = 7  # of q, k and weight
SCORES = 1 << 22  # of one head that are held at a time


@dataclass(frozen=True, kw_only=True)
class Indexer:
    correlation: float = 0.99  # of a hidden state with that of the position before
    heads: int = 32
    dim: int = 128  # of a head

    def __post_init__(self):
        in_range(self, correlation=(0, 1), heads=(1, 1024), dim=(1, 1024))
        if self.heads * self.dim * CLIP**3 >= 1 << 24:
            raise ValueError(f"heads={self.heads} of dim={self.dim} give sums that float32 rounds")


def indexer(
    positions: torch.Tensor,
    rows: int,
    topk: int,
    rng: np.random.Generator,
    law: Indexer = Indexer(),
):
    """Return indices [tokens, topk] int32, ascending; positions may stand in any order."""
    indices = np.full((len(positions), topk), -1, np.int32)
    places = positions.numpy().astype(np.int64)
    count = max(rows, int(places.max(initial=-1)) + 1)
    states = _states(count, law.correlation, rng)
    to_q, to_k, to_weight = (torch.from_numpy(rng.integers(-1, 2, (HIDDEN, n), dtype=np.int8))
                             for n in (law.heads * law.dim, law.dim, law.heads))  # fmt: skip
    keys = _projected(states[:rows], to_k)  # [rows, dim]
    step = max(1, SCORES // max(rows * law.heads, 1))
    for t in range(0, len(places), step):
        here = places[t : t + step]
        seen = (here + 1).clip(0, rows)
        width = int(seen.max())
        if width <= topk:  # all that is visible
            lane = np.arange(topk, dtype=np.int32)
            indices[t : t + step] = np.where(lane < seen[:, None], lane, -1)
            continue
        q = _projected(states[here], to_q).view(-1, law.dim)  # [tokens * heads, dim]
        weight = _projected(states[here], to_weight).view(-1, 1, law.heads)
        found = (q @ keys[:width].T).relu_().view(len(here), law.heads, width)
        scores = torch.bmm(weight, found)[:, 0].numpy().astype(np.int64)  # [tokens, width], exact
        _take(indices[t : t + step], scores, seen)
    return torch.from_numpy(indices)


def _states(count: int, correlation: float, rng: np.random.Generator) -> torch.Tensor:
    """Hidden states [count, HIDDEN] int8: each number keeps its value or is drawn anew."""
    fresh = rng.integers(-STATE, STATE + 1, (max(count, 1), HIDDEN), dtype=np.int8)
    anew = rng.random(fresh.shape, dtype=np.float32) >= correlation
    drawn_at = np.where(anew, np.arange(len(fresh), dtype=np.int32)[:, None], 0)
    last = np.maximum.accumulate(drawn_at, axis=0)
    return torch.from_numpy(np.take_along_axis(fresh, last, axis=0))


def _projected(states: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """states @ matrix, shifted and clipped to [-CLIP, CLIP]: float32 that holds whole numbers."""
    return ((states.float() @ matrix.float()) / (1 << SHIFT)).floor_().clamp_(-CLIP, CLIP)


def _take(indices: np.ndarray, scores: np.ndarray, seen: np.ndarray) -> None:
    """Write the highest-scored visible rows of each token, ascending; ties go to the lower row."""
    tokens, width = scores.shape
    topk = indices.shape[1]
    row = np.arange(width)
    rank = scores * width + (width - 1 - row)  # no two are equal
    rank[row >= seen[:, None]] = np.iinfo(np.int64).min
    least = np.partition(rank, width - topk, axis=1)[:, width - topk]
    chosen = (rank >= least[:, None]) & (row < seen[:, None])
    token, taken = chosen.nonzero()
    lane = np.arange(len(token)) - np.searchsorted(token, np.arange(tokens))[token]
    indices[token, lane] = taken
