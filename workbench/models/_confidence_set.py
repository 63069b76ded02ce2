"""The set of places where a mean curve over blocks may be 0, exactly, and the signs around it.

Blocks' curves are straight between neighbouring points. There the mean is linear and the variance
quadratic in the position, so the Student-t interval contains 0 between roots of a quadratic
(Fieller, 1954): no grid, no sampling. Where the mean is within the noise floor, it may be 0, too.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .ratio import t_quantile


class Part(NamedTuple):
    """A stretch of the axis whose interval contains 0; signs of the mean curve on both sides."""

    low: float
    high: float
    before: int  # -1 or 1; 0 where the part reaches the end of the range
    after: int


class Piece(NamedTuple):
    """The same between two neighbouring points, in shares u of the way from one to the other."""

    inside: list[tuple[float, float]]  # of [0, 1]
    start: float  # mean at u = 0; nan where fewer than two blocks have both points
    end: float


def parts(axis: np.ndarray, logs: np.ndarray, confidence: float, noise: np.ndarray) -> list[Part]:
    """The confidence set of the crossings of `logs` [points, blocks] along a rising `axis`.

    `noise` [points]: the floor at each point, straight between them.
    """
    pieces = [_piece(*logs[i : i + 2], confidence, noise[i : i + 2]) for i in range(len(axis) - 1)]
    found = _merged(axis, pieces)
    edges = [axis[0], *(end for part in found for end in part), axis[-1]]
    signs = [_sign(axis, pieces, *edges[i : i + 2]) for i in range(0, len(edges), 2)]
    around = zip(found, pairwise(signs), strict=True)
    return [Part(float(low), float(high), *sides) for (low, high), sides in around]


def zeros(axis: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Where the line through the points (axis, means) is 0, in rising order."""
    left, right = means[:-1], means[1:]
    share = (left / np.where(left == right, 1, left - right))[left * right < 0]
    between = axis[:-1][left * right < 0] + np.diff(axis)[left * right < 0] * share
    return np.sort(np.concatenate([between, axis[means == 0]]))


def _piece(left: np.ndarray, right: np.ndarray, confidence: float, noise) -> Piece:
    """Solve mean(u)^2 <= max(t^2 var(u) / n, noise(u)^2), of blocks' left + u (right - left)."""
    both = ~(np.isnan(left) | np.isnan(right))
    left, change, n = left[both], (right - left)[both], int(both.sum())
    if n < 2:
        return Piece([(0.0, 1.0)], math.nan, math.nan)
    m0, m1 = float(left.mean()), float(change.mean())
    left, change, k = left - m0, change - m1, t_quantile(n, confidence) ** 2 / (n * (n - 1))
    a = m1 * m1 - k * float(change @ change)
    b = 2 * (m0 * m1 - k * float(left @ change))
    c = m0 * m0 - k * float(left @ left)
    zero = [-m0 / m1] if m1 else []
    n0, n1 = float(noise[0]), float(noise[1] - noise[0])
    edges = [(way * n0 - m0) / (m1 - way * n1) for way in (-1, 1) if m1 != way * n1]
    cuts = sorted({0.0, 1.0, *(u for u in _roots(a, b, c) + zero + edges if 0 < u < 1)})
    middles = [(s, e, (s + e) / 2) for s, e in pairwise(cuts)]
    found = [(s, e) for s, e, u in middles
             if (a * u + b) * u + c <= 0 or abs(m0 + m1 * u) < n0 + n1 * u]  # fmt: skip
    # Blocks without any spread leave the zero alone, which rounding may put outside.
    found += [(u, u) for u in zero if 0 <= u <= 1 and not any(s <= u <= e for s, e in found)]
    return Piece(sorted(found), m0, m0 + m1)


def _roots(a: float, b: float, c: float) -> list[float]:
    square = b * b - 4 * a * c
    if square < 0:
        return []
    q = -(b + math.copysign(math.sqrt(square), b)) / 2  # no difference of nearly equal numbers
    return [top / bottom for top, bottom in ((q, a), (c, q)) if abs(bottom) > 1e-300]


def _merged(axis: np.ndarray, pieces: list[Piece]) -> list[list[float]]:
    """Stretches of all pieces along the axis; those that touch become one."""
    spans = [
        (_place(axis, i, start), _place(axis, i, end))
        for i, piece in enumerate(pieces)
        for start, end in piece.inside
    ]
    for i, (before, after) in enumerate(pairwise(pieces), 1):
        if before.end * after.start < 0:  # a missing cell changes the blocks: a jump across 0
            spans.append((axis[i], axis[i]))
    merged: list[list[float]] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1e-12 * (axis[-1] - axis[0]):
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return merged


def _place(axis: np.ndarray, i: int, u: float) -> float:
    return axis[i] + u * (axis[i + 1] - axis[i]) if u < 1 else axis[i + 1]


def _sign(axis: np.ndarray, pieces: list[Piece], low: float, high: float) -> int:
    """Sign of the mean curve between two parts of the set; 0 where nothing lies between."""
    if not low < high:
        return 0
    middle = (low + high) / 2
    i = min(int(np.searchsorted(axis, middle, side="right")) - 1, len(pieces) - 1)
    u = (middle - axis[i]) / (axis[i + 1] - axis[i])
    mean = pieces[i].start + u * (pieces[i].end - pieces[i].start)
    return 1 if mean > 0 else -1
