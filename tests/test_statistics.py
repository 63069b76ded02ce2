"""Intervals of a ratio hold what they promise in simulated studies; verdicts follow from them.

The seeds were fixed before the first run. The studies of all three are pooled, because a share of
5 % has a standard error of 0.7 % in 1,000 studies and 0.4 % in 3,000; the messages show each seed.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.models.ratio import VERDICTS, Ratio, geomean, noise, ratio, slowdown, verdict

SEEDS, STUDIES, BLOCKS = (1, 2, 3), 1000, 5
TIMES = st.lists(st.tuples(*[st.floats(1.0, 1e4)] * 2), min_size=1, max_size=8)
MIRRORED = {"FASTER": "SLOWER", "SLOWER": "FASTER", "SAME": "SAME", "AMBIGUOUS": "AMBIGUOUS"}


def medians(seed: int, block_sd: float, log_ratio: float, is_paired: bool = True) -> np.ndarray:
    """Block medians [2, studies, blocks] of A and B: 50 samples a block, sample sd 0.5 %.

    `block_sd` is the spread of a block's log ratio. Pairs also share a shift of 2 %, which pairing
    has to remove; without pairing the blocks of either arm are processes of their own.
    """
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.02 if is_paired else 0, (STUDIES, BLOCKS))
    own = rng.normal(0, block_sd / math.sqrt(2), (2, STUDIES, BLOCKS))
    own += shared + np.array([0, log_ratio])[:, None, None]
    samples = own[..., None] + rng.normal(0, 0.005, (2, STUDIES, BLOCKS, 50))
    return 100 * np.exp(np.median(samples, axis=-1))


def share(question, *truth) -> tuple[float, list[float]]:
    """The share of studies for which `question(a, b)` holds: pooled, and of each seed."""
    each = [
        float(np.mean([question(a, b) for a, b in zip(*medians(seed, *truth), strict=True)]))
        for seed in SEEDS
    ]
    return float(np.mean(each)), each


@pytest.mark.parametrize("block_sd", [0, 0.002, 0.005])
def test_an_arm_against_itself_differs_in_at_most_six_percent_of_studies(block_sd):
    claims = lambda a, b: verdict(ratio(a, b, paired=True), band=0) != "AMBIGUOUS"  # noqa: E731
    pooled, each = share(claims, block_sd, 0.0)
    assert pooled <= 0.06, each


@pytest.mark.parametrize("is_paired", [True, False])
@pytest.mark.parametrize("block_sd", [0, 0.002, 0.005])
def test_the_interval_covers_the_true_ratio(block_sd, is_paired):
    def covers(a, b):
        r = ratio(a, b, paired=is_paired)
        return r.low <= math.exp(-0.03) <= r.high

    pooled, each = share(covers, block_sd, -0.03, is_paired)
    assert 0.93 <= pooled <= 0.97, each


@pytest.mark.parametrize("truth, word", [(-0.01, "FASTER"), (0.01, "SLOWER")])
def test_a_planted_percent_is_found(truth, word):
    found = lambda a, b: verdict(ratio(a, b, paired=True)) == word  # noqa: E731
    pooled, each = share(found, 0.005, truth)
    assert pooled >= 0.85, each


def of(value: float, low: float, high: float) -> Ratio:
    return Ratio(value, low, high, blocks=5, paired=True, confidence=0.95)


@settings(deadline=None)
@given(TIMES, st.booleans())
def test_swapping_the_arms_inverts_the_ratio_and_swaps_the_verdict(times, is_paired):
    a, b = zip(*times, strict=True)
    r, s = ratio(a, b, paired=is_paired), ratio(b, a, paired=is_paired)
    expected = [1 / r.value, 1 / r.high, 1 / r.low]
    assert [s.value, s.low, s.high] == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert verdict(s, band=0.0101) == MIRRORED[verdict(r, band=0.0101)]


@settings(deadline=None)
@given(TIMES, st.sampled_from([0.125, 2.0, 1024.0]), st.booleans())
def test_the_unit_of_time_does_not_matter(times, factor, is_paired):
    a, b = zip(*times, strict=True)
    r = ratio(a, b, paired=is_paired)
    s = ratio([factor * t for t in a], [factor * t for t in b], paired=is_paired)
    same = pytest.approx([r.value, r.low, r.high], rel=1e-6, nan_ok=True)
    assert [s.value, s.low, s.high] == same


@pytest.mark.parametrize(
    "r, band, noise_floor, expected",
    [
        (of(0.90, 0.88, 0.92), 0.005, 0.0, "FASTER"),
        (of(1.10, 1.08, 1.12), 0.005, 0.0, "SLOWER"),
        (of(0.998, 0.996, 0.999), 0.005, 0.0, "SAME"),  # beyond doubt, and nobody cares
        (of(0.998, 0.996, 0.999), 0.003, 0.0, "FASTER"),
        (of(1.00, 0.99, 1.01), 0.005, 0.0, "AMBIGUOUS"),
        (of(1.00, 0.99, 1.01), 0.010, 0.0, "AMBIGUOUS"),  # 0.99 is below 1 / 1.01
        (of(0.98, 0.97, 0.99), 0.005, 0.03, "AMBIGUOUS"),  # an arm differs as much from itself
        (of(0.98, 0.97, 0.99), 0.005, 0.01, "FASTER"),
        (of(0.50, math.nan, math.nan), 0.005, 0.0, "AMBIGUOUS"),
        (of(0.50, 0.0, math.inf), 0.005, 0.0, "AMBIGUOUS"),
    ],
)
def test_a_verdict_follows_from_the_interval(r, band, noise_floor, expected):
    assert verdict(r, band=band, noise=noise_floor) == expected and expected in VERDICTS


def test_one_block_has_a_value_and_no_interval():
    for is_paired in (True, False):
        r = ratio([100], [50], paired=is_paired)
        assert r.value == pytest.approx(0.5) and r.blocks == 1 and verdict(r) == "AMBIGUOUS"
        assert math.isnan(r.low) and math.isnan(r.high)
    assert math.isnan(ratio([100, 101], [50], paired=False).low)


def test_a_known_interval():
    r = ratio([1, 1, 1], [math.exp(0.1), math.exp(0.2), math.exp(0.3)], paired=True)
    half = 4.302653 * 0.1 / math.sqrt(3)  # Student's t, two degrees of freedom
    assert [math.log(v) for v in (r.low, r.value, r.high)] == pytest.approx(
        [0.2 - half, 0.2, 0.2 + half], rel=1e-6
    )


def test_pairing_removes_what_blocks_share():
    a, b = [100, 110, 120, 90, 105], [97.1, 106.6, 116.4, 87.2, 101.9]
    assert verdict(ratio(a, b, paired=True)) == "FASTER"
    assert verdict(ratio(a, b, paired=False)) == "AMBIGUOUS"
    assert ratio(a, b[:3], paired=False).blocks == 3
    exact = ratio([1, 1], [2, 2], paired=False)
    assert (exact.low, exact.high) == (exact.value, exact.value)


@pytest.mark.parametrize(
    "a, b, message",
    [
        ([], [1.0], "a_us has no blocks"),
        ([1.0], [], "b_us has no blocks"),
        ([1.0, 0.0], [1.0, 1.0], "a_us holds 0.0"),
        ([1.0], [math.nan], "b_us holds nan"),
        ([1.0], [math.inf], "b_us holds inf"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "3 of A, 2 of B"),
    ],
)
def test_no_ratio_of_what_is_no_time(a, b, message):
    with pytest.raises(ValueError, match=message):
        ratio(a, b, paired=True)


def test_the_noise_floor_is_the_far_end_of_the_twins_interval():
    first, twin = [100, 100, 100], [101, 102, 101]
    r = ratio(first, twin, paired=True)
    assert noise(first, twin) == pytest.approx(math.log(r.high))
    assert noise(twin, first) == pytest.approx(math.log(r.high))
    assert noise([100], [102]) == pytest.approx(math.log(1.02))


def test_a_geometric_mean_tells_how_many_cases_lost():
    """flashinfer#4726: a mean above 1 hid 47 of 140 slower rows."""
    g = geomean([0.9] * 47 + [1.2] * 92 + [1.0])
    assert (g.cases, g.below, g.above) == (140, 47, 92) and g.value > 1
    assert geomean([0.5, 2.0]).value == pytest.approx(1.0)
    for values, message in (([], "no cases"), ([1.0, -2.0], "-2.0"), ([math.inf], "inf")):
        with pytest.raises(ValueError, match=message):
            geomean(values)


def test_only_a_confirmed_slowdown_is_told():
    told = slowdown(of(1.10, 1.06, 1.14), 100.0)
    assert told == "slower by 10.0% (+6.0% to +14.0%, 5 blocks): 100.00 to 110.00 us"
    assert slowdown(of(1.10, 0.99, 1.22), 100.0) is None  # 1 is inside the interval
    assert slowdown(of(1.02, 1.01, 1.03), 100.0) is None  # below the relative limit
    assert slowdown(of(1.10, 1.06, 1.14), 4.0) is None  # 0.4 us
    assert slowdown(of(0.90, 0.88, 0.92), 100.0) is None
    assert slowdown(of(1.10, math.nan, math.nan), 100.0) is None
    with pytest.raises(ValueError, match="base_us=0"):
        slowdown(of(1.1, 1.0, 1.2), 0.0)
