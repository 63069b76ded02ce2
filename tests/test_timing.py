"""Clocks: arms take turns, every sample comes back, nothing but the work is inside a sample."""

import gc
from functools import partial

import pytest
import torch
from conftest import DEVICE

from workbench import ranges
from workbench.ops import OPS
from workbench.timing import CLOCKS, wall_clock
from workbench.timing.samples import rounds, shares

NOBODY = lambda name: None  # noqa: E731


def test_arms_take_turns_forward_and_backward():
    assert list(rounds({"a": 2, "b": 2})) == ["a", "b", "b", "a"]
    assert list(rounds({"a": 1, "b": 3})) == ["a", "b", "b", "b"]
    assert list(rounds({})) == []


def test_a_slow_arm_gets_fewer_samples_but_never_fewer_than_five():
    count = shares({"fast": 10.0, "slow": 1e6}, repeats=100, budget_s=2.0)
    assert count == {"fast": 100, "slow": 5}
    assert shares({"slow": 1e9}, repeats=3, budget_s=0.0) == {"slow": 3}


def test_wall_clock_returns_every_sample_and_says_whose_turn_it_is():
    calls, turns = [], []
    arms = {name: partial(calls.append, name) for name in "ab"}
    out = wall_clock.measure(arms, 6, 1.0, turns.append, "cpu")
    assert {name: len(s.samples_us) for name, s in out.items()} == {"a": 6, "b": 6}
    assert all(us > 0 for s in out.values() for us in s.samples_us)
    warm_up = 4  # two calls an arm
    assert len(calls) == warm_up + 12 and calls[warm_up:] == turns[2:]


def test_garbage_is_not_collected_inside_samples_and_is_afterwards():
    states = []
    wall_clock.measure({"a": lambda: states.append(gc.isenabled())}, 5, 1.0, NOBODY, "cpu")
    assert not any(states[2:]) and gc.isenabled()


def test_an_arm_that_raises_leaves_the_collector_on():
    calls = iter(range(4))
    with pytest.raises(StopIteration):
        wall_clock.measure({"a": lambda: next(calls)}, 9, 1.0, NOBODY, "cpu")
    assert gc.isenabled()


def test_no_range_opens_inside_a_timed_sample(monkeypatch):
    opened, phase = [], ["warm up"]

    class Domain:
        def push_range(self, attributes):
            opened.append((phase[0], attributes))

        def pop_range(self):
            pass

    monkeypatch.setattr(ranges, "_domain", Domain())
    monkeypatch.setattr(ranges, "_attributes", {name: name for name in ranges.NAMES})
    op = OPS["sparse_prefill"]
    x = op.make_inputs(op.Workload(tokens=4, topk=8, rows=16), DEVICE)
    arm = {"union": partial(op.variants["union"], x)}
    counted = []

    def turn(name):
        counted.append(name)
        phase[0] = "timed" if len(counted) > 1 else "warm up"

    wall_clock.measure(arm, 2, 0.0, turn, DEVICE)
    assert ("warm up", "plan") in opened and ("warm up", "warm_up") in opened
    assert not [o for o in opened if o[0] == "timed"]


def test_ranges_have_a_fixed_set_of_names_and_close_on_errors(monkeypatch):
    with pytest.raises(ValueError, match="kernle"), ranges.span("kernle"):
        pass
    depth = []

    class Domain:
        push_range = staticmethod(lambda attributes: depth.append(1))
        pop_range = staticmethod(lambda: depth.pop())

    monkeypatch.setattr(ranges, "_domain", Domain())
    monkeypatch.setattr(ranges, "_attributes", {name: name for name in ranges.NAMES})
    with pytest.raises(RuntimeError), ranges.span("kernel"):
        raise RuntimeError
    assert not depth


def test_ranges_work_without_the_nvtx_package(monkeypatch):
    monkeypatch.setattr(ranges, "_domain", None)
    with ranges.span("kernel"):
        pass


@pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("name", ["graph_cold", "graph_hot"])
def test_a_graph_clock_times_the_call_and_not_the_eviction(name):
    small = torch.zeros(8, device=DEVICE)
    large = torch.zeros(1 << 28, dtype=torch.uint8, device=DEVICE)
    arms = {"small": lambda: small.add_(1), "large": lambda: large.add_(1)}
    out = CLOCKS[name].measure(arms, 20, 1.0, NOBODY, DEVICE)
    small_us, large_us = (min(out[k].samples_us) for k in ("small", "large"))
    assert 0 < small_us < 20 < large_us
