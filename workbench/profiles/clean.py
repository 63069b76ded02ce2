"""A Kineto trace as it may be given away: events and numbers; not where, by whom and how it ran.

What is kept is listed here, all else is dropped: the environment, host names, paths and arguments
of the process that was profiled. Times count from the first event. Ranges of this workbench get
back what an annotation has no place for: the domain, and the number of the case.
"""

import gzip
import json
from pathlib import Path

from .. import atomic
from ..ranges import CASE, DOMAIN, NAMES
from .kineto import CALLS, GPU, RANGE, nanoseconds

CPU = "cpu_op"
KEPT = {*GPU, *CALLS, RANGE, CPU}
ARGS = ("device", "stream", "correlation", "bytes", "graph id", "graph node id",
        "registers per thread", "shared memory", "grid", "block")  # fmt: skip
ABOUT = "workbench"  # the key under which a trace says what was profiled


def clean(raw: Path, to: Path, about: dict) -> None:
    """Write the trace `raw` to `to`, gzipped, with `about`; equal content gives an equal file."""
    text = Path(raw).read_text(encoding="utf-8", errors="replace")
    trace = json.loads(text, parse_float=str)
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"
              and str(e.get("cat", "")).lower() in KEPT]  # fmt: skip
    for number in ("pid", "tid"):
        _as_one(events, number)
    first = min((nanoseconds(e["ts"]) for e in events), default=0)
    kept = {
        "schemaVersion": trace.get("schemaVersion", 1),
        "displayTimeUnit": "ns",
        ABOUT: about,
        "traceEvents": sorted((_event(e, first) for e in events), key=lambda e: e["ts"]),
    }
    content = json.dumps(kept, separators=(",", ":")).encode()
    atomic.write(Path(to), gzip.compress(content, mtime=0))


def _as_one(events: list[dict], number: str) -> None:
    """Give calls of the driver the process and thread of the ranges where there is one of each.

    In a container CUPTI may number them as the host does: then no range would hold a call.
    """
    sides = [
        [e for e in events if str(e["cat"]).lower() in kinds] for kinds in (CALLS, (RANGE, CPU))
    ]
    calls, host = ({e[number] for e in side} for side in sides)
    if len(calls) == len(host) == 1 and calls != host:
        for e in sides[0]:
            e[number] = next(iter(host))


def _event(e: dict, first: int) -> dict:
    args = {name: e["args"][name] for name in ARGS if name in e.get("args", {})}
    name, _, case = e["name"].partition(CASE)
    if e["cat"] == RANGE and name in NAMES and case.isdecimal():
        args |= {"domain": DOMAIN, "payload": int(case)}
    else:
        name = e["name"]
    kept = {"ph": "X", "cat": e["cat"], "name": name, "pid": e["pid"], "tid": e["tid"],
            "ts": (nanoseconds(e["ts"]) - first) / 1000}  # fmt: skip
    if "dur" in e:
        kept["dur"] = nanoseconds(e["dur"]) / 1000
    return kept | ({"args": args} if args else {})
