"""How many times as long does B take as A, and may one say so?

Everything here works on one number a block: the median of one process's samples. Samples inside a
block share a process, its memory layout and its clocks, so they are not independent of each other;
a thousand of them still are one observation of what differs between processes. Blocks are the
independent observations, there are few of them (three to ten), and for few observations Student's t
on logarithms holds its 95 %. A bootstrap does not: over three blocks that differ, its interval
covers the truth in about 80 % of studies.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import stats

VERDICTS = ("FASTER", "SLOWER", "SAME", "AMBIGUOUS")


@dataclass(frozen=True)
class Ratio:
    """Time of B over time of A: below 1, B is faster."""

    value: float  # geometric mean over blocks
    low: float  # of the interval; nan where a side has fewer than two blocks
    high: float
    blocks: int  # of the side that has fewer
    paired: bool  # A and B took turns inside each block
    confidence: float


@dataclass(frozen=True)
class Geomean:
    """A geometric mean of ratios with how many cases lie on either side of 1.

    The mean alone hid 47 slower cases of 140 in one report (flashinfer#4726).
    """

    value: float
    cases: int
    below: int  # cases with a ratio < 1
    above: int  # cases with a ratio > 1


@cache
def t_quantile(blocks: float, confidence: float) -> float:
    """Half-width of a two-sided t interval in standard errors, for `blocks` observations."""
    return float(stats.t.ppf(0.5 + confidence / 2, blocks - 1))


def from_logs(logs: np.ndarray, confidence: float = 0.95) -> Ratio:
    """The ratio whose logarithm each block observed once: a t interval over blocks."""
    centre, half = float(logs.mean()), math.nan
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / math.sqrt(len(logs))
        half = t_quantile(len(logs), confidence) * error
    return _around(centre, half, len(logs), True, confidence)


def _around(centre: float, half: float, blocks: int, paired: bool, confidence: float) -> Ratio:
    low, value, high = (math.exp(min(v, 700.0)) for v in (centre - half, centre, centre + half))
    return Ratio(value, low, high, blocks, paired, confidence)


def ratio(a_us, b_us, *, paired: bool, confidence: float = 0.95) -> Ratio:
    """Time of B over time of A from medians per process block (one number a block).

    `paired`: element i of both comes from block i, so a t interval over the blocks' log ratios.
    Otherwise Welch's interval (1947) over log medians, which allows each side its own spread.
    Raises ValueError on no blocks, on a time that is no positive number, and on pairs that do not
    pair up.
    """
    a, b = _logs("a_us", a_us), _logs("b_us", b_us)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence={confidence} lies outside (0, 1)")
    if paired and len(a) != len(b):
        raise ValueError(f"paired blocks do not pair up: {len(a)} of A, {len(b)} of B")
    return from_logs(b - a, confidence) if paired else _welch(a, b, confidence)


def _logs(name: str, times_us) -> np.ndarray:
    times = np.asarray(times_us, dtype=float).reshape(-1)
    if not times.size:
        raise ValueError(f"{name} has no blocks")
    wrong = times[~(np.isfinite(times) & (times > 0))]
    if wrong.size:
        raise ValueError(f"{name} holds {wrong[0]}, which is no positive time")
    return np.log(times)


def _welch(a: np.ndarray, b: np.ndarray, confidence: float) -> Ratio:
    centre, half = float(b.mean() - a.mean()), math.nan
    if min(len(a), len(b)) > 1:
        parts = [np.var(side, ddof=1) / len(side) for side in (a, b)]
        total = sum(parts)
        weights = [p**2 / (len(s) - 1) for p, s in zip(parts, (a, b), strict=True)]
        # Sides without any spread leave 0/0 degrees of freedom and an interval of no width.
        freedom = total**2 / sum(weights) if sum(weights) > 0 else 1.0
        half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * math.sqrt(total)
    return _around(centre, half, min(len(a), len(b)), False, confidence)


def verdict(r: Ratio, band: float = 0.005, noise: float = 0.0) -> str:
    """One of VERDICTS: what the interval of B over A allows one to say of B.

    `band`: the relative difference that nobody cares about. `noise`: the absolute log ratio up to
    which an A/A pair of the same study may differ (`noise` below); nothing smaller is claimed.
    """
    if not (math.isfinite(r.low) and math.isfinite(r.high)):
        return "AMBIGUOUS"
    if 1 / (1 + band) <= r.low and r.high <= 1 + band:
        return "SAME"
    if not (r.low <= 1 <= r.high) and abs(math.log(r.value)) > noise:
        return "FASTER" if r.value < 1 else "SLOWER"
    return "AMBIGUOUS"


def noise(first_us, twin_us) -> float:
    """The noise floor of an A/A pair: the largest |log ratio| that its 95 % interval reaches.

    Block medians of an arm and of the same arm run once more in the same blocks. One block has no
    interval: then the |log ratio| of that pair.
    """
    r = ratio(first_us, twin_us, paired=True)
    ends = (r.low, r.high) if r.blocks > 1 else (r.value,)
    return max(abs(math.log(end)) for end in ends)


def as_share(log_ratio: float) -> float:
    """A log ratio as a share of the time, as people write it: 0.4 becomes 0.49."""
    return math.expm1(log_ratio)


def geomean(values: Iterable[float]) -> Geomean:
    """The geometric mean of ratios with its counts. Raises ValueError on none or on no ratio."""
    values = list(values)
    if not values:
        raise ValueError("a geometric mean of no cases")
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{value} is no positive ratio")
    mean = math.exp(sum(map(math.log, values)) / len(values))
    return Geomean(mean, len(values), sum(v < 1 for v in values), sum(v > 1 for v in values))


def slowdown(
    r: Ratio, base_us: float, *, relative: float = 0.03, absolute_us: float = 0.5
) -> str | None:
    """Words of a confirmed slowdown of B for a regression gate, or None.

    Confirmed: the interval lies above 1, and the difference is more than `relative` of `base_us`
    (A's time) and more than `absolute_us`: 3 % of a 2 µs kernel is within the clock's grain.
    """
    if not (math.isfinite(base_us) and base_us > 0):
        raise ValueError(f"base_us={base_us} is no positive time")
    extra_us = (r.value - 1) * base_us
    if not (r.low > 1 and r.value > 1 + relative and extra_us > absolute_us):
        return None
    times = f"{base_us:.2f} to {base_us + extra_us:.2f} us"
    interval = f"{r.low - 1:+.1%} to {r.high - 1:+.1%}"
    return f"slower by {r.value - 1:.1%} ({interval}, {r.blocks} blocks): {times}"
