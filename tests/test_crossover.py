"""Crossings: their intervals hold the truth in simulated studies, and nothing else is claimed.

The seeds were fixed before the first run. The studies of all three are pooled, because a share of
5 % has a standard error of 0.7 % in 1,000 studies and 0.4 % in 3,000; the messages show each seed.
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from workbench.models.crossover import crossover, frontier, next_point, said
from workbench.models.ratio import ratio

SEEDS, STUDIES, BLOCKS = (1, 2, 3), 1000, 5
TRUTH = 64 * 2**3.3  # of a planted crossing: between points, and not in the middle of a gap
OCTAVES = 64 * 2.0 ** np.arange(7)
AROUND = 0.02 * np.array([-1, -0.5, 0, 0.5, 1])  # five blocks' log ratios about their mean


def line(slope: float, spread: float, rng, x=OCTAVES, truth=TRUTH) -> np.ndarray:
    """Log ratios [points, blocks] that fall by `slope` an octave and pass 0 at `truth`."""
    return -slope * np.log2(x / truth)[:, None] + rng.normal(0, spread, (len(x), BLOCKS))


@pytest.mark.parametrize(
    "slope, spread", [(0.05, 0.005), (0.05, 0.02), (0.05, 0.04), (0.10, 0.02), (0.25, 0.02)]
)
def test_an_interval_covers_the_true_crossing(slope, spread):
    """A series of which no end is closed says nothing false; how many these are is bounded too."""

    def outcome(rng) -> tuple[bool, bool]:
        found = crossover(OCTAVES, line(slope, spread, rng))
        parts = [*found.crossings, *(u for u in found.unresolved if not (u.before and u.after))]
        ends = [(p.low or 0, p.high or math.inf) for p in parts]
        return any(low <= TRUTH <= high for low, high in ends), (0, math.inf) in ends

    each = [
        np.mean([outcome(rng) for _ in range(STUDIES)], axis=0)
        for rng in map(np.random.default_rng, SEEDS)
    ]
    covered, open_ = np.mean(each, axis=0)
    assert covered >= 0.90 and open_ <= 0.01, each


def test_one_crossing_has_its_place_and_says_who_is_faster_beyond():
    found = crossover(OCTAVES, line(0.1, 0, np.random.default_rng(1)))
    (crossing,) = found.crossings
    assert [crossing.at, crossing.low, crossing.high] == pytest.approx([TRUTH] * 3, rel=1e-9)
    assert crossing.direction == "B" and found.count == 1 and found.at_ends == ("SLOWER", "FASTER")
    back = crossover(OCTAVES, -line(0.1, 0, np.random.default_rng(1)))
    assert back.crossings[0].direction == "A" and back.at_ends == ("FASTER", "SLOWER")


def test_the_ends_of_an_interval_are_where_the_t_interval_touches_zero():
    logs = line(0.1, 0.03, np.random.default_rng(4))
    (crossing,) = crossover(OCTAVES, logs).crossings
    for end in (crossing.low, crossing.high):
        block = [np.interp(math.log(end), np.log(OCTAVES), column) for column in logs.T]
        r = ratio(np.ones(BLOCKS), np.exp(block), paired=True)
        assert min(abs(math.log(r.low)), abs(math.log(r.high))) < 1e-9


def test_a_sentence_names_the_arms_and_the_axis():
    noise_free = line(0.1, 0, np.random.default_rng(1), truth=700)
    logs = noise_free + AROUND
    found = crossover(OCTAVES, logs)
    assert said(found, "split", "union", "topk") == (
        "union is faster from topk=1024 on, not yet at 512 "
        "(if straight between: 700, 611 to 802)"
    )
    assert said(crossover(OCTAVES, logs + 1)) == "none in range: A is faster everywhere"
    assert said(crossover(OCTAVES, logs - 1), "split", "union") == (
        "none in range: union is faster everywhere"
    )
    hill = crossover(OCTAVES, np.abs(noise_free)[::-1] - 0.15)
    assert hill.count == 2 and said(hill).startswith("2 crossings: ")


def test_several_crossings_are_all_counted_in_order():
    x = np.geomspace(1, 1e5, 200)
    logs = np.cos(np.log(x))[:, None] + np.random.default_rng(1).normal(0, 0.02, (200, 20))
    found = crossover(x, logs)
    truth = np.exp(np.pi * (np.arange(4) + 0.5))
    hits = [[c.low <= t <= c.high for t in truth] for c in found.crossings]
    assert [c.direction for c in found.crossings] == ["B", "A", "B", "A"] and found.count == 4
    assert np.array(hits).trace() >= 3
    assert all(a.high < b.low for a, b in pairwise(found.crossings))


def test_a_touch_is_no_crossing():
    logs = np.array([0.3, 0.01, 0.3])[:, None] + AROUND
    found = crossover([1, 2, 4], logs)
    (touch,) = found.unresolved
    assert (
        not found.crossings and found.winner is None and (touch.before, touch.after) == ("A", "A")
    )
    assert 1 < touch.low < 2 < touch.high < 4 and touch.at is None


def test_an_end_that_stays_unresolved_is_open_and_said():
    logs = np.array([0.0, 0.3, 0.6])[:, None] + AROUND
    (part,) = crossover([256, 512, 1024], logs).unresolved
    assert part.low is None and part.before is None and part.after == "A"
    assert crossover([1, 2], [[-0.25, 0.25], [1.0, 1.5]]).unresolved[0].at == 1
    assert said(crossover([256, 512, 1024], logs)) == (
        "none shown in range: B may be faster below 268, above it A is faster"
    )
    (row,) = frontier([0.5], [crossover([256, 512, 1024], logs)])
    assert (row.y, row.low, row.high) == (0.5, None, part.high)


def test_one_block_resolves_nothing():
    found = crossover(OCTAVES, line(0.25, 0, np.random.default_rng(1))[:, :1])
    (part,) = found.unresolved
    assert found.count == 0 and part.low is None and part.high is None
    assert found.at_ends == ("AMBIGUOUS", "AMBIGUOUS")
    assert said(found) == "none shown in range: neither is shown to be faster anywhere"


def test_a_missing_cell_removes_a_block_from_its_neighbourhood_only():
    logs = line(0.1, 0.005, np.random.default_rng(1))
    logs[4, 0] = math.nan
    found = crossover(OCTAVES, logs)
    assert [p.blocks for p in found.points] == [5, 5, 5, 5, 4, 5, 5] and found.count == 1
    both = crossover(OCTAVES[3:5], logs[3:5, 1:]).crossings[0]
    assert found.crossings[0].low == pytest.approx(both.low, rel=1e-9)


def test_a_linear_axis_is_used_where_x_may_be_zero():
    logs = np.array([0.3, -0.1])[:, None] * np.ones(3)
    found = crossover([0, 100], logs)
    assert found.linear and found.crossings[0].at == pytest.approx(75)
    assert not crossover([1, 100], logs).linear
    assert crossover([1, 100], logs).crossings[0].at == pytest.approx(100**0.75)


def test_refinement_closes_in_on_a_planted_crossing():
    """A bent curve: two points alone put the crossing elsewhere."""
    rng, taken = np.random.default_rng(1), [64.0, 4096.0]
    measure = lambda x: math.tanh(math.log2(TRUTH / x)) + rng.normal(0, 0.01, BLOCKS)  # noqa: E731
    logs = [measure(x) for x in taken]
    for _ in range(20):
        found = crossover(taken, logs)
        if (x := next_point(found, taken, 0.02, whole=True)) is None:
            break
        assert x == round(x) and x not in taken
        taken.append(x)
        logs.append(measure(x))
    (crossing,) = found.crossings
    assert x is None and len(taken) < 15 and crossing.at == pytest.approx(TRUTH, rel=0.02)


def test_no_next_point_where_nothing_lies_between_or_is_left_to_learn():
    found = crossover([7, 8], np.array([0.01, -0.01])[:, None] + AROUND)
    assert next_point(found, [], 0.01) == pytest.approx(math.sqrt(56))
    assert next_point(found, [], 0.01, whole=True) is None and next_point(found, [], 0.2) is None
    zero = crossover([0, 8], np.array([0.1, -0.1])[:, None] + AROUND)
    assert next_point(zero, [], 0.01) == 4 and next_point(zero, [4], 0.01, whole=True) in (2, 6)
    sure = crossover(OCTAVES, line(0.1, 0, np.random.default_rng(1)))
    assert next_point(sure, OCTAVES, 1.0) is None, "an octave between neighbours was asked for"
    never = crossover(OCTAVES, line(0.1, 0, np.random.default_rng(1)) + 1)
    assert next_point(never, [], 0.01) is None


def test_a_step_is_bracketed_wherever_straight_lines_would_put_it():
    """A staircase, as waves of programs make one: the interval misses it, its neighbours do not."""
    taken, step = [64.0, 512.0, 640.0, 4096.0], 529
    measure = lambda x: (0.075 if x < step else -0.004) + AROUND / 10  # noqa: E731
    (first,) = crossover(taken, [measure(x) for x in taken]).crossings
    assert not first.low <= step <= first.high and first.between == (512, 640)
    for _ in range(20):
        found = crossover(taken, [measure(x) for x in taken])
        if (x := next_point(found, taken, 0.001, whole=True)) is None:
            break
        taken.append(x)
    assert found.crossings[0].between == (528, 529)


def test_nothing_within_the_noise_of_an_a_a_pair_is_called_faster():
    logs = line(0.1, 0, np.random.default_rng(1), truth=700) + AROUND / 100
    quiet, noisy = crossover(OCTAVES, logs), crossover(OCTAVES, logs, noise=0.2)
    (a,), (b,) = quiet.crossings, noisy.crossings
    assert a.between == (512, 1024) and b.between == (128, 4096)
    assert abs(math.log(noisy.points[3].value)) < 0.2
    assert crossover(OCTAVES, logs, noise=9).count == 0


def test_the_sides_of_a_crossing_are_two_points():
    """Blocks that lack an end: the sign jumps at the point they share."""
    logs = np.full((3, 5), math.nan)
    logs[:2, :3], logs[1:, 3:] = 0.1, -0.1
    logs[1, :3], logs[1, 3:] = 0.1, -0.1
    for c in crossover([1, 2, 3], logs + AROUND / 100).crossings:
        assert c.between[0] < c.between[1]


def test_a_sure_crossing_between_far_points_is_looked_into():
    sure = crossover([64, 4096], np.array([0.1, -0.1])[:, None] + np.zeros(5))
    assert next_point(sure, [], 0.01) == pytest.approx(512)


def test_frontier_has_a_row_for_each_crossing_and_none_where_one_side_wins():
    logs = line(0.1, 0, np.random.default_rng(1))
    series = [crossover(OCTAVES, logs + AROUND), crossover(OCTAVES, logs + 1)]
    (row,) = frontier([0.25, 0.75], series)
    (c,) = series[0].crossings
    assert row == (0.25, c.at, c.low, c.high) and c.low < TRUTH < c.high
    with pytest.raises(ValueError, match="1 values of y for 2 series"):
        frontier([1.0], series)


@pytest.mark.parametrize(
    "x, logs, message",
    [
        ([1, 2, 3], np.zeros((2, 5)), r"\(2, 5\).*\(3,\)"),
        ([1], np.zeros((1, 5)), "two points"),
        ([2, 1, 2], np.zeros((3, 5)), "x=2 is given twice"),
        ([1, 2], [[0.1, 0.2], [math.nan, math.nan]], "no block has the point x=2"),
        ([1, 2], [[0.1, 0.2], [math.inf, 0.1]], "finite"),
    ],
)
def test_a_crossover_refuses_what_it_cannot_read(x, logs, message):
    with pytest.raises(ValueError, match=message):
        crossover(x, logs)


def test_two_blocks_are_enough_to_resolve_a_steep_crossing():
    logs = line(0.25, 0, np.random.default_rng(1))[:, :2] + np.array([0.001, -0.001])
    (crossing,) = crossover(OCTAVES, logs).crossings
    half = 12.7062 * 0.001 / 0.25  # octaves; Student's t, one degree of freedom
    expected = [TRUTH * 2**-half, TRUTH * 2**half]
    assert [crossing.low, crossing.high] == pytest.approx(expected, rel=1e-3)


def test_a_sign_that_changes_with_the_blocks_is_a_crossing_at_that_point():
    """The blocks left of x = 2 see A ahead, those right of it B; none has seen both sides."""
    hole, up, down = math.nan, [0.29, 0.30, 0.31], [-0.29, -0.30, -0.31]
    logs = [[*up, hole, hole, hole], [*up, *down], [hole, hole, hole, *down]]
    (crossing,) = crossover([1, 2, 4], logs).crossings
    assert (crossing.low, crossing.high) == pytest.approx((2, 2)) and crossing.direction == "B"


def test_noise_that_crosses_three_times_is_one_crossing_at_the_middle_one():
    """The mean is 0 at 2, at 4 (between the points) and at 8; its doubts make them one."""
    logs = np.array([0.3, 0, -0.01, 0.01, 0, -0.3])[:, None] + AROUND
    found = crossover([1, 2, 2.5, 6.4, 8, 16], logs)
    assert found.count == 1 and found.crossings[0].at == pytest.approx(4)


def test_the_widest_gap_that_holds_a_crossing_is_halved_first():
    logs = np.array([1, 0.02, 0.01, -0.01, -1])[:, None] + AROUND
    found = crossover([1, 1000, 2000, 8000, 10000], logs)
    assert 1000 < found.crossings[0].low < 2000 and 8000 < found.crossings[0].high < 10000
    assert next_point(found, [], 0.01) == pytest.approx(4000)
