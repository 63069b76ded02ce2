"""From where on is B faster than A? Crossings of the ratio with 1, each with an interval.

Each block's log ratios are joined by straight lines in log x. The confidence set of a crossing is
every x whose Student-t interval of the mean over blocks contains 0: a test turned inside out, so
it holds a true crossing in 95 % of studies wherever the curve is close to straight between its
points. A kernel's time is a staircase (one wave of programs more is a step), where the interval can
be narrow in the wrong place: so each crossing also names the measured points on its two sides,
between which it lies whatever the curve does there, and refinement closes in on those.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ._confidence_set import Part, parts, zeros
from .ratio import Ratio, from_logs, verdict


@dataclass(frozen=True)
class Crossing:
    """Who is faster changes here, and both sides are beyond doubt."""

    at: float  # where the mean curve passes 1
    low: float  # 95 % interval, if the curve is straight between its points
    high: float
    direction: str  # "A" or "B": who is faster beyond it
    between: tuple[float, float]  # measured points on its two sides, both beyond doubt


@dataclass(frozen=True)
class Unresolved:
    """Neither is shown to be faster here, and the two sides do not tell of a change.

    None stands for the end of the measured range: the other one may win from here to that end.
    Without None it is a touch, with the same one faster on both sides.
    """

    at: float | None  # where the mean curve passes 1, if it does
    low: float | None
    high: float | None
    before: str | None  # "A" or "B": who is faster below `low`
    after: str | None


@dataclass(frozen=True)
class Crossover:
    """What one series of points says about where B overtakes A."""

    x: tuple[float, ...]
    linear: bool  # straight lines in x, because some x <= 0; otherwise in log x
    points: tuple[Ratio, ...]  # time of B over time of A at each x
    crossings: tuple[Crossing, ...]
    unresolved: tuple[Unresolved, ...]
    at_ends: tuple[str, str]  # verdicts on B at the first and at the last x
    count: int  # of crossings
    winner: str | None  # "A" or "B" where it is faster in the whole range


class Row(NamedTuple):
    """One crossing of a unit contour; None where its band leaves the measured range."""

    y: float
    at: float | None
    low: float | None
    high: float | None


def crossover(
    x, log_ratios, *, confidence: float = 0.95, band: float = 0.005, noise=0.0
) -> Crossover:
    """Find where B over A passes 1 from log ratios [points, blocks], paired by block.

    A nan cell is a block that lacks the point; a stretch uses the blocks that have both its ends.
    `band` is for `at_ends` alone; where the mean log ratio is below `noise`, the floor of an A/A
    pair (one number, or one for each x), nobody is called faster. Raises ValueError on fewer than
    two points, on an x given twice and on a point that no block has.
    """
    floor = np.broadcast_to(np.asarray(noise, dtype=float), np.shape(x))[np.argsort(x)]
    x, logs = _checked(x, log_ratios)
    linear = bool(x[0] <= 0)
    axis = x if linear else np.log(x)
    points = tuple(from_logs(row[~np.isnan(row)], confidence) for row in logs)
    found = parts(axis, logs, confidence, floor)
    where = zeros(axis, np.nanmean(logs, axis=1))
    crossings = [_crossing(p, where, linear, x) for p in found if p.before * p.after < 0]
    # between points that are beyond doubt, on one side, only missing cells can bend the curve
    doubted = [p for p in found if p.before * p.after <= 0 or _holds_a_point(p, axis)]
    unresolved = [_unresolved(p, where, linear) for p in doubted if p.before * p.after >= 0]
    ends = tuple(verdict(points[i], band, float(floor[i])) for i in (0, -1))
    return Crossover(
        x=tuple(map(float, x)), linear=linear, points=points, crossings=tuple(crossings),
        unresolved=tuple(unresolved), at_ends=ends, count=len(crossings),
        winner=None if doubted else _faster(points[0].value - 1),
    )  # fmt: skip


def _checked(x, log_ratios) -> tuple[np.ndarray, np.ndarray]:
    x, logs = np.asarray(x, dtype=float), np.asarray(log_ratios, dtype=float)
    if x.ndim != 1 or logs.ndim != 2 or len(x) != len(logs):
        raise ValueError(f"log ratios {logs.shape} are not [points, blocks] for x {x.shape}")
    if len(x) < 2:
        raise ValueError(f"a crossing needs two points or more, not {len(x)}")
    if not np.isfinite(x).all() or np.isinf(logs).any():
        raise ValueError("x and log ratios must be finite (a missing ratio is nan)")
    order = np.argsort(x)
    x, logs = x[order], logs[order]
    if (twice := x[1:][np.diff(x) == 0]).size:
        raise ValueError(f"x={twice[0]:g} is given twice")
    if (bare := x[np.isnan(logs).all(axis=1)]).size:
        raise ValueError(f"no block has the point x={bare[0]:g}")
    return x, logs


def _faster(sign: float) -> str | None:
    return None if sign == 0 else "B" if sign < 0 else "A"


def _back(value: float, linear: bool) -> float:
    return float(value) if linear else math.exp(value)


def _crossing(part: Part, where: np.ndarray, linear: bool, x: np.ndarray) -> Crossing:
    """The crossing in `part`; where noise bends the mean across 0 several times, the middle one."""
    own = where[(part.low <= where) & (where <= part.high)]
    at = own[len(own) // 2] if len(own) else (part.low + part.high) / 2
    axis = x if linear else np.log(x)
    # a point on an end of the part is not beyond doubt
    sides = float(x[axis < part.low].max()), float(x[axis > part.high].min())
    at, low, high = (_back(v, linear) for v in (at, part.low, part.high))
    return Crossing(at, low, high, _faster(part.after), sides)


def _holds_a_point(part: Part, axis: np.ndarray) -> bool:
    return bool(((part.low < axis) & (axis < part.high)).any())


def _unresolved(part: Part, where: np.ndarray, linear: bool) -> Unresolved:
    own = where[(part.low <= where) & (where <= part.high)]
    return Unresolved(
        at=_back(own[len(own) // 2], linear) if len(own) else None,
        low=_back(part.low, linear) if part.before else None,
        high=_back(part.high, linear) if part.after else None,
        before=_faster(part.before),
        after=_faster(part.after),
    )


def next_point(
    found: Crossover, taken: Iterable[float], resolution: float, *, whole: bool = False
) -> float | None:
    """Where to measure next: the middle of the widest gap between points that holds a crossing.

    None once no gap that a crossing's interval touches is wider than the resolution: neighbours
    within a factor of 1 + `resolution` (on a linear axis: within `resolution` of the range). What
    is still undecided then needs more blocks, not more points. Without any crossing, what is
    unresolved is looked into. `whole`: the axis counts something, so the answer is rounded.
    """
    scale = float if found.linear else math.log
    extent = found.x[-1] - found.x[0]
    fine = resolution * extent if found.linear else math.log1p(resolution)
    ticks = sorted({*map(float, taken), *found.x})
    gaps = set()
    for low, high in (_span(found, part) for part in found.crossings or found.unresolved):
        for a, b in pairwise(ticks):
            if a <= high and low <= b and scale(b) - scale(a) > fine * (1 + 1e-9):
                gaps.add((scale(b) - scale(a), a, b))
    for _, a, b in sorted(gaps, reverse=True):
        middle = _back((scale(a) + scale(b)) / 2, found.linear)
        middle = float(round(middle)) if whole else middle
        if a < middle < b:
            return middle
    return None


def _span(found: Crossover, part: Crossing | Unresolved) -> tuple[float, float]:
    low = found.x[0] if part.low is None else part.low
    return low, found.x[-1] if part.high is None else part.high


def frontier(y_values: Sequence[float], crossovers: Sequence[Crossover]) -> list[Row]:
    """The unit contour of a plane: a row for each crossing, or open end, of each series at y.

    A series with one winner throughout has no row: the contour is outside its range.
    """
    if len(y_values) != len(crossovers):
        raise ValueError(f"{len(y_values)} values of y for {len(crossovers)} series")
    rows = []
    for y, found in zip(y_values, crossovers, strict=True):
        ends = [u for u in found.unresolved if u.low is None or u.high is None]
        rows += [Row(float(y), c.at, c.low, c.high) for c in (*found.crossings, *ends)]
    return rows


def said(found: Crossover, a: str = "A", b: str = "B", axis: str = "") -> str:
    """The finding in one sentence, with the names of A, of B and of the axis."""
    names, mark = {"A": a, "B": b}, f"{axis}=" if axis else ""
    whole = all(v.is_integer() for v in found.x) and found.x[-1] > 10
    number = lambda v: f"{v:.0f}" if whole else f"{float(f'{v:.4g}'):.12g}"  # noqa: E731
    if found.winner:
        return f"none in range: {names[found.winner]} is faster everywhere"
    changes = [_change(c, names, mark, number) for c in found.crossings]
    doubts = [_doubt(u, names, mark, number) for u in found.unresolved]
    head = f"{found.count} crossings: " if found.count > 1 else ""
    head = head if changes else "none shown in range: "
    return head + "; ".join([", ".join(changes)] * bool(changes) + doubts)


def _change(c: Crossing, names: dict[str, str], mark: str, number) -> str:
    before, after = (f"{v:.12g}" for v in c.between)
    told = f"{names[c.direction]} is faster from {mark}{after} on, not yet at {before}"
    if number(c.low) == number(c.high):
        return told
    return f"{told} (if straight between: {number(c.at)}, {number(c.low)} to {number(c.high)})"


def _doubt(part: Unresolved, names: dict[str, str], mark: str, number) -> str:
    other = {"A": names["B"], "B": names["A"]}
    if part.low is None and part.high is None:
        return "neither is shown to be faster anywhere"
    if part.low is None:
        tail = f", above it {names[part.after]} is faster"
        return f"{other[part.after]} may be faster below {mark}{number(part.high)}{tail}"
    if part.high is None:
        tail = f", below it {names[part.before]} is faster"
        return f"{other[part.before]} may be faster from {mark}{number(part.low)} on{tail}"
    where = f"from {mark}{number(part.low)} to {number(part.high)}"
    return f"neither is shown to be faster {where}, {names[part.before]} is on both sides"
