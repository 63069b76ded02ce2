"""GPU rows belong to launches, launches to ranges of their thread: what brute force finds, too."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_profiles import outcomes

from workbench.profiles import attribute, busy, by_range, totals
from workbench.profiles.events import (
    APIS,
    GPU_ROW,
    KINDS,
    LAUNCH_ROW,
    NODE_ROW,
    RANGE_ROW,
    RANGES,
    Names,
    made,
)


def profile(gpu=(), launches=(), ranges=(), nodes=()):
    """Events of (start, end, ...) and fields by name: process 1, thread 1, device 0, stream 7."""
    names = Names()

    def rows(given, dtype, kinds=(), **usual):
        found = np.zeros(len(given), dtype)
        for row, (start, end, values) in zip(found, given, strict=True):
            values = {"process": 1, "kind": kinds[0] if kinds else 0, "name": "k"} | usual | values
            for field, value in values.items():
                if field in dtype.names:
                    text = {"kind": lambda v: kinds.index(v), "name": names.number,
                            "domain": names.number}.get(field, int)  # fmt: skip
                    row[field] = text(value)
            row["start_ns"], row["end_ns"] = start, end
        return found

    return made(
        "cupti",
        rows(gpu, GPU_ROW, KINDS, stream=7, bytes=-1),
        rows(launches, LAUNCH_ROW, APIS, thread=1),
        rows(ranges, RANGE_ROW, RANGES, thread=1, domain=""),
        rows(nodes, NODE_ROW, thread=1),
        names,
    )


def named(found) -> list[str | None]:
    """The innermost range of each GPU row."""
    names = found.events.ranges["name"]
    return [None if i < 0 else names[i] for i in found.range]


def spent(table, name: str, *columns: str) -> tuple:
    row = table[table["name"] == name]
    assert len(row) == 1
    return tuple(row[list(columns)].iloc[0])


span = st.tuples(st.integers(1, 20), st.integers(0, 12))
intervals = st.lists(st.tuples(span, st.integers(1, 2), st.sampled_from("abc")), max_size=12)
called = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 2)), max_size=12)
kernels = st.lists(st.tuples(span, st.integers(0, 13), st.integers(0, 1)), max_size=20)


@settings(max_examples=100, deadline=None)
@given(intervals, called, kernels)
def test_attribution_is_what_brute_force_finds(intervals, called, kernels):
    """Ranges in any way over one another, several threads, devices and lost launches."""
    ranges = [(a, a + n, {"thread": t, "name": name}) for (a, n), t, name in intervals]
    clock, launches = {1: 1, 2: 1}, []
    for number, (gap, length, thread) in enumerate(called, 1):  # calls of a thread do not overlap
        start = clock[thread] = clock[thread] + gap
        clock[thread] += length
        launches.append((start, start + length, {"thread": thread, "correlation": number}))
        clock[thread] += 1
    gpu = [(a, a + n, {"correlation": c, "device": d}) for (a, n), c, d in kernels]
    found = attribute(profile(gpu, launches, ranges))

    def holds(range_, call):
        return (range_[2]["thread"] == call[2]["thread"] and range_[0] <= call[0]
                and range_[1] >= call[1])  # fmt: skip

    calls = {call[2]["correlation"]: call for call in launches}
    inside = {name: [] for name in "abc"}
    for row, kernel, innermost in zip(range(len(gpu)), gpu, named(found), strict=True):
        call = calls.get(kernel[2]["correlation"])
        assert (found.launch[row] < 0) == (call is None)
        around = [r for r in ranges if call and holds(r, call)]
        best = max((r[0], -r[1]) for r in around) if around else None
        assert (innermost is None) == (not around)
        if around:
            start, end = found.events.ranges.loc[found.range[row], ["start_ns", "end_ns"]]
            assert (start, -end) == best
        for name in {r[2]["name"] for r in around}:
            inside[name].append(kernel)
    table = by_range(found)
    for name, group in inside.items():
        if name in set(table["name"]):
            covered = {(k[2]["device"], t) for k in group for t in range(k[0], k[1])}
            assert spent(table, name, "rows", "inclusive_ns", "busy_ns") == (
                len(group), sum(k[1] - k[0] for k in group), len(covered)
            )  # fmt: skip
    assert table["self_ns"].sum() == outcomes(found)[0][1]
    assert by_range(found, each=True)["self_ns"].sum() == outcomes(found)[0][1]
    assert totals(found)["gpu_ns"].sum() == sum(k[1] - k[0] for k in gpu)


def test_I06_a_replay_belongs_to_the_range_around_its_launch_which_counts_once():
    """All kernels of a replay have one launch; its CPU time is not theirs each."""
    kernels = [(100 + i, 110 + i, {"correlation": 5, "node": 20 + i}) for i in range(3)]
    nodes = [(2, 3, {"node": 1}), (4, 5, {"node": 2}), (12, 13, {"node": 3}),
             *((20, 20, {"node": 20 + i, "original": 1 + i}) for i in range(3))]  # fmt: skip
    ranges = [(0, 6, {"name": "capture"}), (30, 60, {"name": "replay"})]
    found = attribute(profile(kernels, [(40, 47, {"correlation": 5})], ranges, nodes))
    assert named(found) == ["replay"] * 3
    columns = "rows", "inclusive_ns", "busy_ns", "calls", "call_ns"
    assert spent(by_range(found), "replay", *columns) == (3, 30, 12, 1, 7)
    captured = by_range(found, through="capture")
    assert spent(captured, "capture", "rows", "self_ns") == (2, 20), "the third: outside of it"
    assert list(found.capture) == [0, 1, 2]


def test_a_clone_is_followed_to_the_first_node_of_its_process_and_never_in_circles():
    kernels = [(1, 2, {"node": n}) for n in (30, 40, 50)]
    nodes = [
        (5, 6, {"node": 10}), (7, 7, {"node": 20}), (7, 7, {"node": 20, "original": 10}),
        (8, 8, {"node": 30, "original": 20}), (9, 9, {"node": 40, "original": 41}),
        (9, 9, {"node": 41, "original": 40}), (5, 6, {"node": 50, "process": 2}),
    ]  # fmt: skip
    found = attribute(profile(kernels, nodes=nodes))
    assert list(found.capture) == [0, -1, -1]
    assert "graph nodes that are clones of themselves, without a capture: 2" in found.notes


def test_I07_a_range_is_its_threads_alone():
    """A launch of another thread is outside, though a range was open then; that is counted."""
    launches = [(10, 11, {"correlation": 1, "thread": 2}),
                (90, 91, {"correlation": 2, "thread": 2}),
                (10, 11, {"correlation": 3, "process": 2})]  # fmt: skip
    gpu = [(20, 30, {"correlation": 1}), (95, 99, {"correlation": 2}),
           (20, 31, {"correlation": 3, "process": 2})]  # fmt: skip
    found = attribute(profile(gpu, launches, [(0, 50, {})]))
    assert outcomes(found) == [(0, 0), (3, 25), (0, 0)]
    assert list(found.other_thread) == [True, False, False]
    assert totals(found)["other_thread_rows"].sum() == 1
    assert "GPU rows launched while only another thread had a range open: 1" in found.notes


def test_I08_open_and_inverted_ranges_are_counted_and_hold_nothing():
    ranges = [(0, -1, {"name": "open"}), (9, 3, {"name": "inverted"}), (0, 50, {"name": "whole"})]
    gpu, launches = [(20, 30, {"correlation": 1})], [(10, 11, {"correlation": 1})]
    found = attribute(profile(gpu, launches, ranges))
    assert named(found) == ["whole"] and len(found.events.ranges) == 1
    assert {"left out ranges that were never closed: 1",
            "left out ranges that end before they start: 1"} <= {*found.notes}  # fmt: skip


def test_I09_ranges_that_cross_are_detected():
    """Push A, push B, end A, end B: the innermost starts last and holds the call; both hold it."""
    ranges = [(0, 30, {"name": "A"}), (10, 50, {"name": "B"})]
    launches = [(20, 21, {"correlation": 1}), (40, 41, {"correlation": 2}),
                (28, 35, {"correlation": 3})]  # fmt: skip
    gpu = [(60, 61, {"correlation": 1}), (62, 64, {"correlation": 2}), (66, 70, {"correlation": 3})]
    found = attribute(profile(gpu, launches, ranges))
    assert named(found) == ["B", "B", "B"]
    assert spent(by_range(found), "A", "inclusive_ns", "self_ns") == (1, 0)
    assert "ranges that overlap another of their thread without nesting: 1" in found.notes
    assert not attribute(profile(ranges=[(0, 30, {}), (10, 30, {}), (30, 40, {})])).notes[2:]


@pytest.mark.parametrize("order", [1, -1])
def test_of_ranges_that_start_together_the_shorter_is_inside(order):
    ranges = [(0, 50, {"name": "outer"}), (0, 30, {"name": "inner"})][::order]
    launches = [(10, 30, {"correlation": 1}), (20, 31, {"correlation": 2})]
    gpu = [(60, 61, {"correlation": 1}), (62, 63, {"correlation": 2})]
    assert named(attribute(profile(gpu, launches, ranges))) == ["inner", "outer"]


def test_a_call_within_a_call_is_attributed_as_long_as_that():
    """So that the table by range and the innermost ranges speak of the same calls."""
    launches = [(10, 40, {"correlation": 1}), (20, 25, {"correlation": 2})]
    gpu = [(60, 61, {"correlation": 1}), (62, 64, {"correlation": 2})]
    found = attribute(profile(gpu, launches, [(0, 30, {"name": "r"}), (0, 50, {"name": "s"})]))
    assert named(found) == ["s", "s"]
    assert spent(by_range(found), "r", "rows", "self_rows") == (0, 0)
    assert spent(by_range(found), "s", "rows", "self_rows") == (2, 2)


def test_a_range_within_a_call_holds_nothing_and_takes_nothing_away():
    ranges = [(0, 50, {"name": "outer"}), (15, 20, {"name": "within"})]
    launches = [(2, 5, {"correlation": 1}), (10, 40, {"correlation": 2})]
    gpu = [(60, 61, {"correlation": 1}), (62, 64, {"correlation": 2})]
    table = by_range(attribute(profile(gpu, launches, ranges)))
    assert spent(table, "within", "rows", "inclusive_ns") == (0, 0)
    assert spent(table, "outer", "rows", "inclusive_ns") == (2, 3)


def test_ranges_of_an_unknown_thread_hold_nothing():
    launches = [(10, 11, {"correlation": 1, "thread": -1})]
    found = attribute(profile([(20, 30, {"correlation": 1})], launches, [(0, 50, {"thread": -1})]))
    assert outcomes(found) == [(0, 0), (1, 10), (0, 0)]


def test_J04_overlapping_slices_of_a_stream_count_once_in_busy_time():
    """The time of each row is kept, so that totals add up; what is clipped is the busy time."""
    gpu = [(10, 30, {}), (20, 40, {}), (25, 26, {}), (50, 60, {})]
    assert busy(profile(gpu)).iloc[0].to_dict() == {
        "device": 0, "rows": 4, "gpu_ns": 51, "busy_ns": 40, "span_ns": 50
    }  # fmt: skip


@pytest.mark.parametrize("correlation", [0, -1])
def test_J07_correlation_0_is_none(correlation):
    gpu, launches = [(5, 9, {"correlation": correlation})], [(1, 2, {"correlation": correlation})]
    found = attribute(profile(gpu, launches, [(0, 3, {})]))
    assert outcomes(found) == [(0, 0), (0, 0), (1, 4)]


def test_a_name_that_nests_in_itself_counts_a_kernel_once():
    ranges = [(0, 100, {"name": "f"}), (10, 90, {"name": "f"}), (20, 80, {"name": "g"})]
    gpu = [(200, 207, {"correlation": 1})]
    found = attribute(profile(gpu, [(30, 31, {"correlation": 1})], ranges))
    table = by_range(found)
    assert spent(table, "f", "ranges", "rows", "inclusive_ns", "self_ns", "share") == (
        2,
        1,
        7,
        0,
        1,
    )
    assert spent(table, "g", "inclusive_ns", "self_ns") == (7, 7)
    assert list(by_range(found, each=True)["inclusive_ns"]) == [7, 7, 7]


def test_a_runtime_call_and_the_driver_call_in_it_are_one_launch():
    launches = [(12, 15, {"correlation": 1, "kind": "driver"}), (10, 20, {"correlation": 1})]
    found = attribute(profile([(30, 40, {"correlation": 1})], launches, [(11, 16, {})]))
    assert list(found.launch) == [1] and outcomes(found)[1] == (1, 10), "the outer call decides"
    again = [(10, 20, {"correlation": 1}), (25, 26, {"correlation": 1})]
    assert ("calls with the correlation of an earlier one, which counts: 1"
            in attribute(profile([(30, 40, {"correlation": 1})], again)).notes)  # fmt: skip


def test_kinds_are_chosen_and_an_unknown_link_is_refused():
    gpu = [(20, 30, {"correlation": 1}), (31, 33, {"correlation": 1, "kind": "memset"})]
    found = attribute(profile(gpu, [(1, 2, {"correlation": 1})], [(0, 3, {"name": "r"})]))
    assert spent(by_range(found), "r", "inclusive_ns", "share") == (10, 1)
    assert spent(by_range(found, kinds=KINDS), "r", "inclusive_ns") == (12,)
    with pytest.raises(ValueError, match="through='replay'"):
        by_range(found, through="replay")


def test_a_gpu_row_of_no_process_takes_the_one_that_launched_its_correlation():
    gpu = [(20, 30, {"correlation": c, "process": -1}) for c in (1, 2, 3)]
    launches = [(1, 2, {"correlation": 1, "process": 1}), (1, 2, {"correlation": 2, "process": 1}),
                (1, 2, {"correlation": 2, "process": 2})]  # fmt: skip
    events = profile(gpu, launches)
    assert list(events.gpu["process"]) == [1, -1, -1]
    assert any(note.endswith("matched to none: 1") for note in events.notes)
