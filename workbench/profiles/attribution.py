"""GPU time to the calls that launched it, and to the ranges around those calls.

A GPU row belongs to the launch of its process that has its correlation; all kernels of a graph
replay to the call that launched the graph. A launch belongs to the ranges of its own thread that
hold it in CPU time: when the GPU ran it says nothing, most kernels start after their range closed.
A start/end range, which any thread may end, is the thread's that started it.
Where a row's graph node is known, the capture's range is the one around the call that made the
first of the nodes it was cloned from.
"""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from .events import KINDS, UNKNOWN, Events
from .nesting import Line, innermost, lines, numbered, open_at, outer

OUTCOMES = ("in a range", "outside every range", "no launch row")


@dataclass(frozen=True)
class Attributed:
    """A profile's events, and where each GPU row belongs: a row of another table, or -1."""

    events: Events
    launch: np.ndarray  # row of events.launches
    range: np.ndarray  # row of events.ranges: the innermost around the launch
    capture: np.ndarray  # row of events.nodes: how the node came to be at capture
    capture_range: np.ndarray  # row of events.ranges: the innermost around that
    other_thread: np.ndarray  # outside every range while another thread of its process had one open
    notes: tuple[str, ...]  # those of the events, and what could not be attributed

    @property
    def outcome(self) -> np.ndarray:
        """Which of OUTCOMES each GPU row has, as its number."""
        return np.where(self.launch < 0, 2, np.where(self.range < 0, 1, 0))


def attribute(events: Events) -> Attributed:
    """Every GPU row to its launch and its ranges."""
    notes = list(events.notes)
    launch = _launches(events, notes)
    capture = _captures(events, notes)
    launched, made = (link[link >= 0] for link in (launch, capture))
    ranges, launches = threads(events.ranges, events.launches, launched)
    around = _innermost(ranges, launches, len(events.launches), notes)
    made_in = _innermost(*threads(events.ranges, events.nodes, made), len(events.nodes), [])
    elsewhere = _elsewhere(events, np.flatnonzero(around == -1), ranges, launches)
    found = Attributed(
        events, launch, _through(launch, around), capture, _through(capture, made_in),
        _through(launch, elsewhere, absent=False), (),
    )  # fmt: skip
    return replace(found, notes=(*notes, *_unattributed(found)))


def totals(found: Attributed) -> pd.DataFrame:
    """GPU rows and nanoseconds of each kind by outcome; they add up to all of the profile's.

    Of the rows outside every range, `other_thread_rows` were launched while another thread of their
    process had one open: a push/pop range is its thread's alone.
    """
    gpu = found.events.gpu
    table = pd.DataFrame({
        "kind": gpu["kind"],
        "outcome": pd.Categorical.from_codes(found.outcome, OUTCOMES),
        "rows": 1,
        "gpu_ns": gpu["end_ns"] - gpu["start_ns"],
        "other_thread_rows": found.other_thread.astype("i8"),
    })  # fmt: skip
    return table.groupby(["kind", "outcome"], observed=False).sum().reset_index()


def threads(
    ranges: pd.DataFrame, calls: pd.DataFrame, used: np.ndarray
) -> tuple[dict[int, Line], dict[int, Line]]:
    """Ranges and those calls whose rows are in `used`, by thread, under the same numbers.

    A range of an unknown thread holds none. A call made within another counts as lasting as long
    as that one: calls of a thread are in one order.
    """
    rows = np.flatnonzero(np.bincount(used, minlength=len(calls)))
    calls = calls.iloc[rows] if len(rows) < len(calls) else calls
    numbers = numbered(ranges, calls)
    range_lines, call_lines = (
        lines(n, table["start_ns"].to_numpy(), table["end_ns"].to_numpy())
        for n, table in zip(numbers, (ranges, calls), strict=True)
    )
    thread = ranges["thread"].to_numpy()
    known = {n: line for n, line in range_lines.items() if thread[line.rows[0]] != UNKNOWN}
    return known, {
        n: Line(rows[line.rows], line.start, np.maximum.accumulate(line.end))
        for n, line in call_lines.items()
    }


def _launches(events: Events, notes: list[str]) -> np.ndarray:
    """Of each GPU row, the row of the first call of its process with its correlation."""
    gpu, launches = events.gpu, events.launches
    found = np.full(len(gpu), -1)
    reused = 0
    correlation = launches["correlation"].to_numpy()
    for process in pd.unique(launches["process"]):
        calls = np.flatnonzero((launches["process"] == process) & (correlation > 0))  # 0 is none
        start, end = (launches[name].to_numpy()[calls] for name in ("start_ns", "end_ns"))
        order = np.lexsort((start, correlation[calls]))
        calls, start, end = calls[order], start[order], end[order]
        keys = correlation[calls]
        reused += np.count_nonzero((keys[1:] == keys[:-1]) & (start[1:] > end[:-1]))
        rows = np.flatnonzero(gpu["process"] == process)
        found[rows] = _looked_up(keys, calls, gpu["correlation"].to_numpy()[rows])
    if reused:
        notes.append(f"calls with the correlation of an earlier one, which counts: {reused:,}")
    return found


def _looked_up(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The value of each wanted key, of the first where it has several, -1 of none; keys ascend."""
    if not len(keys):
        return np.full(len(wanted), -1)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], -1)


def _captures(events: Events, notes: list[str]) -> np.ndarray:
    """Of each GPU row, the row of events.nodes that made the first ancestor of its node."""
    gpu, nodes = events.gpu, events.nodes
    found = np.full(len(gpu), -1)
    circular = 0
    # A clone may have a row as a node, too, which names no original: the row that does comes first.
    nodes = nodes.sort_values(["node", "original"], ascending=[True, False], kind="stable")
    for process in pd.unique(nodes["process"]):
        mine = nodes[nodes["process"] == process].drop_duplicates("node")
        keys, each = mine["node"].to_numpy(), np.arange(len(mine))
        parent = _looked_up(keys, each, mine["original"].to_numpy())
        root = np.where(parent < 0, each, parent)
        for _ in range(len(mine).bit_length()):  # each step doubles how far a link reaches
            root = root[root]
        circles = parent[root] >= 0
        circular += np.count_nonzero(circles)
        made = np.where(circles, -1, mine.index.to_numpy()[root])
        rows = np.flatnonzero((gpu["process"] == process) & (gpu["node"] != 0))
        found[rows] = _looked_up(keys, made, gpu["node"].to_numpy()[rows])
    if circular:
        notes.append(f"graph nodes that are clones of themselves, without a capture: {circular:,}")
    return found


def _innermost(
    ranges: dict[int, Line], calls: dict[int, Line], count: int, notes: list[str]
) -> np.ndarray:
    """Of each of `count` calls, the row of the innermost range around it, -1 for none."""
    found = np.full(count, -1)
    crossing = 0
    for thread, line in ranges.items():
        links, crossed = outer(line)
        crossing += crossed
        if thread in calls:
            found[calls[thread].rows] = innermost(line, links, calls[thread])
    if crossing:
        notes.append(f"ranges that overlap another of their thread without nesting: {crossing:,}")
    return found


def _elsewhere(
    events: Events, outside: np.ndarray, ranges: dict[int, Line], calls: dict[int, Line]
) -> np.ndarray:
    """Whether each launch, of those outside every range, was made while another thread had one."""
    found = np.zeros(len(events.launches), bool)
    start = events.launches["start_ns"].to_numpy()
    process = events.launches["process"].to_numpy()
    every = events.ranges[["process", "start_ns", "end_ns"]].to_numpy().T
    is_outside = np.zeros(len(found), bool)
    is_outside[outside] = True
    for thread, line in calls.items():
        rows = line.rows[is_outside[line.rows]]
        if not len(rows):
            continue
        theirs = every[1:, every[0] == process[rows[0]]]
        own = ranges.get(thread, Line(*np.empty((3, 0), "i8")))
        found[rows] = open_at(start[rows], *theirs) > open_at(start[rows], own.start, own.end)
    return found


def _through(link: np.ndarray, values: np.ndarray, absent: int | bool = -1) -> np.ndarray:
    """values[link], `absent` where there is no link."""
    return np.where(link >= 0, values[link], absent) if len(values) else np.full(len(link), absent)


def _unattributed(found: Attributed) -> list[str]:
    """What a reader of the table by range has to know beside it."""
    notes = []
    kinds = found.events.gpu["kind"].to_numpy()
    for kind in KINDS:
        rows = kinds == kind
        lost = np.count_nonzero(found.launch[rows] < 0)
        if lost:
            notes.append(f"{lost:,} of {rows.sum():,} {kind} rows have no launch row")
    other = np.count_nonzero(found.other_thread)
    if other:
        notes.append(f"GPU rows launched while only another thread had a range open: {other:,}")
    return notes
