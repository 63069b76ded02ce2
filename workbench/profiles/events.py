"""The one form that every reader gives: GPU rows, launches, ranges and graph nodes, in nanoseconds.

Times are int64 nanoseconds on the profile's own clock, CPU and GPU alike. Numbers that a profile
does not give are -1 (process, thread, device, stream, bytes) or 0 (correlation, graph, node): all
profilers count the latter from 1.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

# What the numbers of a row may be named.
KINDS = ("kernel", "copy", "memset", "graph")  # graph: a whole replay as one row
APIS = ("runtime", "driver")
RANGES = ("push_pop", "start_end", "annotation")
UNKNOWN = -1
ABSENT = {"process": UNKNOWN, "thread": UNKNOWN, "device": UNKNOWN, "stream": UNKNOWN,
          "bytes": UNKNOWN, "correlation": 0, "graph": 0, "node": 0, "domain": "",
          "payload": pd.NA}  # fmt: skip
OPEN = -1  # the end of a range that was never closed

_TIMES = [("start_ns", "i8"), ("end_ns", "i8"), ("process", "i8")]
# What readers fill: `kind` numbers KINDS, APIS or RANGES, `name` and `domain` number texts.
_WHAT = [("kind", "i1"), ("name", "i8")]
_NUMBERS = [(n, "i8") for n in ("stream", "correlation", "bytes", "graph", "node")]
GPU_ROW = np.dtype([*_WHAT, *_TIMES, ("device", "i8"), *_NUMBERS])
LAUNCH_ROW = np.dtype([*_WHAT, *_TIMES, ("thread", "i8"), ("correlation", "i8")])
RANGE_ROW = np.dtype([*_WHAT, ("domain", "i8"), *_TIMES, ("thread", "i8"), ("payload", "i8"),
                      ("has_payload", "?")])  # fmt: skip
NODE_ROW = np.dtype([*_TIMES, ("thread", "i8"), ("node", "i8"), ("original", "i8")])


class Unreadable(ValueError):
    """A file that is no profile, or not a whole one: its name and the reason, in one line."""

    def __init__(self, path: Path | str, reason: object):
        super().__init__(" ".join(f"{path}: {reason}".split()))


@dataclass(frozen=True)
class Events:
    """All that a profile says, one row an event; `notes` say what it lacks."""

    source: str  # "nsys", "kineto" or "cupti"
    graph_trace: str  # "none", "graph" (a replay is one row) or "node" (each kernel is one)
    gpu: pd.DataFrame  # kind, name, start_ns, end_ns, process, device, stream, correlation, bytes,
    # graph, node
    launches: pd.DataFrame  # kind, name, start_ns, end_ns, process, thread, correlation: CPU time
    ranges: pd.DataFrame  # kind, name, domain, start_ns, end_ns, process, thread, payload: CPU time
    nodes: pd.DataFrame  # start_ns, end_ns, process, thread, node, original: how nodes were made
    notes: tuple[str, ...]

    @property
    def parts(self) -> tuple[pd.DataFrame, ...]:
        """The tables whose rows have a kind and a name."""
        return self.gpu, self.launches, self.ranges


class Names(dict):
    """Texts to the numbers that stand for them, in the order in which they were first met."""

    def number(self, text: object) -> int:
        if not isinstance(text, str):
            text = "" if text is None else str(text)
        return self.setdefault(text, len(self))


def made(source: str, gpu, launches, ranges, nodes, names: Names, notes=()) -> Events:
    """Events from arrays of GPU_ROW, LAUNCH_ROW, RANGE_ROW and NODE_ROW.

    Rows that end before they start are dropped, and so are GPU rows without times and ranges that
    were never closed; notes count them. A GPU row of no known process gets the one whose launch has
    its correlation, where that is one.
    """
    notes = list(notes)
    timed = (gpu["start_ns"] != 0) | (gpu["end_ns"] != 0)  # CUPTI writes 0 where it missed both
    gpu = _kept(gpu, timed, "GPU rows without times", notes)
    closed = ranges["end_ns"] != OPEN
    ranges = _kept(ranges, closed, "ranges that were never closed", notes)
    gpu, launches, ranges = (
        _kept(rows, rows["end_ns"] >= rows["start_ns"], f"{what} that end before they start",
              notes)
        for rows, what in ((gpu, "GPU rows"), (launches, "launches"), (ranges, "ranges"))
    )  # fmt: skip
    gpu = _with_processes(gpu, launches, notes)
    texts = list(names) or [""]
    traced = _graph_trace(gpu, launches, texts)
    notes += _lacks(gpu, launches, ranges, traced)
    given = ranges["has_payload"]
    payload = pd.array(ranges["payload"], dtype="Int64")
    payload[~given] = pd.NA
    return Events(
        source,
        traced,
        _frame(gpu, texts, KINDS),
        _frame(launches, texts, APIS),
        _frame(ranges, texts, RANGES).drop(columns="has_payload").assign(payload=payload),
        _frame(nodes, texts),
        tuple(notes),
    )


def table(events: Events) -> pd.DataFrame:
    """Everything that has a time as one table, in order of start_ns."""
    columns = dict.fromkeys(c for part in events.parts for c in part)
    kinds = [*KINDS, *APIS, *RANGES]
    parts = []
    for part in events.parts:
        absent = {c: ABSENT[c] for c in columns if c not in part}
        parts.append(part.assign(kind=part["kind"].cat.set_categories(kinds), **absent)[[*columns]])
    return pd.concat(parts).sort_values("start_ns", kind="stable", ignore_index=True)


def _kept(rows, good, what: str, notes: list[str]):
    """The good rows; a note counts the others."""
    bad = len(rows) - int(np.count_nonzero(good))
    if not bad:
        return rows
    notes.append(f"left out {what}: {bad:,}")
    return rows[good]


def _with_processes(gpu, launches, notes: list[str]):
    """GPU rows, those of no known process given the process that launched their correlation."""
    lost = (gpu["process"] == UNKNOWN) & (gpu["correlation"] > 0)
    if not lost.any():
        return gpu
    pairs = pd.DataFrame({n: launches[n] for n in ("correlation", "process")}).drop_duplicates()
    clear = pairs.drop_duplicates("correlation", keep=False).set_index("correlation")["process"]
    found = pd.Series(gpu["correlation"][lost]).map(clear)
    twice = found.isna() & np.isin(gpu["correlation"][lost], pairs["correlation"])
    if twice.any():
        notes.append(
            "GPU rows without a process whose correlation launches of several have, matched to "
            f"none: {twice.sum():,}"
        )
    gpu = gpu.copy()
    gpu["process"][lost] = found.fillna(UNKNOWN).astype("int64")
    return gpu


def _graph_trace(gpu, launches, texts: list[str]) -> str:
    """How replays were traced: by the rows that there are."""
    if (gpu["kind"] == KINDS.index("graph")).any():
        return "graph"
    if (gpu["node"] != 0).any():
        return "node"
    replays = [i for i, text in enumerate(texts) if "GraphLaunch" in text]
    replayed = launches["correlation"][np.isin(launches["name"], replays)]
    return "node" if np.isin(gpu["correlation"], replayed[replayed > 0]).any() else "none"


def _lacks(gpu, launches, ranges, traced: str) -> list[str]:
    """What a reader of the totals should know."""
    notes = []
    if not len(gpu):
        notes.append("no GPU rows")
    if not len(launches):
        notes.append("no launches: no GPU time can be attributed")
    if not len(ranges):
        notes.append("no ranges: all that was launched is outside of them")
    if traced == "node":
        notes.append("graph nodes were traced one by one, which slows short kernels")
    if traced == "graph":
        notes.append("graph replays were traced whole: a replay is one row, its kernels are unseen")
        if (gpu["node"] != 0).any():
            notes.append("some nodes were traced, too: graph rows hold the time of kernels again")
    return notes


def _frame(rows, texts: list[str], kinds: tuple[str, ...] = ()) -> pd.DataFrame:
    """The rows as columns; numbers of texts become categories."""
    columns = {}
    for name in rows.dtype.names:
        column = np.ascontiguousarray(rows[name])
        if name == "kind":
            column = pd.Categorical.from_codes(column, kinds)
        elif name in ("name", "domain"):
            column = pd.Categorical.from_codes(column, texts)
        columns[name] = column
    return pd.DataFrame(columns, copy=False)
