"""Flags say why a time may not be what it seems: the device, the profiler, the indices."""

import json
import os
from dataclasses import asdict

import pytest
import torch
from conftest import DEVICE

from workbench import flags, monitor, selections
from workbench.ops import OPS
from workbench.worker import _Server


def reading(**more) -> dict:
    return asdict(monitor.Reading(**more))


def state(before=None, during=(), after=None) -> dict:
    return {"before": before or reading(), "during": list(during), "after": after or reading()}


@pytest.mark.parametrize("seen, said", [
    (None, []), (state(), []), (state(reading(others=0)), []),
    (state(during=[reading(throttles=("power cap",))]), ["throttled: power cap"]),
    (state(reading(throttles=("power cap",)), [], reading(throttles=("power brake", "power cap"))),
     ["throttled: power brake, power cap"]),
    (state(after=reading(others=2)), ["busy: 2 other processes on the GPU"]),
])  # fmt: skip
def test_flags_of_a_state(seen, said):
    assert flags.of_state(json.loads(json.dumps(seen))) == said


def test_flags_of_samples_name_each_kernel_once():
    assert flags.of_samples({"compiled": []}) == []
    assert flags.of_samples({"compiled": ["b", "a", "b"]}) == ["compiled in the window: a, b"]


def profile_flags(clock_us, span_us, own=(), kernels=("_own_kernel",), floor=None) -> list[str]:
    floor = {"us": 1.0, "span_us": 1.0} if floor is None else floor
    seen = {"span_us": span_us, "kernels": {name: [1, 1.0] for name in kernels}}
    return flags.of_profile({"samples_us": [clock_us]}, seen, own, floor)


@pytest.mark.parametrize("clock_us, span_us, floor, agrees", [
    (103.0, 100.0, None, True), (103.1, 100.0, None, False), (96.9, 100.0, None, False),
    (10.9, 10.0, None, True), (11.1, 10.0, None, False),  # 3 % of 10 us is below 1 us
    (105.0, 100.0, {"us": 4.0, "span_us": 1.0}, True),  # the clock adds 3 us to any kernel
    (102.9, 100.0, {"us": 1.0, "span_us": 4.0}, True),  # nothing is ever added to it
    (200.0, 100.0, {"us": 4.0, "span_us": None}, True),  # without a floor nothing is said
    (200.0, None, None, True),  # an eager call has no span
])  # fmt: skip
def test_the_profiler_may_differ_by_3_percent_or_a_microsecond(clock_us, span_us, floor, agrees):
    found = profile_flags(clock_us, span_us, floor=floor)
    assert [f.partition(":")[0] for f in found] == [] if agrees else ["profiler disagrees"]


@pytest.mark.parametrize("count, us, agrees", [(2, 1.0, True), (3, 1.6, False), (8, 3.9, True),
                                               (8, 4.1, False)])  # fmt: skip
def test_a_profiler_may_set_each_of_many_kernels_half_a_microsecond_apart(count, us, agrees):
    seen = {"span_us": 20.0 + us, "kernels": {"_own_kernel": [count, 20.0]}}
    found = flags.of_profile({"samples_us": [20.0]}, seen, (), {"us": 1.0, "span_us": 1.0})
    assert bool(found) is not agrees


def test_another_kernel_is_flagged_where_a_variant_has_its_own():
    (said,) = profile_flags(1.0, 1.0, own=["_own_kernel"], kernels=("gemm", "copy"))
    assert said == "another kernel ran: none of _own_kernel, but copy, gemm"
    assert profile_flags(1.0, 1.0, own=["_own_kernel", "_other"]) == []
    assert profile_flags(1.0, 1.0, own=[], kernels=("gemm",)) == []
    assert flags.of_profile({"samples_us": [1.0]}, None, ["_own_kernel"], {}) == []


def test_flags_are_summed_by_kind():
    found = ["unstable: a", "busy: b", "unstable: c", "unstable: d"]
    assert flags.summed(found) == ["unstable: a (and 2 more)", "busy: b"]
    assert flags.summed([]) == []


@pytest.mark.parametrize("bits, names", [
    (0, ()), (0x01, ()), (0x02, ()),  # idle, and a user's own limit
    (0x04, ("power cap",)), (0x60, ("software thermal slowdown", "hardware thermal slowdown")),
    (0x1FF, tuple(monitor.THROTTLES.values())),
])  # fmt: skip
def test_throttle_reasons_have_names(bits, names):
    assert monitor.throttles(bits) == names


def test_other_processes_are_those_beside_this_one():
    own = os.getpid()
    assert [monitor.others(p) for p in ([], [own], [own, own + 1], [own + 1, own + 2])] == [
        0, 0, 1, 1,  # in a container one of the host's numbers is this process
    ]  # fmt: skip


def looked(times: int, monkeypatch) -> dict | None:
    numbers = iter(range(9))
    monkeypatch.setattr(monitor, "reader",
                        lambda device: lambda: monitor.Reading(power_w=float(next(numbers))))
    watch = monitor.Monitor("cuda")
    for _ in range(times):
        watch.look()
    return watch.state()


@pytest.mark.parametrize("times, powers", [
    (1, (0, [], 0)), (2, (0, [], 1)), (4, (0, [1, 2], 3)),
])  # fmt: skip
def test_a_state_has_the_first_the_middle_and_the_last_reading(times, powers, monkeypatch):
    found = looked(times, monkeypatch)
    during = [r["power_w"] for r in found["during"]]
    assert (found["before"]["power_w"], during, found["after"]["power_w"]) == powers


def test_a_device_that_cannot_be_read_has_no_state(monkeypatch):
    assert monitor.reader("cpu") is None
    assert looked(0, monkeypatch) is None


@pytest.mark.skipif(DEVICE != "cpu", reason="a fake device is read")
def test_the_device_is_read_before_during_and_after(monkeypatch):
    readings = iter(range(100))
    fake = lambda: monitor.Reading(sm_mhz=next(readings))  # noqa: E731
    monkeypatch.setattr(monitor, "reader", lambda device: fake)
    sent, w = [], OPS["page_split"].Workload(pages=2, batch=1)
    reply = _Server("cpu", OPS, sent.append).answer({
        "do": "measure", "op": "page_split", "workload": asdict(w), "clock": "wall_clock",
        "plan": {"repeats": 4},
        "arms": {"0": {"variant": "eager_full", "config": {}}},
    })  # fmt: skip
    state = reply["state"]
    assert state["before"]["sm_mhz"] == 0 and len(state["during"]) == 4
    seen = [r["sm_mhz"] for r in (*state["during"], state["after"])]
    assert seen == [1, 2, 3, 4, 5]
    assert [m["turn"] for m in sent[:3]] == ["0", "twin", "floor"]
    assert list(reply["samples"]) == ["0", "twin", "floor"]


@pytest.mark.parametrize("indices, length, said", [
    ([[3, 3], [3, 3]], None, ["dummies: every valid lane names row 3",
                              "2 tokens name a row twice"]),
    ([[3, -1], [3, -1]], None, ["dummies: every valid lane names row 3"]),
    ([[0, 1, 0], [4, 2, 1]], None, ["1 tokens name a row twice"]),
    ([[0, 1, 0], [4, 2, 1]], [2, 3], []),  # the repeat is past the length
    ([[-1, 9], [-7, 8]], None, ["no lane is valid"]), ([[1, 2]], [0], ["no lane is valid"]),
    ([[-1, -1, 2], [1, 5, 6]], None, []), ([[5]], None, []), ([[]], None, []),
])  # fmt: skip
def test_doubts_about_a_selection(indices, length, said):
    indices = torch.tensor(indices, dtype=torch.int32)
    length = None if length is None else torch.tensor(length)
    assert selections.doubts(indices, 8, length) == said


@pytest.mark.parametrize("op", ["sparse_prefill", "page_split", "union_plan"])
def test_the_inputs_of_a_plain_workload_raise_no_doubt(op):
    w = OPS[op].Workload(pages=8) if op == "page_split" else OPS[op].Workload(tokens=6, topk=16)
    assert OPS[op].doubts(OPS[op].make_inputs(w, DEVICE)) == []
