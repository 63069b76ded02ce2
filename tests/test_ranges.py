"""NVTX ranges: a fixed set of names, closed on errors, none inside a timed sample."""

import pytest
from conftest import DEVICE

from workbench import ranges
from workbench.ops import OPS
from workbench.timing import Call, Plan, measure, wall_clock


class Domain:
    """An NVTX domain that notes what is opened, and in which phase."""

    def __init__(self, monkeypatch):
        self.opened, self.depth, self.phase = [], 0, "warm up"
        monkeypatch.setattr(ranges, "_domain", self)
        monkeypatch.setattr(ranges, "_attributes", {name: name for name in ranges.NAMES})

    def push_range(self, attributes):
        self.opened.append((self.phase, attributes))
        self.depth += 1

    def pop_range(self):
        self.depth -= 1


def test_no_range_opens_inside_a_timed_sample(monkeypatch):
    domain = Domain(monkeypatch)
    op = OPS["sparse_prefill"]
    x = op.make_inputs(op.Workload(tokens=4, topk=8, rows=16), DEVICE)
    said = []

    def turn(name):
        said.append(name)
        domain.phase = "timed" if len(said) > 1 else "warm up"

    measure(wall_clock, {"union": Call(op.variants["union"], (x,))}, Plan(2), DEVICE, turn)
    assert ("warm up", "plan") in domain.opened and ("warm up", "warm_up") in domain.opened
    assert len(said) == 3 and not [o for o in domain.opened if o[0] == "timed"]


def test_ranges_have_a_fixed_set_of_names_and_close_on_errors(monkeypatch):
    with pytest.raises(ValueError, match="kernle"), ranges.span("kernle"):
        pass
    domain = Domain(monkeypatch)
    with pytest.raises(RuntimeError), ranges.span("kernel"):
        assert domain.depth == 1
        raise RuntimeError
    assert not domain.depth


def test_ranges_work_without_the_nvtx_package(monkeypatch):
    monkeypatch.setattr(ranges, "_domain", None)
    with ranges.span("kernel"):
        pass
