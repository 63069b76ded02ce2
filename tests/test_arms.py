"""Arms and workloads from text: what a caller names is what runs, or is refused with its value."""

import pytest

from workbench.arms import arm_named, arms_of, workloads_of
from workbench.ops import OPS

PREFILL = OPS["sparse_prefill"]


@pytest.mark.parametrize("text, label, group", [
    ("union group=4", "union group=4", 4), ("union", "union", 4),
    ("union group=2, block_k=32", "union group=2, block_k=32", 2),
    ("union  group=2 block_k=32", "union group=2, block_k=32", 2),
])  # fmt: skip
def test_an_arm_is_named_as_a_table_labels_it(text, label, group):
    arm = arm_named(PREFILL, text)
    assert arm.label == label and arm.asked["group"] == group
    assert arm_named(PREFILL, arm.label) == arm


@pytest.mark.parametrize("text, told", [
    ("unoin", r"unknown variant of sparse_prefill 'unoin'; did you mean 'union'"),
    ("union grup=4", r"unknown config field of union 'grup'; did you mean 'group'"),
    ("union group=4.5", r"group='4.5' is not of type int"),
    ("union group", r"'group' is not of the form NAME=VALUE"),
    ("union group=2,4", r"'4' is not of the form"), ("union group=2 group=4", "given twice"),
    ("eager group=2", r"unknown config field of eager 'group' \(known: none\)"),
    ("", "unknown variant"),
])  # fmt: skip
def test_what_is_no_arm_is_told(text, told):
    with pytest.raises(ValueError, match=told):
        arm_named(PREFILL, text)


def test_a_list_of_values_is_one_arm_each_and_a_variant_without_the_field_is_one():
    labels = [a.label for a in arms_of(PREFILL, ["eager", "union"], {"group": "2,4"})]
    assert labels == ["eager", "union group=2", "union group=4"]
    with pytest.raises(ValueError, match="unknown config field 'grup'"):
        arms_of(PREFILL, ["union"], {"grup": "2"})


def test_workloads_are_a_grid_without_repeats():
    found = workloads_of(PREFILL, None, {"tokens": "64,65,64", "heads": [8, 16]})
    assert [(w.tokens, w.heads) for w in found] == [(64, 8), (64, 16), (65, 8), (65, 16)]
    with pytest.raises(ValueError, match="unknown suite 'edgs'; did you mean 'edges'"):
        workloads_of(PREFILL, "edgs")
