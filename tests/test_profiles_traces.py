"""Kineto traces and CUPTI lines: times to the nanosecond, and one line about a file that is cut."""

import gzip
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_profiles import DATA, outcomes

from workbench.profiles import Unreadable, attribute, by_range, cupti, read
from workbench.profiles.kineto import nanoseconds

T0 = 1_712_867_402_348  # milliseconds since 1970: in nanoseconds it has 19 digits


def event(kind: str, name: str, ts: str, dur: str, pid=100, tid=200, **args) -> str:
    """An X event with its times as they are written."""
    said = {"ph": "X", "cat": kind, "name": name, "pid": pid, "tid": tid, "args": args}
    return json.dumps(said)[:-1] + f', "ts": {ts}, "dur": {dur}}}'


def trace(path, *events: str):
    path.write_text('{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(events) + "\n]}")
    return path


def gpu(name: str, ts: str, dur: str, correlation: int, kind="kernel", **args) -> str:
    return event(kind, name, ts, dur, pid=0, tid=7, device=0, stream=7, correlation=correlation,
                 **args)  # fmt: skip


SMALL = (
    event("user_annotation", "plan", f"{T0}000.001", "50.999"),
    event("cuda_runtime", "cudaLaunchKernel", f"{T0}001.5", "3", correlation=1),
    event("cuda_driver", "cuLaunchKernelEx", f"{T0}010", "2.25", correlation=2),
    event("cuda_runtime", "cudaMemcpyAsync", f"{T0}060", "2", correlation=3),
    gpu("_union", f"{T0}100.007", "1.76", 1),
    gpu("_attend", f"{T0}102.123", "10.002", 2),
    gpu("Memcpy HtoD", f"{T0}120", "4", 3, "gpu_memcpy", bytes=4096),
    event("gpu_user_annotation", "plan", f"{T0}100.007", "12.118", pid=0, tid=7),
    event("cpu_op", "aten::mm", f"{T0}001", "4"),
)


def test_a_trace_is_read_to_the_nanosecond(tmp_path):
    found = attribute(read(trace(tmp_path / "small.json", *SMALL)))
    kernels = found.events.gpu
    assert list(kernels["start_ns"][:2]) == [T0 * 10**6 + 100_007, T0 * 10**6 + 102_123]
    assert list(kernels["end_ns"][:2]) == [T0 * 10**6 + 101_767, T0 * 10**6 + 112_125]
    assert list(kernels["bytes"]) == [-1, -1, 4096]
    assert outcomes(found) == [(2, 11_762), (0, 0), (0, 0)]
    assert outcomes(found, "copy") == [(0, 0), (1, 4000), (0, 0)]
    assert list(found.events.launches["kind"]) == ["runtime", "driver", "runtime"]
    assert by_range(found)[["process", "name", "self_ns"]].values.tolist() == [
        [100, "plan", 11_762]
    ]


@given(st.integers(0, 2**62))
def test_microseconds_in_decimals_are_exact(ns):
    whole, below = divmod(ns, 1000)
    assert nanoseconds(f"{whole}.{below:03}") == ns
    assert nanoseconds(f"{whole}.{below:03}000") == ns
    assert nanoseconds(whole) == whole * 1000
    assert nanoseconds(f"-{whole}.{below:03}") == -ns


@pytest.mark.parametrize(("text", "ns"), [("1.5e3", 1_500_000), ("7.0004", 7000), ("7.0006", 7001)])
def test_odd_decimals_are_read(text, ns):
    assert nanoseconds(text) == ns


def test_a_gzipped_trace_and_a_bare_list_of_events_are_traces(tmp_path):
    path = trace(tmp_path / "small.json", *SMALL)
    (tmp_path / "small.json.gz").write_bytes(gzip.compress(path.read_bytes()))
    (tmp_path / "list.json").write_text("[" + ",".join(SMALL) + "]")
    for name in ("small.json.gz", "list.json"):
        assert outcomes(attribute(read(tmp_path / name))) == outcomes(attribute(read(path)))


def test_a_replay_in_a_trace_is_of_the_range_around_it(tmp_path):
    path = trace(tmp_path / "graph.json", SMALL[0],
                 event("cuda_runtime", "cudaGraphLaunch", f"{T0}002", "3", correlation=9),
                 *(gpu("_node", f"{T0}{200 + i}", "1.5", 9) for i in range(4)))  # fmt: skip
    found = attribute(read(path))
    assert found.events.graph_trace == "node"
    assert outcomes(found)[0] == (4, 6000)
    assert by_range(found)["busy_ns"].sum() == 4500


def test_events_without_an_end_or_backwards_are_noted(tmp_path):
    open_ = SMALL[0].replace(', "dur": 50.999', "")
    back = SMALL[4].replace("1.76", "-1.76")
    found = read(trace(tmp_path / "odd.json", *SMALL, open_, back))
    assert {"left out ranges that were never closed: 1",
            "left out GPU rows that end before they start: 1"} <= {*found.notes}  # fmt: skip


def test_J01_an_invalid_trace_is_refused_with_the_place(tmp_path):
    """A quote is missing: file and offset are named, nothing is imported."""
    path = trace(tmp_path / "quote.json", *SMALL)
    text = path.read_text()
    path.write_text(text.replace('"tid": 200', '"tid": 200"', 1))
    at = text.index('"tid": 200') + len('"tid": 200')
    with pytest.raises(Unreadable, match=rf"quote\.json: not JSON from character {at} on"):
        read(path)


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize(("name", "harm", "reason"), [
    ("cut.json", halved, "not JSON from character"),
    ("cut.json.gz", lambda c: halved(gzip.compress(c)), "not a whole gzip file"),
    ("inside.json.gz", lambda c: gzip.compress(halved(c)), "not JSON from character"),
    ("other.json", lambda c: b'{"name": "no trace"}', "no Chrome trace"),
    ("deep.json", lambda c: b"[" * 100_000, "nested too deep"),
    ("text.json", lambda c: c.replace(b'"ts": ', b'"ts": "x"+'[:-1] + b', "u": '), "odd values"),
    ("nameless.json", lambda c: c.replace(b'"name": "_union", ', b""), "odd values: KeyError"),
    ("huge.json", lambda c: c.replace(b'"correlation": 1}', b'"correlation": 1%s}' % (b"0" * 30)),
     "odd values"),
    ("export.json.gz", lambda c: gzip.compress(b"SQLite format 3\x00"), "unpack it first"),
])  # fmt: skip
def test_what_is_no_whole_trace_is_refused_in_one_line(tmp_path, name, harm, reason):
    path = trace(tmp_path / name, *SMALL)
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(Unreadable, match=reason) as refused:
        read(path)
    assert name in str(refused.value) and "\n" not in str(refused.value)


ACTIVITIES = {
    "annotation": [{"start": 0, "end": 50, "name": "plan", "process": 1, "thread": 2,
                    "payload": 7}],
    "driver": [SimpleNamespace(start=10, end=12, name="cuLaunchKernelEx", process_id=1, thread_id=2,
                               correlation_id=5)],
    "kernel": [SimpleNamespace(start=100, end=130, name="_union", device_id=0, stream_id=7,
                               correlation_id=5, graph_node_id=31)],
    "node": [{"start": 20, "end": 21, "process": 1, "thread": 2, "node": 31}],
}  # fmt: skip


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "activities.jsonl"
    rows = [line for kind, group in ACTIVITIES.items() for line in cupti.lines(kind, group)]
    path.write_text(json.dumps(cupti.HEADER) + "\n" + "".join(rows))
    return path


def test_activities_of_cupti_are_events(lines):
    """Dicts and cupti-python's objects, whose kernels name no process."""
    found = attribute(read(lines))
    assert found.events.source == "cupti"
    assert outcomes(found) == [(1, 30), (0, 0), (0, 0)]
    assert list(found.capture_range) == [0]
    assert by_range(found, each=True)["payload"].tolist() == [7]
    assert list(found.events.gpu["process"]) == [1]


@pytest.mark.parametrize(("harm", "reason"), [
    (lambda text: text[:-20], "line 5 is no activity"),
    (lambda text: text.replace('"start":100', '"start":100.5'), "100.5 is no whole number"),
    (lambda text: text.replace('"kernel"', '"kernels"'), "line 4 is no activity"),
    (lambda text: text.replace('"start":100,', ""), "line 4 is no activity"),
    (lambda text: text.replace('"start":100', '"start":"x"'), "odd values"),
    (lambda text: text.replace('"schema": 1', '"schema": 2'), "line 1 is no activity"),
])  # fmt: skip
def test_what_are_no_activities_is_refused_in_one_line(lines, harm, reason):
    lines.write_text(harm(lines.read_text()))
    with pytest.raises(Unreadable, match=reason) as refused:
        read(lines)
    assert "\n" not in str(refused.value)


def test_a_long_trace_that_is_cut_is_refused(tmp_path):
    """Longer than what is looked at to tell what a file is."""
    path = tmp_path / "long.json.gz"
    longest = max(DATA.glob("*.json.gz"), key=lambda found: found.stat().st_size)
    path.write_bytes(halved(longest.read_bytes()))
    with pytest.raises(Unreadable, match=r"long\.json\.gz: not a whole gzip file"):
        read(path)


def test_an_unknown_kind_of_activity_is_refused():
    with pytest.raises(ValueError, match="kind 'marker' is none of kernel, copy"):
        list(cupti.lines("marker", []))
