"""The chunk model of sparse decode: exact list scheduling, its golden picks, its fit."""

import heapq
import math
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.models.makespan import (
    AROUND,
    Call,
    Constants,
    chunks_of,
    fitted,
    in_flight_bytes,
    makespan,
    picked,
    predicted_s,
    refined,
    waves_s,
)

GOLDEN = Constants(1e-12, 1e-10, 1e-6)  # of the published test of the first generation
WHOLE = Call(tokens=64, heads=128, chunks=chunks_of(3200), chunk_bytes=37376)
FIRST = partial(waves_s, split_s=5e-6)
REAL = Constants(4.2e-13, 1.3e-10, 5e-6)
POINTS = [(64, 128, 128, 1), (64, 128, 1024, 8), (64, 128, 1024, 1), (64, 128, 512, 1),
          (1, 8, 1024, 16), (32, 128, 512, 1)]  # fmt: skip


@pytest.mark.parametrize("l2, pick", [(None, 25), (148 * 10 * 37376, 10), (1, 25)])
def test_golden_picks_of_the_first_generation(l2, pick):
    """Without a guard, with one that leaves up to ten chunks, and with one that nothing meets."""
    assert picked(WHOLE, GOLDEN, 148, l2, FIRST) == pick


def test_a_short_last_program_may_beat_equal_ones():
    """T = 8, H = 128, N = 16: programs of 7, 7 and 2 chunks end before two of 8."""
    call = Call(tokens=8, heads=128, chunks=16, chunk_bytes=37376)
    assert predicted_s(call, 7, GOLDEN, 120) < predicted_s(call, 8, GOLDEN, 120)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.floats(0.1, 9.0)), min_size=1, max_size=3),
    st.integers(1, 17),
)
def test_makespan_is_that_of_list_scheduling(jobs, machines):
    free = [0.0] * machines
    ends = [0.0]
    for count, length in jobs:
        for _ in range(count):
            ends.append(heapq.heappop(free) + length)
            heapq.heappush(free, ends[-1])
    assert makespan(jobs, machines) == pytest.approx(max(ends), rel=1e-12)


def test_the_last_program_takes_what_is_left():
    """Three chunks in programs of two on one multiprocessor: three chunks and two starts."""
    call = Call(tokens=1, heads=16, chunks=3, chunk_bytes=10**6)
    c = Constants(1e-12, 1e-10, 1e-6)
    assert predicted_s(call, 2, c, 1) == pytest.approx(3 * 1e-4 + 2 * 1e-6)


def test_ties_go_to_fewer_programs():
    """One piece on one multiprocessor without a start: every pick takes equally long."""
    call = Call(tokens=1, heads=16, chunks=12, chunk_bytes=64)
    assert picked(call, Constants(1e-12, 1e-10, 0.0), 1) == 12


def test_chunks_of_two_caches_begin_anew():
    assert chunks_of(2048) == 32 and chunks_of(130, 1) == 4 and chunks_of(0, 64) == 1
    assert picked(Call(1, 8, 0, 64), GOLDEN, 8) == 1, "nothing selected: one program is enough"
    assert predicted_s(Call(1, 8, 0, 64), 1, GOLDEN, 8) == 0.0


def test_in_flight_bytes_count_one_wave():
    assert in_flight_bytes(WHOLE, 10, 148) == 148 * 10 * 37376
    assert in_flight_bytes(Call(1, 16, 32, 100), 8, 148) == 4 * 8 * 100


def measured(c, noise=0.0):
    calls = [(Call(t, h, chunks_of(k), 37376), n) for t, h, k, n in POINTS]
    return [(call, n, predicted_s(call, n, c, 148) * (1 + noise * (-1) ** i))
            for i, (call, n) in enumerate(calls)]  # fmt: skip


def test_a_fit_finds_the_constants_of_exact_times():
    fit = fitted(measured(REAL), 148)
    assert fit.good and fit.relative_rms < 1e-6
    for name in ("memory_s_per_byte", "program_s_per_byte", "start_s"):
        assert getattr(fit.constants, name) == pytest.approx(getattr(REAL, name), rel=1e-3)


def test_a_fit_of_other_times_is_refused():
    assert fitted(measured(REAL, 0.1), 148).good
    other = [(call, n, 1e-4 * 7 ** (i % 3)) for i, (call, n, _) in enumerate(measured(REAL))]
    assert not fitted(other, 148).good


def test_a_fit_says_what_it_cannot_use():
    with pytest.raises(ValueError, match="2 points"):
        fitted(measured(REAL)[:2], 148)
    with pytest.raises(ValueError, match=r"0\.0 s"):
        fitted([*measured(REAL), (WHOLE, 1, 0.0)], 148)


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"heads": 0}, {"chunks": -1}, {"chunk_bytes": 0}])
def test_a_call_says_what_is_too_small(wrong):
    given = {"tokens": 1, "heads": 1, "chunks": 1, "chunk_bytes": 1} | wrong
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        Call(**given)
    with pytest.raises(ValueError, match="chunks_per_block=0"):
        predicted_s(WHOLE, 0, GOLDEN, 148)


def test_refining_measures_around_the_pick():
    asked = []

    def time_of(n):
        asked.append(n)
        return 1.0 + abs(n - 14) * 0.1

    best, times = refined(WHOLE, 10, time_of)
    assert best == 14 and asked == list(range(10 - AROUND, 10 + AROUND + 1)) == list(times)
    assert refined(Call(1, 8, 3, 64), 2, lambda n: 1.0)[0] == 3, "of equal times, fewer programs"
    assert min(refined(WHOLE, 50, time_of)[1]) == 44 and math.isfinite(time_of(1))


def test_a_merge_writes_and_reads_each_part_once():
    call = Call(tokens=2, heads=40, chunks=9, chunk_bytes=37376, part_bytes=2052)
    known = replace(REAL, merge_s=2e-6, merge_s_per_byte=1e-9)
    alone = replace(known, merge_s=0.0, merge_s_per_byte=0.0)
    for n, parts in ((4, 3), (5, 2)):
        merge = predicted_s(call, n, known, 148) - predicted_s(call, n, alone, 148)
        assert merge == pytest.approx(2e-6 + 2 * 2 * 40 * parts * 2052 * 1e-9)
    assert predicted_s(call, 9, known, 148) == predicted_s(call, 9, alone, 148), "one part"


def test_a_fit_takes_the_merge_as_known():
    known = replace(REAL, merge_s=2e-6, merge_s_per_byte=3e-13)
    points = [(replace(call, part_bytes=2052), n, 0.0) for call, n, _ in measured(REAL)]
    points = [(call, n, predicted_s(call, n, known, 148)) for call, n, _ in points]
    fit = fitted(points, 148, (2e-6, 3e-13))
    assert fit.relative_rms < 1e-6 < 1e-3 < fitted(points, 148).relative_rms
    assert vars(fit.constants) == pytest.approx(vars(known), rel=1e-3)
