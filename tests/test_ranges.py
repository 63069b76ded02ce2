"""Ranges: a fixed set of names, closed on errors, told to listeners, none in a timed sample."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import DEVICE
from torch.profiler import ProfilerActivity, profile

from workbench import ranges
from workbench.ops import OPS
from workbench.timing import Call, Plan, measure, wall_clock

ROOT = Path(__file__).parents[1]


class Listener:
    """Notes what is opened, with which case and in which phase."""

    def __init__(self):
        self.opened, self.depth, self.phase = [], 0, "warm up"

    def push(self, name, case):
        self.opened.append((self.phase, name, case))
        self.depth += 1

    def pop(self):
        self.depth -= 1


def test_no_range_opens_inside_a_timed_sample():
    listener = Listener()
    op = OPS["sparse_prefill"]
    x = op.make_inputs(op.Workload(tokens=4, topk=8, rows=16), DEVICE)
    said = []

    def turn(name):
        said.append(name)
        listener.phase = "timed" if len(said) > 1 else "warm up"

    with ranges.told(listener):
        union = Call(op.variants["union"], (x,))
        measure(wall_clock, {"union": union}, Plan(2), DEVICE, turn)
    opened = {(phase, name) for phase, name, _ in listener.opened}
    assert opened == {("warm up", "warm_up"), ("warm up", "plan"), ("warm up", "kernel")}
    assert len(said) == 3 and not listener.depth


def test_ranges_have_a_fixed_set_of_names_and_close_on_errors():
    listener = Listener()
    for heard in ((), (listener,)):
        with ranges.told(*heard), pytest.raises(ValueError, match="kernle"):
            ranges.span("kernle")
    with ranges.told(listener), pytest.raises(RuntimeError), ranges.span("kernel"):
        assert listener.depth == 1
        raise RuntimeError
    assert not listener.depth
    with pytest.raises(RuntimeError), ranges.span("kernel"):
        raise RuntimeError("also where nobody listens")


def test_a_case_is_the_payload_of_the_ranges_inside_of_it():
    listener = Listener()
    with ranges.told(listener):
        with ranges.of_case(7), ranges.span("call"), ranges.span("plan"):
            pass
        with ranges.span("call"), ranges.silenced(), ranges.span("plan"):
            pass
    assert [(name, case) for _, name, case in listener.opened] == [
        ("call", 7), ("plan", 7), ("call", None)
    ]  # fmt: skip
    assert not listener.depth


class Domain:
    """An NVTX domain under Nsight Systems, whose push may say -1."""

    def __init__(self):
        self.made, self.log = [], []

    def get_event_attributes(self, **what):
        self.made.append(what)
        return what

    def push_range(self, attributes):
        self.log.append(attributes["message"])
        return -1

    def pop_range(self):
        self.log.append("pop")
        return -1


def test_I10_what_push_returns_is_not_looked_at(monkeypatch):
    """Nsight returned -1 from push, and code that took it for a failure never popped."""
    domain = Domain()
    monkeypatch.setattr(ranges, "nvtx", SimpleNamespace(get_domain=lambda name: domain))
    with ranges.told(*ranges._attached()), ranges.span("call"), ranges.span("plan"):
        pass
    assert domain.log == ["call", "plan", "pop", "pop"]


def test_a_message_is_made_once_for_each_case(monkeypatch):
    domain = Domain()
    monkeypatch.setattr(ranges, "nvtx", SimpleNamespace(get_domain=lambda name: domain))
    attached = ranges._attached()
    domain.made.clear()
    for case in (5, 6, 5, 6):
        with ranges.told(*attached), ranges.of_case(case), ranges.span("plan"):
            pass
    assert domain.made == [
        {"message": "plan", "category": "plan", "payload": case} for case in (5, 6)
    ]


def test_nobody_is_told_without_the_package_or_without_a_tool(monkeypatch):
    monkeypatch.setattr(ranges, "nvtx", None)
    assert ranges._attached() == ()
    dummy = SimpleNamespace(get_event_attributes=lambda **what: None)  # nvtx's, without a tool
    monkeypatch.setattr(ranges, "nvtx", SimpleNamespace(get_domain=lambda name: dummy))
    assert ranges._attached() == ()


def test_the_same_call_annotates_a_profile_pass():
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as p:
        with ranges.span("inputs"):
            pass
        with ranges.annotated(), ranges.of_case(7), ranges.span("call"), ranges.span("plan"):
            pass
        with ranges.annotated(), ranges.silenced(), ranges.span("kernel"):
            pass
    names = {e.name for e in p.events()}
    assert {"call case=7", "plan case=7"} <= names
    assert not names & {"inputs", "kernel"}


def test_importing_ranges_needs_no_torch():
    code = "import sys, workbench.ranges; sys.exit('torch' in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode
