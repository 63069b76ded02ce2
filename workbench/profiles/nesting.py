"""Which range is open around a call: intervals on one thread, nested or not.

A range holds a call when it starts no later and ends no sooner. Of those that do, the innermost is
the one that starts last; of ranges that start together, the one that ends first. That also says it
for ranges that overlap without nesting, as start/end ranges may.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd


class Line(NamedTuple):
    """The intervals of one thread in order: by start, the longer first."""

    rows: np.ndarray  # where each stands in the table it came from
    start: np.ndarray
    end: np.ndarray


def lines(threads: np.ndarray, start: np.ndarray, end: np.ndarray) -> dict[int, Line]:
    """The intervals of each thread; `threads` are small numbers."""
    order = np.lexsort((-end, start, threads))
    threads = threads[order]
    numbers = np.unique(threads)
    edges = np.append(np.searchsorted(threads, numbers), len(threads))
    slices = {n: order[a:b] for n, a, b in zip(numbers.tolist(), edges, edges[1:], strict=False)}
    return {n: Line(rows, start[rows], end[rows]) for n, rows in slices.items()}


def numbered(*tables: pd.DataFrame) -> list[np.ndarray]:
    """One number for each (process, thread), the same in all tables."""
    keys = pd.concat([table[["process", "thread"]] for table in tables])
    codes = [pd.factorize(keys[name])[0] for name in keys]
    joint = codes[0] * (codes[1].max(initial=0) + 1) + codes[1]
    return np.split(joint, np.cumsum([len(table) for table in tables])[:-1])


def outer(line: Line) -> tuple[np.ndarray, int]:
    """Of each interval, the last one before it that ends no sooner, -1 for none; how many cross.

    Whatever lies between the two ended sooner, so what outlasts an interval is found by following
    these links. All intervals follow at once, each step over what was skipped already: the steps
    are as many as the logarithm of the siblings and the depth.
    """
    at = np.arange(-1, len(line.end) - 1)
    skipped = np.full(len(at), np.iinfo("i8").min)  # the last end that was stepped over
    going = np.flatnonzero(at >= 0)
    while len(going := going[line.end[at[going]] < line.end[going]]):
        over = at[going]
        skipped[going] = np.maximum(skipped[going], line.end[over])
        at[going] = at[over]
        going = going[at[going] >= 0]
    crossing = (line.start < skipped) & (skipped < line.end)
    return at, int(np.count_nonzero(crossing))


def innermost(ranges: Line, links: np.ndarray, calls: Line) -> np.ndarray:
    """Row of the innermost range that holds each call, -1 for none; `links` are `outer`'s."""
    at = np.searchsorted(ranges.start, calls.start, side="right") - 1
    going = np.flatnonzero(at >= 0)
    while len(going := going[ranges.end[at[going]] < calls.end[going]]):
        at[going] = links[at[going]]
        going = going[at[going] >= 0]
    return np.where(at >= 0, ranges.rows[at], -1)


def open_at(times: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many of some intervals are open at each time."""
    began = np.searchsorted(np.sort(start), times, side="right")
    return began - np.searchsorted(np.sort(end), times, side="left")


def union(groups: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Length of what each interval adds to those before it in its group.

    Intervals come sorted by group, a number from 0, and start; a group's sum is its union's length.
    """
    if not len(end):
        return np.empty(0, "i8")
    # Ends as ranks: groups can then stand behind one another in one running maximum.
    ends, ranks = np.unique(end, return_inverse=True)
    high = np.maximum.accumulate(groups * len(ends) + ranks)
    before = np.append(-1, high[:-1])
    fresh = np.append(True, groups[1:] != groups[:-1])
    reached = np.where(fresh, start, ends[before % len(ends)])
    return np.maximum(end - np.maximum(start, reached), 0)
