"""Steps that several laws share: the tokens that see few rows, and sets that drift."""

from collections.abc import Iterator

import numpy as np
import torch

CHUNK_LANES = 1 << 18  # of indices that are filled at a time: they should stay in the L2


def begun(positions: torch.Tensor, rows: int, topk: int) -> tuple[np.ndarray, np.ndarray, int]:
    """(indices [tokens, topk] int32, rows each token sees [tokens], the first that must choose).

    A token that sees no more than topk rows takes them all, in order, and pads with -1; the lanes
    of the others are not filled. Raises ValueError where positions decrease.
    """
    seen = (positions.numpy().astype(np.int64) + 1).clip(0, rows)
    if (np.diff(positions.numpy()) < 0).any():
        raise ValueError("the positions of a law that drifts must not decrease")
    indices = np.empty((len(seen), topk), np.int32)
    first = int(np.searchsorted(seen, topk, side="right"))
    lane = np.arange(topk, dtype=np.int32)
    indices[:first] = np.where(lane < seen[:first, None], lane, -1)
    return indices, seen, first


def due(positions: torch.Tensor, rate: float) -> np.ndarray:
    """Swaps on the way to each token [tokens] int64, `rate` a step of position; 0 to the first.

    A rate below 1 swaps now and then. Tokens that stand apart (a context-parallel rank) swap as
    often as those between them would have.
    """
    total = np.floor(positions.numpy().astype(np.float64) * rate).astype(np.int64)
    return np.diff(total, prepend=total[:1])


def followed(
    eligible: np.ndarray, kept: int, swaps: np.ndarray, topk: int, rng: np.random.Generator
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (token, units [some tokens, kept] int32): sets that are drawn once and then drift.

    Units 0 .. eligible[t] - 1 may be followed by token t; eligible [tokens] does not decrease. A
    step replaces swaps[t] of the units by others, all equally likely. While fewer than `kept` are
    eligible, slots at and behind eligible[t] hold a unit that is not.
    """
    if not len(eligible):
        return
    first = int(eligible[0])
    order = np.arange(max(int(eligible[-1]), kept), dtype=np.int32)
    order[:first] = rng.permutation(first)
    step = max(1, CHUNK_LANES // topk)
    for begin in range(0, len(eligible), step):
        units = np.empty((min(step, len(eligible) - begin), kept), np.int32)
        for i in range(len(units)):
            spare = int(eligible[begin + i]) - kept
            count = min(int(swaps[begin + i]), spare, kept)
            if count > 0 and begin + i:
                out = rng.choice(kept, count, replace=False, shuffle=False)
                into = kept + rng.choice(spare, count, replace=False, shuffle=False)
                order[out], order[into] = order[into], order[out]
            units[i] = order[:kept]
        yield begin, units


def in_range(law, **limits: tuple[float, float]) -> None:
    """Raise ValueError where a parameter of `law` is outside its limits, both of them included."""
    for name, (low, high) in limits.items():
        value = getattr(law, name)
        if not low <= value <= high:
            raise ValueError(f"{name}={value} is outside [{low:g}, {high:g}]")
