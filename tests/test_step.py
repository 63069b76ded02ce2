"""A step's share: arithmetic that the seed's own table must come out of, and its refusals."""

import pytest

from workbench.models.step import FLOOR, Total, splits

# Seed 000's profile: 12 decode steps, GPU time of the split kernel and of all kernels, ms
STEPS, FULL, MASKED, ALL, ALL_MASKED = 12, 77.87, 8.11, 462.99, 373.47


def seed(total_us: float = ALL / STEPS * 1e3, base: str = "full"):
    us = {"full": FULL / STEPS * 1e3, "masked": MASKED / STEPS * 1e3, FLOOR: 0.0}
    return splits(us, Total(total_us, "given", base))


def test_the_seeds_shares_come_out_of_its_times():
    assert seed()["full"].share == pytest.approx(0.168, abs=0.0005)
    masked = seed(ALL_MASKED / STEPS * 1e3, "masked")["masked"]
    assert masked.share == pytest.approx(0.022, abs=0.0005)


def test_a_variant_is_told_of_the_step_that_it_leaves():
    found = seed()
    left = ALL - FULL + MASKED
    assert found["masked"].share == pytest.approx(MASKED / left)
    assert found["masked"].saved == pytest.approx((FULL - MASKED) / ALL)
    assert found["full"].saved == 0.0
    assert found[FLOOR].share == 0.0 and found[FLOOR].saved == pytest.approx(FULL / ALL)


def test_reading_is_not_the_splits():
    found = splits({"full": 130.0, "masked": 37.0, FLOOR: 30.0})
    assert found["full"].split_us == 100.0 and found["masked"].split_us == 7.0
    assert found["full"].share is None and found["full"].saved is None


def test_noise_makes_no_split_cost_less_than_nothing():
    assert splits({"claimed": 29.9, FLOOR: 30.0})["claimed"].split_us == 0.0


@pytest.mark.parametrize("us, total, told", [
    ({"full": 3.0}, None, "'direct'"),
    ({"full": 3.0, FLOOR: 1.0}, Total(10.0, "given", "masked"), "'masked'"),
    ({"full": 13.0, FLOOR: 1.0}, Total(12.0, "given", "full"), "12.0 us (given)"),
], ids=["no floor", "another base", "too small"])  # fmt: skip
def test_what_cannot_be_is_refused(us, total, told):
    with pytest.raises(ValueError, match=told.replace("(", r"\(").replace(")", r"\)")):
        splits(us, total)


@pytest.mark.parametrize("us", [0.0, -1.0, float("nan"), float("inf")])
def test_a_total_is_a_time(us):
    with pytest.raises(ValueError, match="is no time"):
        Total(us, "given", "full")
