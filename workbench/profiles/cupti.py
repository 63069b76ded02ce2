"""Activity rows as cupti-python hands them out, kept as JSON lines.

The first line is HEADER. Each other line is an object with `kind` (one of kernel, copy, memset,
graph, runtime, driver, push_pop, start_end, annotation, node), `start` and `end` in nanoseconds,
`name`, `process`, and what else FIELDS lists for its kind; what is not known is left out.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from .events import (
    APIS,
    GPU_ROW,
    KINDS,
    LAUNCH_ROW,
    NODE_ROW,
    OPEN,
    RANGE_ROW,
    RANGES,
    UNKNOWN,
    Events,
    Names,
    Unreadable,
    made,
)

HEADER = {"format": "workbench cupti", "schema": 1}
FIELDS = {
    "gpu": {"device": UNKNOWN, "stream": UNKNOWN, "correlation": 0, "bytes": UNKNOWN, "graph": 0,
            "node": 0},
    "call": {"thread": UNKNOWN, "correlation": 0},
    "range": {"thread": UNKNOWN, "payload": None},
    "node": {"thread": UNKNOWN, "node": 0, "original": 0},
}  # fmt: skip
GROUPS = dict.fromkeys(KINDS, "gpu") | dict.fromkeys(APIS, "call") | dict.fromkeys(RANGES, "range")
GROUPS["node"] = "node"
# What cupti-python's activity objects call these fields.
THEIRS = {"device": "device_id", "stream": "stream_id", "correlation": "correlation_id",
          "graph": "graph_id", "node": "graph_node_id", "thread": "thread_id",
          "process": "process_id", "original": "original_graph_node_id"}  # fmt: skip


def lines(kind: str, activities: Iterable) -> Iterator[str]:
    """Lines for activities of one kind, which are dicts or have attributes, ours or CUPTI's.

    Raises ValueError on an unknown kind, KeyError where an activity has no start.
    """
    if kind not in GROUPS:
        raise ValueError(f"kind {kind!r} is none of {', '.join(GROUPS)}")
    for activity in activities:
        given = activity if isinstance(activity, dict) else _attributes(activity)
        row = {"kind": kind, "start": given["start"]}
        for name in ("end", "name", "process", *FIELDS[GROUPS[kind]]):
            value = given.get(name, given.get(THEIRS.get(name, name)))
            if value is not None:
                row[name] = value
        yield json.dumps(row, separators=(",", ":")) + "\n"


def _attributes(activity) -> dict:
    names = ("start", "end", "name", "process", "bytes", "payload", *THEIRS, *THEIRS.values())
    return {name: getattr(activity, name) for name in names if hasattr(activity, name)}


def read(path: Path) -> Events:
    """The events of such a file. Raises Unreadable where it is none, or not a whole one."""
    path = Path(path)
    groups: dict[str, list] = {name: [] for name in FIELDS}
    names = Names()
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line, parse_float=_whole)
                if number == 1:
                    _first(row)
                    continue
                group = GROUPS[row["kind"]]
                groups[group].append(_row(group, row, names))
            except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
                raise Unreadable(path, f"line {number} is no activity: {error!r}") from None
    if not path.stat().st_size:
        raise Unreadable(path, "an empty file")
    try:
        rows = [np.array(groups[name], dtype) for name, dtype in
                zip(FIELDS, (GPU_ROW, LAUNCH_ROW, RANGE_ROW, NODE_ROW), strict=True)]  # fmt: skip
    except (OverflowError, TypeError, ValueError) as error:
        raise Unreadable(path, f"an activity with odd values: {error}") from None
    return made("cupti", *rows, names)


def _whole(text: str) -> int:
    raise ValueError(f"{text} is no whole number")


def _first(row: dict) -> None:
    if row != HEADER:
        raise ValueError(f"its first line is {row!r:.60}, not {HEADER}")


def _row(group: str, row: dict, names: Names) -> tuple:
    times = row["start"], row.get("end", OPEN), row.get("process", UNKNOWN)
    rest = [row.get(name, absent) for name, absent in FIELDS[group].items()]
    if group == "node":
        return *times, *rest
    name = names.number(row.get("name"))
    if group == "gpu":
        return KINDS.index(row["kind"]), name, *times, *rest
    if group == "call":
        return APIS.index(row["kind"]), name, *times, *rest
    thread, payload = rest
    kind = RANGES.index(row["kind"])
    return kind, name, names.number(""), *times, thread, payload or 0, payload is not None
