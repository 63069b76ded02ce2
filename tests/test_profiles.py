"""Committed profiles come out with the totals that they are known for, and nobody's secrets."""

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from workbench.profiles import Attributed, Events, attribute, busy, by_range, read, table, totals

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data" / "profiles"
sys.path.insert(0, str(ROOT / "benchmarks"))
import synthetic_export  # noqa: E402

EXPORTS = ("h100_2gpu_1s", "mfu_2gpu_before", "no_nvtx")
TRACES = sorted(path.name for path in DATA.glob("*.json.gz"))


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((DATA / f"{path.name}.gz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def exports(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("exports")
    return {name: unpacked(name, folder) for name in EXPORTS}


def outcomes(found: Attributed, kind: str = "kernel") -> list[tuple[int, int]]:
    """(rows, ns) in a range, outside every range, without a launch row."""
    sums = totals(found)
    sums = sums[sums["kind"] == kind]
    return list(sums[["rows", "gpu_ns"]].itertuples(index=False, name=None))


def test_a_real_export_has_its_three_totals(exports):
    found = attribute(read(exports["h100_2gpu_1s"]))
    assert outcomes(found) == [(1632, 23_147_229), (0, 0), (1810, 21_682_293)]
    assert outcomes(found, "copy") == [(438, 1_060_029_560), (0, 0), (466, 820_812_654)]
    assert outcomes(found, "memset") == [(22, 29_216), (0, 0), (0, 0)]
    assert "1,810 of 3,442 kernel rows have no launch row" in found.notes


def test_an_export_without_ranges_says_so(exports):
    found = attribute(read(exports["no_nvtx"]))
    assert outcomes(found) == [(0, 0), (111, 1_729_481), (319, 6_239_748)]
    assert {"no NVTX_EVENTS table", "no ranges: all that was launched is outside of them"} <= set(
        found.notes
    )
    assert by_range(found).empty


@pytest.mark.parametrize("name", EXPORTS)
def test_totals_of_an_export_are_the_time_in_its_tables(exports, name):
    found = attribute(read(exports[name]))
    with closing(sqlite3.connect(exports[name])) as db:
        for kind, its in (("kernel", "KERNEL"), ("copy", "MEMCPY"), ("memset", "MEMSET")):
            sql = f"SELECT count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_{its}"
            rows, ns = zip(*outcomes(found, kind), strict=True)
            assert (sum(rows), sum(ns)) == db.execute(sql).fetchone(), kind
    assert by_range(found)["self_ns"].sum() == outcomes(found)[0][1]


@pytest.mark.parametrize("name", TRACES)
def test_totals_of_a_trace_are_the_durations_in_it(name):
    found = attribute(read(DATA / name))
    said = {"kernel": "kernel", "copy": "gpu_memcpy", "memset": "gpu_memset"}
    text = gzip.decompress((DATA / name).read_bytes())
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    for kind, theirs in said.items():
        spent = [e["dur"] for e in events if str(e.get("cat")).lower() == theirs]
        rows, ns = zip(*outcomes(found, kind), strict=True)
        assert (sum(rows), sum(ns)) == (len(spent), sum(spent) * 1000), kind
    launches = [e for e in events if str(e.get("cat")).lower() in ("runtime", "cuda_runtime",
                                                                   "cuda_driver")]  # fmt: skip
    assert len(found.events.launches) == len(launches)
    assert outcomes(found)[2][0] == 0, "every kernel of these traces has its launch"


def test_committed_profiles_hold_kernels():
    """What the two tests above compare is not nothing."""
    kernels = {name: sum(rows for rows, _ in outcomes(attribute(read(DATA / name))))
               for name in TRACES}  # fmt: skip
    assert sorted(kernels.values()) == [0, 0, 1, 3, 4]


def test_I11_a_name_of_two_processes_is_two_rows(exports):
    """Ranks open the same names: a range is known by process, name and occurrence."""
    found = attribute(read(exports["mfu_2gpu_before"]))
    assert sorted(found.events.ranges["process"].value_counts()) == [9443, 9675]
    table = by_range(found)
    ends = table[table["name"] == "ncclGroupEnd"].set_index("process")
    assert ends["ranges"].to_dict() == {144: 32, 145: 34}
    each = by_range(found, each=True)
    assert not each.duplicated(["process", "name", "occurrence"]).any()
    last = each[each["name"] == "ncclGroupEnd"].groupby("process")["occurrence"].max()
    assert last.to_dict() == {144: 31, 145: 33}
    sums = each.groupby("process")["self_ns"].sum()
    assert (sums == table.groupby("process")["self_ns"].sum()).all()


def test_busy_time_counts_overlapping_streams_once(exports):
    of_device = busy(read(exports["mfu_2gpu_before"])).set_index("device")
    assert of_device["gpu_ns"].to_dict() == {0: 270_875_926, 1: 264_324_724}
    assert of_device["busy_ns"].to_dict() == {0: 270_863_484, 1: 264_324_724}
    assert (of_device["busy_ns"] <= of_device["span_ns"]).all()


def test_all_events_are_one_table_of_integers(exports):
    events = read(exports["h100_2gpu_1s"])
    rows = table(events)
    assert len(rows) == 3442 + 904 + 22 + 5796 + 16782
    assert rows["start_ns"].is_monotonic_increasing
    numbers = ["start_ns", "end_ns", "process", "thread", "device", "stream", "correlation",
               "bytes", "graph", "node"]  # fmt: skip
    assert set(rows[numbers].dtypes) == {pd.Series([0]).dtype}
    assert rows["kind"].value_counts().to_dict() | {"kernel": 3442, "push_pop": 16782} == {
        "kernel": 3442, "copy": 904, "memset": 22, "runtime": 5796, "push_pop": 16782, "graph": 0,
        "driver": 0, "start_end": 0, "annotation": 0,
    }  # fmt: skip


SECRET = "hunter2"
TELLING = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV")


def everything(events: Events) -> str:
    parts = [part.to_csv() for part in (*events.parts, events.nodes)]
    names = [str(c) for part in events.parts for c in part["name"].cat.categories]
    return "".join((*parts, *names, *events.notes, by_range(attribute(events)).to_csv()))


def test_I17_the_environment_of_the_profiled_process_stays_behind(tmp_path):
    path = tmp_path / "telling.sqlite"
    synthetic_export.write(path, 40)
    with sqlite3.connect(path) as db:
        for name in TELLING:
            db.execute(f"CREATE TABLE {name} (name TEXT, value TEXT)")
            db.execute(f"INSERT INTO {name} VALUES ('ENVIRONMENT_TOKEN', '{SECRET}')")
        db.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
        db.execute(f"INSERT INTO PROCESSES VALUES (?, 1000, '{SECRET}')",
                   (synthetic_export.process(0),))  # fmt: skip
        db.execute(f"INSERT INTO StringIds VALUES (999, '{SECRET}')")
    db.close()
    assert SECRET not in everything(read(path))
    trace = tmp_path / "trace.json"
    meta = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": SECRET}}
    trace.write_text(json.dumps({"username": SECRET, "host": SECRET, "traceEvents": [meta]}))
    assert SECRET not in everything(read(trace))


@pytest.mark.parametrize("graph_trace", ["node", "graph"])
def test_a_synthetic_export_gives_the_answers_it_was_made_with(tmp_path, graph_trace):
    """Colliding correlations, replays, captures, threads, lost launches: all totals at once."""
    path = tmp_path / "export.sqlite"
    truth = synthetic_export.write(path, 400, graph_trace)
    assert synthetic_export.measured(path)["answers"] == truth
    assert read(path).graph_trace == graph_trace


def test_reading_profiles_needs_no_torch():
    code = "import sys, workbench.profiles; sys.exit('torch' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode
