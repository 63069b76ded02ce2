"""A config that leaves a choice to the workload: records name what it came to."""

import pytest

from workbench.arms import arms_of
from workbench.ops import OPS

OP = OPS["sparse_prefill"]
FILLING = ("full_tile", "specialised", "halves", "overlapped")


@pytest.mark.parametrize("name", FILLING)
@pytest.mark.parametrize("heads, group", [(8, 8), (16, 4), (32, 2), (64, 1), (128, 1), (12, 5)])
def test_a_record_names_the_group_that_fills_the_tile(name, heads, group):
    (arm,), w = arms_of(OP, [name]), OP.Workload(heads=heads)
    assert arm.asked["group"] == 0 and arm.asked_on(w) == arm.asked | {"group": group}


def test_what_is_asked_stays():
    (arm,) = arms_of(OP, ["overlapped"], {"group": 4})
    assert arm.asked_on(OP.Workload()) == arm.asked


@pytest.mark.parametrize("v", [v for op in OPS.values() for v in op.variants.values()],
                         ids=lambda v: f"{v.op.name}.{v.name}")  # fmt: skip
def test_settling_twice_changes_nothing(v):
    w = v.op.Workload()
    once = v.settled(w, v.config)
    assert v.settled(w, once) == once and v.tile(w, once) == v.tile(w, v.config)
