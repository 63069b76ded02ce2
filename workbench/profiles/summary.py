"""Where the GPU time went: by range, and by device."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from .attribution import Attributed, threads
from .events import UNKNOWN, Events
from .nesting import union

WORK = ("kernel", "graph")  # what computes; copies and memsets are asked for
PAIRS = 1 << 22  # pairs of a range and a GPU row that are held at a time


def by_range(
    found: Attributed, kinds: tuple[str, ...] = WORK, through: str = "launch", each: bool = False
) -> pd.DataFrame:
    """GPU time of these kinds by range, the longest first: a row for each process and name.

    `ranges` is how many there are, `rows` the GPU rows whose call lies in any of them and
    `inclusive_ns` their time, each row once however often a name nests in itself; `self_rows` and
    `self_ns` leave out what lies in a range further inside. `share` is inclusive_ns over the
    profile's whole time of these kinds. `busy_ns` is how long at least one of these rows ran,
    summed over devices: less than inclusive_ns where streams overlap. `calls` launched the rows, in
    `call_ns` of CPU time; a replay is one call.

    `through` is "launch", or "capture" for the ranges in which graph nodes came to be. With `each`
    there is a row for every range, in order of time, with occurrence (of the name in its process,
    from 0), start_ns, end_ns, thread, domain and payload. Raises ValueError on another `through`.
    """
    if through not in ("launch", "capture"):
        raise ValueError(f"through={through!r} is neither launch nor capture")
    gpu, ranges = found.events.gpu, found.events.ranges
    link, around, calls = (
        (found.launch, found.range, found.events.launches) if through == "launch"
        else (found.capture, found.capture_range, found.events.nodes)
    )  # fmt: skip
    wanted = gpu["kind"].isin(kinds).to_numpy()
    spent = _length(gpu)
    groups, table = _groups(ranges, each)
    rows, part = _parts(np.flatnonzero(wanted & (link >= 0)), link, ranges, calls, groups)
    ns, call_ns = (np.append(0, np.cumsum(x)) for x in (spent[rows], _length(calls)[part.calls]))
    inside = rows[around[rows] >= 0]
    whole = spent[wanted].sum()
    inclusive = _sums(part.group, ns[part.high] - ns[part.low], table)
    table = table.assign(
        rows=_sums(part.group, part.high - part.low, table),
        inclusive_ns=inclusive,
        self_rows=_sums(groups[around[inside]], np.ones(len(inside), "i8"), table),
        self_ns=_sums(groups[around[inside]], spent[inside], table),
        share=inclusive / whole if whole else np.nan,
        busy_ns=_busy(part, gpu.iloc[rows], table),
        calls=_sums(part.group, part.last_call - part.first_call, table),
        call_ns=_sums(part.group, call_ns[part.last_call] - call_ns[part.first_call], table),
    )
    if each:
        return table.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable",
                                 ignore_index=True)  # fmt: skip
    return table.sort_values("inclusive_ns", ascending=False, kind="stable", ignore_index=True)


def busy(events: Events, kinds: tuple[str, ...] = WORK) -> pd.DataFrame:
    """By device: its rows of these kinds, their gpu_ns in sum, busy_ns and span_ns.

    busy_ns is how long at least one of them ran, span_ns lasts from the first start to the last
    end: busy_ns <= span_ns, also where slices of one stream overlap in the profile.
    """
    gpu = events.gpu[events.gpu["kind"].isin(kinds)].sort_values(["device", "start_ns"])
    start, end = gpu["start_ns"].to_numpy(), gpu["end_ns"].to_numpy()
    added = union(gpu["device"].to_numpy() - UNKNOWN, start, end)  # a number from 0
    table = gpu[["device"]].assign(rows=1, gpu_ns=end - start, busy_ns=added)
    by_device = gpu.groupby("device")
    return (
        table.groupby("device").sum()
        .assign(span_ns=by_device["end_ns"].max() - by_device["start_ns"].min())
        .reset_index()
    )  # fmt: skip


class _Parts(NamedTuple):
    """Stretches of calls in each group of ranges, by group, no call twice; and their GPU rows."""

    group: np.ndarray
    first_call: np.ndarray  # calls[first_call:last_call]
    last_call: np.ndarray
    low: np.ndarray  # the GPU rows of those calls: rows[low:high]
    high: np.ndarray
    calls: np.ndarray  # all calls in order, thread after thread


def _groups(ranges: pd.DataFrame, each: bool) -> tuple[np.ndarray, pd.DataFrame]:
    """The group of each range, and the groups as the first columns of a table."""
    keys = ranges.groupby(["process", "name"], observed=True, sort=False)
    if not each:
        table = keys.size().rename("ranges").reset_index()
        return keys.ngroup().to_numpy(), table
    in_time = ranges.sort_values("start_ns", kind="stable")
    in_time = in_time.groupby(["process", "name"], observed=True, sort=False).cumcount()
    columns = ["process", "name", "start_ns", "end_ns", "thread", "domain", "payload"]
    table = ranges[columns].assign(ranges=1)
    table.insert(2, "occurrence", in_time)
    return np.arange(len(ranges)), table


def _parts(rows, link, ranges, calls, groups) -> tuple[np.ndarray, _Parts]:
    """GPU rows in order of their calls, and which of them are in each group of ranges."""
    range_lines, call_lines = threads(ranges, calls, link[rows])
    order = np.concatenate([np.empty(0, "i8"), *(line.rows for line in call_lines.values())])
    position = np.zeros(len(calls), "i8")
    position[order] = np.arange(len(order))
    first, last = np.zeros((2, len(ranges)), "i8")
    begin = 0
    for thread, line in call_lines.items():
        if thread in range_lines:
            over = range_lines[thread]
            first[over.rows] = begin + np.searchsorted(line.start, over.start, side="left")
            last[over.rows] = begin + np.searchsorted(line.end, over.end, side="right")
        begin += len(line.rows)

    in_group = np.lexsort((first, groups))
    group, first, last = groups[in_group], first[in_group], last[in_group]
    behind = group * (len(order) + 1)  # groups one behind the other, for one running maximum
    reached = np.append(0, np.maximum.accumulate(last + behind)[:-1])[: len(group)] - behind
    first = np.maximum(first, reached)
    last = np.maximum(first, last)  # a range that lies inside of a call holds none

    at = position[link[rows]]
    edges = np.append(0, np.cumsum(np.bincount(at, minlength=len(order))))
    some = last > first
    group, first, last = group[some], first[some], last[some]
    rows = rows[np.argsort(at, kind="stable")]
    return rows, _Parts(group, first, last, edges[first], edges[last], order)


def _sums(groups: np.ndarray, values: np.ndarray, table: pd.DataFrame) -> np.ndarray:
    """Integer sums by group, one for each row of the table."""
    found = np.zeros(len(table), "i8")
    np.add.at(found, groups, values)
    return found


def _length(table: pd.DataFrame) -> np.ndarray:
    return (table["end_ns"] - table["start_ns"]).to_numpy()


def _busy(part: _Parts, gpu: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """How long at least one of a group's rows ran, summed over devices; `gpu` are part's rows."""
    device = pd.factorize(gpu["device"])[0]
    start = gpu["start_ns"].to_numpy()
    in_time = np.lexsort((start, device))
    rank = np.empty(len(gpu), "i8")
    rank[in_time] = np.arange(len(gpu))
    device, start, end = device[in_time], start[in_time], gpu["end_ns"].to_numpy()[in_time]
    devices = int(device.max(initial=0)) + 1
    found = np.zeros(len(table), "i8")
    pairs = np.append(0, np.cumsum(part.high - part.low))
    a = 0
    while a < len(part.group):
        b = np.searchsorted(pairs, pairs[a] + PAIRS)  # then on to where a group ends
        b = np.searchsorted(part.group, part.group[min(b, len(part.group)) - 1], side="right")
        counts = np.diff(pairs[a : b + 1])
        at = np.arange(pairs[a], pairs[b]) + np.repeat(part.low[a:b] - pairs[a:b], counts)
        base = part.group[a]
        keys = np.repeat(part.group[a:b] - base, counts) * len(gpu) + rank[at]
        keys.sort()
        group, at = np.divmod(keys, len(gpu))
        found += _sums(group + base, union(group * devices + device[at], start[at], end[at]), table)
        a = b
    return found
