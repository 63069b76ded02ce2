"""How long importing and attributing a large Nsight Systems export takes, and the memory it needs.

Makes an SQLite export with known answers: two processes whose correlations collide, ranges in two
threads, CUDA-graph replays with the lineage of their nodes, launches outside every range and lost
ones. A fresh process then reads it, attributes it and makes the table by range. Exits with 1 above
60 s or 4 GB, or where a total is wrong. The limits are for 2 cores and 5 million kernels.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from read_records import peak_gb

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # runs from a checkout that is not installed
SECONDS, GB = 60.0, 4.0

SCHEMA = """
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    value INTEGER NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,
    int64Value INTEGER);
"""
# Tables that are there only where graphs were traced, one way or the other.
NODES = """
CREATE TABLE CUDA_GRAPH_NODE_EVENTS (start INTEGER NOT NULL, end INTEGER NOT NULL,
    eventClass INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL,
    graphNodeId INTEGER NOT NULL, originalGraphNodeId INTEGER);
"""
REPLAYS = """
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, graphId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, graphExecId INTEGER);
"""
STRINGS = ("cudaLaunchKernel_v7000", "cuLaunchKernelEx", "cudaGraphLaunch_v10000",
           "cudaMemsetAsync_v3020", "plan", "kernel", "gather", "attend", "small", "_union(int)",
           "Graph Node Creation")  # fmt: skip
TEXT = {text: number for number, text in enumerate(STRINGS)}
GRAPH = {"gather": 4, "attend": 6}  # kernels in the ranges of a capture; a copy follows the last
PER_STEP = 20  # kernels of a step; 10 of them are in its graph
STEP_NS, BEGIN_NS, LATE_NS = 20_000, 1_000_000, 150_000  # the GPU runs after all ranges closed

# Eager launches of a step: (CPU time in it, outcome, range, thread, driver call)
EAGER = (
    *((200 + 500 * i, "in", "plan", 0, i % 2) for i in range(4)),
    (8100, "in", "step", 0, 1),
    (8500, "in", "step", 0, 0),
    (9200, "outside", None, 0, 0),
    (9500, "outside", None, 0, 1),
    (600, "outside", None, 1, 0),  # by another thread, while this one's range is open
    (9800, "lost", None, 0, 0),  # its launch row is missing
)
REPLAY = 3200  # CPU time of the replay in its range "kernel"


def process(number: int) -> int:
    """A globalPid as Nsight Systems serializes it."""
    return (1 << 48) | (1000 + number << 24)


def write(path: Path, kernels: int, graph_trace: str = "node") -> dict:
    """Make an export of that many kernels (a multiple of 40), and say what a reader must find.

    [rows, ns] by "kind outcome", and [inclusive ns, self ns] of kernels by "process range"; with
    replays traced whole it holds half of the kernels.
    """
    steps = max(1, kernels // (2 * PER_STEP))
    truth: dict[str, list[int]] = {}
    with sqlite3.connect(path) as db:
        db.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
        db.executescript(NODES if graph_trace == "node" else REPLAYS)
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
        _insert(db, "META_DATA_EXPORT", [("EXPORT_SCHEMA_VERSION", "3.25.0")])
        _insert(db, "ENUM_NSYS_EVENT_TYPE", [(34, "NvtxMark", ""), (59, "NvtxPushPopRange", ""),
                                             (60, "NvtxStartEndRange", "")])  # fmt: skip
        for number in range(2):
            _process(db, number, steps, graph_trace, truth)
    db.close()
    return truth


def _insert(db: sqlite3.Connection, table: str, rows) -> None:
    rows = iter(rows)
    first = next(rows)
    sql = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
    db.execute(sql, first)
    db.executemany(sql, rows)


def _columns(db: sqlite3.Connection, table: str, *columns) -> None:
    """Insert rows given as columns: arrays, or what all rows have."""
    size = next(len(c) for c in columns if isinstance(c, np.ndarray))
    step = 1 << 18  # rows: lists of Python numbers would fill the memory
    for a in range(0, size, step):
        b = min(a + step, size)
        _insert(db, table, zip(*(c[a:b].tolist() if isinstance(c, np.ndarray) else [c] * (b - a)
                                 for c in columns), strict=True))  # fmt: skip


def _process(db, number: int, steps: int, graph_trace: str, truth: dict) -> None:
    """All steps of one process; both count their correlations from 1."""
    pid = process(number)
    step = np.arange(steps, dtype=np.int64)
    base = BEGIN_NS + step * STEP_NS
    correlation = 1 + step * 16

    def counted(kind: str, outcome: str, ranges: tuple[str, ...], start, end) -> None:
        spent = int(np.sum(end - start))
        added = {} if outcome == "captured" else {f"{kind} {outcome}": (len(start), spent)}
        for depth, name in enumerate(ranges):  # the innermost first
            added[f"{1000 + number} {name}"] = (spent, 0 if depth else spent)
        for key, (a, b) in added.items():
            before = truth.get(key, (0, 0))
            truth[key] = [before[0] + a, before[1] + b]

    for i, (at, outcome, name, thread, driver) in enumerate(EAGER):
        start = base + LATE_NS + 700 * i + number
        end = start + 50 + (step * 7 + i) % 97
        _columns(db, "CUPTI_ACTIVITY_KIND_KERNEL", start, end, number, 7 + i % 2, correlation + i,
                 pid, TEXT["small"], TEXT["small"], None)  # fmt: skip
        if outcome != "lost":
            call = TEXT["cuLaunchKernelEx" if driver else "cudaLaunchKernel_v7000"]
            _columns(db, "CUPTI_ACTIVITY_KIND_RUNTIME", base + at, base + at + 90, driver,
                     pid + 1 + thread, correlation + i, call, 0)  # fmt: skip
        ranges = () if name is None else (name,) if name == "step" else (name, "step")
        counted("kernel", outcome, ranges, start, end)
    start = base + LATE_NS + 16_000
    _columns(db, "CUPTI_ACTIVITY_KIND_MEMSET", start, start + 40, number, 7, correlation + 14, pid,
             0, 4096)  # fmt: skip
    _columns(db, "CUPTI_ACTIVITY_KIND_RUNTIME", base + 9000, base + 9090, 0, pid + 1,
             correlation + 14, TEXT["cudaMemsetAsync_v3020"], 0)  # fmt: skip
    counted("memset", "outside", (), start, start + 40)
    _replays(db, number, base, correlation + 15, graph_trace, counted)
    _ranges(db, pid, base, step)
    if graph_trace == "node":
        _capture(db, pid)


def _replays(db, number: int, base, correlation, graph_trace: str, counted) -> None:
    """A replay a step: kernels and a copy that share one correlation, or one row for all."""
    pid, first = process(number), base + LATE_NS + 8000
    _columns(db, "CUPTI_ACTIVITY_KIND_RUNTIME", base + REPLAY, base + REPLAY + 400, 0, pid + 1,
             correlation, TEXT["cudaGraphLaunch_v10000"], 0)  # fmt: skip
    count = sum(GRAPH.values())
    if graph_trace == "graph":
        end = first + 500 * count + 300
        _columns(db, "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", first, end, number, 5, 7, correlation, pid,
                 9)  # fmt: skip
        counted("graph", "in", ("kernel", "step"), first, end)
        return
    for i in range(count):
        start = first + 500 * i
        end = start + 600  # each overlaps the next: branches of the graph
        _columns(db, "CUPTI_ACTIVITY_KIND_KERNEL", start, end, number, 7, correlation, pid,
                 TEXT["_union(int)"], TEXT["_union(int)"], 200 + i)  # fmt: skip
        counted("kernel", "in", ("kernel", "step"), start, end)
        counted("kernel", "captured", ("gather" if i < GRAPH["gather"] else "attend",), start, end)
    start = first + 500 * count
    _columns(db, "CUPTI_ACTIVITY_KIND_MEMCPY", start, start + 300, number, 7, correlation, pid,
             4096, 8, 200 + count)  # fmt: skip
    counted("copy", "in", (), start, start + 300)


def _ranges(db, pid: int, base, step) -> None:
    """Names stand in the row and among the strings; the step's number is its payload."""
    for low, high, text, payload in ((0, 9000, None, step), (100, 3000, "plan", None),
                                     (3100, 8000, "kernel", None)):  # fmt: skip
        _columns(db, "NVTX_EVENTS", base + low, base + high, 59, None if text else "step", pid + 1,
                 None, TEXT[text] if text else None, 0, payload)  # fmt: skip
    for low, text in ((100, "gather"), (600, "attend")):
        _insert(db, "NVTX_EVENTS", [(low, low + 400, 59, None, pid + 1, None, TEXT[text], 0, None)])


def _capture(db, pid: int) -> None:
    """Nodes as captured, cloned into a graph to instantiate, and cloned again from that.

    A clone has a row as a new node, too, and none of those that clone it lies in a range.
    """
    rows, name = [], TEXT["Graph Node Creation"]
    for i in range(sum(GRAPH.values()) + 1):
        at = 110 + 20 * i if i < GRAPH["gather"] else 610 + 20 * i
        rows += [(at, at + 5, 77, pid + 1, name, 1 + i, None)]
        rows += [(2000 + i, 2000 + i, 77, pid + 1, name, 100 + i, original)
                 for original in (None, 1 + i)]  # fmt: skip
        rows += [(3000 + i, 3000 + i, 77, pid + 1, name, 200 + i, 100 + i)]
    _insert(db, "CUDA_GRAPH_NODE_EVENTS", rows)


def measured(path: Path) -> dict:
    """Seconds and peak memory of reading, attributing and summing up, in this process."""
    from workbench.profiles import attribute, by_range, read, totals

    times = [time.perf_counter()]
    events = read(path)
    times.append(time.perf_counter())
    found = attribute(events)
    sums = totals(found)
    times.append(time.perf_counter())
    tables = [by_range(found), by_range(found, through="capture")]
    times.append(time.perf_counter())
    outcomes = {"in a range": "in", "outside every range": "outside", "no launch row": "lost"}
    answers = {f"{row.kind} {outcomes[row.outcome]}": [row.rows, row.gpu_ns]
               for row in sums.itertuples() if row.rows}  # fmt: skip
    for table in tables:
        answers |= {f"{row.process} {row.name}": [row.inclusive_ns, row.self_ns]
                    for row in table.itertuples(index=False) if row.rows}  # fmt: skip
    read_s, attribute_s, table_s = np.diff(times).tolist()
    return {"seconds": times[-1] - times[0], "read_s": read_s, "attribute_s": attribute_s,
            "table_s": table_s, "peak_gb": peak_gb(), "answers": answers}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--graph-trace", choices=("node", "graph"), default="node")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)  # the fresh process's
    asked = parser.parse_args()
    if asked.read:
        print(json.dumps(measured(asked.read), default=int))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.sqlite"
        truth = write(path, asked.kernels, asked.graph_trace)
        size = path.stat().st_size
        command = [sys.executable, __file__, "--read", str(path)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout)
    right = found.pop("answers") == truth
    found |= {"kernels": asked.kernels, "megabytes": size / 1e6, "right": right,
              "load_average": os.getloadavg()[0],
              "cores": len(os.sched_getaffinity(0))}  # fmt: skip
    good = right and found["seconds"] <= SECONDS and found["peak_gb"] <= GB
    if asked.json:
        print(json.dumps(found | {"within_limits": good}))
    else:
        print("{kernels:,} kernels, {megabytes:.0f} MB: {seconds:.1f} s ({read_s:.1f} reading, "
              "{attribute_s:.1f} attributing, {table_s:.1f} by range), {peak_gb:.2f} GB at most, "
              "{cores} cores, load average {load_average:.1f}, totals {}"
              .format("right" if right else "WRONG", **found))  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
