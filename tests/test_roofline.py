"""The floor that counts and measured ceilings give, by hand. What is not known is no limit."""

import math
from types import SimpleNamespace

import pytest

from workbench.models.ledger import ledger
from workbench.models.roofline import floor, memory_gb_per_s, share
from workbench.op import Cost, Tile
from workbench.ops.sparse_prefill import definition as sparse_prefill

ROW = 1152  # bytes of a cache row of 576 bf16 numbers
COUNTS = {"least_bytes": 4_000_000, "row_bytes": ROW, "gathered_bytes": 33_000_000,
          "shared_read_bytes": 60_000_000, "useful_flops": 1_600_000_000,
          "executed_flops": 4_000_000_000}  # fmt: skip
LIMITS_US = {"memory": 1.0, "l2_gather": 6.0, "shared_memory": 3.0, "useful_arithmetic": 2.0,
             "executed_arithmetic": 5.0}  # fmt: skip


def ceilings(**changed):
    measured = {"copy_gb_per_s": 4000.0, "gather_l2_gb_per_s": {ROW: 5500.0, 576: 1.0},
                "gather_memory_gb_per_s": {ROW: 3000.0}, "shared_gb_per_s": 20_000.0,
                "bf16_tflop_per_s": 800.0, "fp8_tflop_per_s": 1600.0}  # fmt: skip
    return SimpleNamespace(**measured | changed)


def test_floor_by_hand():
    found = floor(COUNTS, ceilings())
    assert found.limits_us == pytest.approx(LIMITS_US)
    assert (found.limit, found.us) == ("l2_gather", pytest.approx(6.0))
    assert share(12.0, found) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "absent, gone",
    [
        ({"copy_gb_per_s": None, "gather_memory_gb_per_s": None}, {"memory"}),
        ({"gather_l2_gb_per_s": None}, {"l2_gather"}),
        ({"gather_l2_gb_per_s": {576: 5500.0}}, {"l2_gather"}),  # of another row width
        ({"shared_gb_per_s": None}, {"shared_memory"}),
        ({"bf16_tflop_per_s": None}, {"useful_arithmetic", "executed_arithmetic"}),
    ],
)
def test_a_ceiling_that_was_not_measured_is_no_limit(absent, gone):
    found = floor(COUNTS, ceilings(**absent))
    assert set(found.limits_us) == set(LIMITS_US) - gone
    assert found.us == max(found.limits_us.values()) == found.limits_us[found.limit]


@pytest.mark.parametrize("copy, gathers, rate", [
    (4000.0, {1152: 4200.0, 656: 3700.0}, 4200.0), (4000.0, {656: 3700.0}, 4000.0),
    (None, {656: 3700.0}, 3700.0), (4000.0, None, 4000.0),
])  # fmt: skip
def test_the_best_that_memory_gave_to_anything_is_its_rate(copy, gathers, rate):
    found = ceilings(copy_gb_per_s=copy, gather_memory_gb_per_s=gathers)
    assert memory_gb_per_s(found) == rate


def test_nothing_known_is_no_floor():
    nothing = ceilings(copy_gb_per_s=None, gather_memory_gb_per_s=None, gather_l2_gb_per_s=None,
                       shared_gb_per_s=None, bf16_tflop_per_s=None)  # fmt: skip
    assert floor(COUNTS, nothing) is None
    assert floor({}, ceilings()) is None
    assert floor(Cost(0, 0), ceilings()) is None, "a limit of nothing is no limit"
    assert math.isnan(share(3.0, None))


def test_a_gather_takes_the_rate_of_its_own_row_width():
    found = floor(COUNTS | {"row_bytes": 576}, ceilings())
    assert found.limits_us["l2_gather"] == pytest.approx(33_000.0)


def test_floor_of_a_cost():
    found = floor(Cost(bytes=8_000_000, flops=800_000_000), ceilings())
    assert found.limits_us == pytest.approx({"memory": 2.0, "useful_arithmetic": 1.0})
    assert found.limit == "memory"


def test_floor_of_a_ledger_takes_its_counts():
    w = sparse_prefill.Workload(tokens=4, heads=8, topk=4, rows=20, churn=0.0)  # 4 rows, shared
    counts = ledger("sparse_prefill", sparse_prefill.make_inputs(w, "cpu"), Tile(32, 4, 4))
    found = floor(counts, ceilings()).limits_us
    assert set(found) == set(LIMITS_US)
    assert found["l2_gather"] == pytest.approx(4 * ROW / 5500e3)
    assert found["executed_arithmetic"] == pytest.approx(32 * 4 * 2176 / 800e6)


@pytest.mark.parametrize("median_us", [0.0, -1.0, float("nan")])
def test_a_share_of_no_time_is_refused(median_us):
    with pytest.raises(ValueError, match=f"median_us={median_us}"):
        share(median_us, floor(COUNTS, ceilings()))
