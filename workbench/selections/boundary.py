"""A stable core and a pool of near-ties that flicker: what rows look like around a top-k threshold.

Rows whose score is far above the threshold are selected by every token; rows around it change
places from token to token, but among themselves. So four tokens share more than three independent
steps would leave: of captures, seed 004 gives 1.12 for 2 tokens and 1.23, not 1.34, for 4. With m
slots filled from a pool of M rows that are drawn afresh, q = m / M, a group of G tokens selects
core + M (1 - (1 - q)^G) rows; of seed 004's longest capture q is near 0.4.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ._drift import begun, due, followed, in_range


@dataclass(frozen=True, kw_only=True)
class Boundary:
    core: float = 0.80  # share of a token's rows that do not flicker
    pool: float = 2.4  # rows that compete for each of the other slots
    flicker: float = 1.0  # share of the pool whose order is drawn anew at each step of position
    drift: float = 0.001  # share of core and pool that other rows replace at each step

    def __post_init__(self):
        in_range(self, core=(0, 1), pool=(1, 1024), flicker=(0, 1), drift=(0, 1))


def boundary(
    positions: torch.Tensor,
    rows: int,
    topk: int,
    rng: np.random.Generator,
    law: Boundary = Boundary(),
):
    """Return indices [tokens, topk] int32, ascending; positions must not decrease."""
    indices, seen, first = begun(positions, rows, topk)
    core = int(law.core * topk + 0.5)
    slots = topk - core
    pool = max(slots, min(int(law.pool * slots + 0.5), rows - core))
    places, chosen, seen = positions[first:], indices[first:], seen[first:]
    apart = np.diff(places.numpy(), prepend=places.numpy()[:1])
    renewed = 1 - (1 - law.flicker) ** apart  # of the pool, on the way to each token
    keys = None
    swaps = due(places, law.drift * (core + pool))
    for t, units in followed(seen, core + pool, swaps, topk, rng):
        here = slice(t, t + len(units))
        chosen[here, :core] = units[:, :core]
        if slots:
            keys = _keys(keys, renewed[here], pool, rng)
            may = np.arange(core, core + pool) < seen[here, None]
            ranks = keys | (may.astype(np.uint32) << np.uint32(31))
            least = np.partition(ranks, pool - slots, axis=1)[:, pool - slots]
            won = units[:, core:][ranks >= least[:, None]]
            chosen[here, core:] = won.reshape(-1, slots)
        chosen[here].sort(axis=1)
    return torch.from_numpy(indices)


def _keys(before, renewed: np.ndarray, pool: int, rng: np.random.Generator) -> np.ndarray:
    """Distinct numbers below 2^31 that order the pool [tokens, pool] uint32.

    A share `renewed` of them is drawn anew at each token, the others are those of the token before.
    The low bits are the slot's own number: no two keys of a token are equal, so the highest ones
    are the same set wherever they are sorted.
    """
    bits = max(pool - 1, 0).bit_length()
    shape = (len(renewed) + 1, pool)
    fresh = rng.integers(0, 1 << 32, shape, dtype=np.uint32) >> np.uint32(bits + 1)
    fresh = fresh << np.uint32(bits) | np.arange(pool, dtype=np.uint32)
    if (renewed >= 1).all():
        return fresh[1:]
    if before is not None:
        fresh[0] = before[-1]
    anew = rng.random((len(renewed), pool), dtype=np.float32) < renewed[:, None]
    source = np.where(anew, np.arange(1, shape[0], dtype=np.int32)[:, None], 0)
    return np.take_along_axis(fresh, np.maximum.accumulate(source, axis=0), axis=0)
