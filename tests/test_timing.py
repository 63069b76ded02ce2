"""Clocks: arms take turns, every sample comes back, nothing but the work is inside a sample."""

import gc
from functools import partial
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
from conftest import DEVICE
from hypothesis import given
from hypothesis import strategies as st

from workbench.ops import OPS
from workbench.timing import CLOCKS, Call, Clock, Plan, empty, measure, wall_clock
from workbench.timing.evict import evictor
from workbench.timing.kineto import profiled
from workbench.timing.samples import FEWEST, GRAIN_US, Prepared, interval, rounds, settled, shares

on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs need a GPU")
ENOUGH = 600  # samples, more than any of these tests needs


def scripted(times=None) -> Clock:
    """A clock whose samples are the results of the calls, or those that `times` yields."""

    def prepare(call):
        return Prepared(call if times is None else lambda: (call(), next(times))[1])

    return Clock("scripted", lambda device: prepare, "", needs_gpu=False, repeats=ENOUGH)


def counted(name: str, log: list, us: float = 1.0):
    return lambda: (log.append(name), us)[1]


COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9), max_size=4)


@given(COUNTS)
def test_arms_take_turns_forward_and_backward(count):
    taken = list(rounds(count))
    assert len(taken) == max(count.values(), default=0)
    for i, names in enumerate(taken):
        begin = i // 2 % len(count)  # every other round begins with the next arm
        turned = [*list(count)[begin:], *list(count)[:begin]]
        order = turned if i % 2 == 0 else turned[::-1]
        assert names == [name for name in order if i < count[name]]


def test_no_arm_always_follows_the_same_one():
    order = [name for names in rounds(dict.fromkeys("abc", 60)) for name in names]
    before = {name: [a for a, b in pairwise(order) if b == name] for name in "abc"}
    for name, seen in before.items():
        assert set(seen) == set("abc"), name
        assert max(map(seen.count, "abc")) <= 0.5 * len(seen), (name, seen)


def test_who_runs_is_told_before_each_use_and_between_is_outside_of_every_sample():
    log = []
    arms = {name: counted(name, log) for name in "ab"}
    said, seen = [], []
    measure(scripted(), arms, Plan(40), "cpu", said.append, lambda: seen.append(len(log)))
    warm_up = 4  # two calls an arm
    assert said[:2] == ["a", "b"] and log[:warm_up] == ["a", "a", "b", "b"]
    assert said[2:] == log[warm_up:] == [*"abbabaab"] * 10
    assert seen == [warm_up + 2 * n for n in (0, 10, 20, 30)]


def test_every_sample_comes_back_in_the_order_it_was_taken():
    times = iter(float(n) for n in range(1000))
    out = measure(scripted(times), {"a": list, "b": list}, Plan(4), "cpu")
    assert out["a"].samples_us == [4.0, 7.0, 9.0, 10.0]  # four were the warm-up's
    assert out["b"].samples_us == [5.0, 6.0, 8.0, 11.0]


def test_a_sample_says_how_many_calls_and_sets_it_was():
    prepared = Prepared(lambda: 1.0, calls=7, sets=3, reuse_bytes=24)
    clock = Clock("seven", lambda device: lambda call: prepared, "", needs_gpu=False, repeats=9)
    (s,) = measure(clock, {"a": list}, Plan(3), "cpu").values()
    assert (s.calls, s.sets, s.reuse_bytes, s.samples_us) == (7, 3, 24, [1.0, 1.0, 1.0])


def test_the_budget_is_an_upper_bound_but_leaves_five_samples():
    count = shares({"fast": 10.0, "slow": 1e6, "none": 0.0}, repeats=100, budget_s=20.0)
    assert count == {"fast": 100, "slow": 20, "none": 100}
    assert shares({"slow": 1e9}, repeats=100, budget_s=2.0) == {"slow": 5}
    assert shares({"slow": 1e9}, repeats=3, budget_s=0.0) == {"slow": 3}


def test_wall_clock_returns_times_of_every_call():
    out = measure(wall_clock, {name: partial(sorted, range(99)) for name in "ab"}, Plan(6), "cpu")
    assert {name: len(s.samples_us) for name, s in out.items()} == {"a": 6, "b": 6}
    assert all(0 < us < 1e6 for s in out.values() for us in s.samples_us)


def noisy(seed: int, share: float) -> Clock:
    rng = np.random.default_rng(seed)
    return scripted(iter(lambda: float(1000 * (1 + share * rng.standard_normal())), None))


def lengths(clock: Clock, precision: float, arms="ab") -> set[int]:
    plan = Plan(ENOUGH, precision=precision)
    out = measure(clock, dict.fromkeys(arms, list), plan, "cpu")
    return {len(s.samples_us) for s in out.values()}


def test_quiet_arms_stop_together_and_not_below_the_fewest():
    assert lengths(noisy(1, 0.0), 1e-6) == {FEWEST}


def test_noise_takes_more_samples_and_precision_0_takes_all():
    (some,), (more,) = (lengths(noisy(1, share), 0.002) for share in (0.003, 0.009))
    assert FEWEST <= some < more < ENOUGH
    assert lengths(noisy(1, 0.0), 0.0) == {ENOUGH}


def test_one_restless_arm_keeps_the_others_running():
    rng = np.random.default_rng(2)
    arms = {"quiet": lambda: 1000.0, "restless": lambda: float(rng.uniform(500, 1500))}
    out = measure(scripted(), arms, Plan(100, precision=0.002), "cpu")
    assert [len(s.samples_us) for s in out.values()] == [100, 100]


def test_below_the_grain_of_a_timer_an_arm_is_settled():
    assert settled([1.0, 1.0 + GRAIN_US] * 10, 1e-9)
    assert not settled([1.0, 1.0 + 3 * GRAIN_US] * 10, 1e-9)
    assert not settled([1.0] * (FEWEST - 1), 0.5) and not settled([1.0] * ENOUGH, 0.0)


SKEWED = {  # what times look like: a floor with a tail, or two modes; the median of each
    "normal": (lambda rng, n: rng.normal(100, 1, n), 100.0),
    "tail": (lambda rng, n: rng.lognormal(0, 1, n), 1.0),
    "two modes": (lambda rng, n: rng.choice([1, 3], n) + rng.uniform(0, 1, n) - 0.5, None),
}


@pytest.mark.parametrize("n", [20, 25, 60, 200])
@pytest.mark.parametrize("law", SKEWED)
def test_the_interval_holds_the_median_in_about_95_percent_of_studies(law, n):
    draw, median = SKEWED[law]
    rng, hits, studies = np.random.default_rng(n), 0, 2000
    for _ in range(studies):
        low, high = interval(draw(rng, n).tolist())
        hits += low <= median <= high if median else low <= 2.5 and high >= 1.5
    assert 0.94 <= hits / studies <= 0.985


def test_the_interval_lies_between_known_ranks():
    assert interval([float(n) for n in range(100, 0, -1)]) == (41.0, 61.0)


def test_settled_asks_for_the_width_of_that_interval():
    rng = np.random.default_rng(3)
    for n in (20, 33, 400):
        samples = rng.normal(1000, 5, n).tolist()
        low, high = interval(samples)
        needed = (high - low) / 2 / sorted(samples)[n // 2]
        assert settled(samples, needed * 1.001) and not settled(samples, needed * 0.999)


def test_garbage_is_not_collected_inside_samples_and_is_afterwards():
    states = []
    measure(wall_clock, {"a": lambda: states.append(gc.isenabled())}, Plan(5), "cpu")
    assert states[:2] == [True, True] and not any(states[2:]) and gc.isenabled()


def test_an_arm_that_raises_leaves_collector_and_hook_as_they_were():
    calls, hook = iter(range(4)), triton.knobs.runtime.jit_post_compile_hook
    with pytest.raises(StopIteration):
        measure(wall_clock, {"a": lambda: next(calls)}, Plan(9), "cpu")
    assert gc.isenabled() and triton.knobs.runtime.jit_post_compile_hook is hook


def compiles(name: str) -> None:
    """Tell Triton's hook of a compilation, as Triton does."""
    if hook := triton.knobs.runtime.jit_post_compile_hook:
        hook(key="", repr="", fn=SimpleNamespace(module="", name=name, jit_function=None),
             compile={}, is_manual_warmup=False, already_compiled=False)  # fmt: skip


def test_a_compilation_inside_the_window_is_noted_on_the_arm_that_compiled():
    def compiling(at):
        calls = iter(range(100))
        return lambda: compiles("_late_kernel") if next(calls) == at else None

    warm_up = 2
    arms = {"before": compiling(1), "inside": compiling(warm_up + 3), "not": lambda: None}
    out = measure(wall_clock, arms, Plan(6), "cpu")
    compiled = {name: s.compiled for name, s in out.items()}
    assert compiled == {"before": [], "inside": ["_late_kernel"], "not": []}


def test_a_hook_that_was_there_still_hears_of_compilations(monkeypatch):
    heard = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_post_compile_hook",
                        lambda *args, **more: heard.append(more["fn"].name))  # fmt: skip
    out = measure(wall_clock, {"a": lambda: compiles("_kernel")}, Plan(3), "cpu")
    assert out["a"].compiled == ["_kernel"] * 3 and heard == ["_kernel"] * 5


def test_an_empty_call_fits_a_clock_that_rotates_as_many_sets():
    call = empty("cpu", 3)
    assert len(call.sets) == 3 and call() is None and call.set_bytes == 0


@on_gpu
@pytest.mark.parametrize("name", ["graph_cold", "graph_hot"])
def test_a_graph_clock_times_the_call_and_not_the_eviction(name):
    small = torch.zeros(8, device=DEVICE)
    large = torch.zeros(1 << 28, dtype=torch.uint8, device=DEVICE)
    arms = {"small": lambda: small.add_(1), "large": lambda: large.add_(1)}
    out = measure(CLOCKS[name], arms, Plan(20), DEVICE)
    small_us, large_us = (min(out[k].samples_us) for k in ("small", "large"))
    assert 0 < small_us < 20 < large_us


@on_gpu
def test_an_empty_kernel_under_the_cold_clock_shows_the_floor():
    out = measure(CLOCKS["graph_cold"], {"floor": empty(DEVICE)}, Plan(50), DEVICE)
    assert 0 < float(np.median(out["floor"].samples_us)) < 10


@on_gpu
def test_the_profiler_agrees_with_the_clock_on_a_copy():
    # long: that its writes drain, some 2 us, is in the clock's time and not in the profiler's
    op = OPS["device_copy"]
    x = op.make_inputs(op.Workload(bytes=1 << 28), DEVICE)
    call, clock = Call(op.variants["triton_copy"], (x,)), CLOCKS["graph_hot"]
    out = measure(clock, {"copy": call, "floor": empty(DEVICE)}, Plan(50), DEVICE)
    copy_us, floor_us = (float(np.median(s.samples_us)) for s in out.values())
    seen, nothing = profiled(call, clock, DEVICE), profiled(empty(DEVICE), clock, DEVICE)
    clock_us = copy_us - max(0.0, floor_us - nothing.span_us)
    assert abs(clock_us - seen.span_us) <= max(0.03 * seen.span_us, 1.0), (clock_us, seen)
    assert sum(count for count, _ in seen.kernels.values()) == 1


@on_gpu
def test_what_evicts_is_larger_than_the_l2_and_random():
    noise = evictor(DEVICE)()
    l2 = torch.cuda.get_device_properties(DEVICE).L2_cache_size
    assert noise.numel() * noise.element_size() >= 2 * l2
    assert len(noise[:1000].unique()) > 900, "constant lines may stay in the L2 compressed"


@on_gpu
def test_a_rotating_clock_goes_through_all_sets():
    seen = []
    sets = tuple(torch.full((8,), float(i), device=DEVICE) for i in range(3))
    total = torch.zeros(8, device=DEVICE)
    call = Call(lambda x: (seen.append(int(x.data_ptr())), total.add_(x)), sets, 32)
    (s,) = measure(CLOCKS["graph_rotating"], {"a": call}, Plan(4), DEVICE).values()
    assert (s.calls, s.sets, s.reuse_bytes) == (3, 3, 96) and len(s.samples_us) == 4
    assert seen[-3:] == [x.data_ptr() for x in sets]
