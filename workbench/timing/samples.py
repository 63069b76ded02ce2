"""What a clock is, what it is given and what it returns; arms take turns in one loop for all."""

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from .. import ranges
from .compilations import compilations

Turn = Callable[[str], None]
GRAIN_US = 0.05  # what CUDA events and host timers tell apart, with room
FEWEST = 20  # samples before an arm may be called settled
EVERY = 5  # rounds between two looks at the spread


@dataclass(frozen=True)
class Call:
    """One arm: a function of inputs, and the sets of inputs that it may be given."""

    run: Callable[[Any], object]
    sets: tuple = (None,)
    set_bytes: int = 0  # distinct bytes over all sets, a set's share of them, where known

    def __call__(self):
        return self.run(self.sets[0])


Arms = Mapping[str, Callable[[], object]]  # `Call`s, or closures where nothing has to rotate


@dataclass(frozen=True)
class Prepared:
    """An arm that is ready to be timed."""

    sample: Callable[[], float]  # takes one sample: microseconds a call
    calls: int = 1  # a sample is the mean of this many
    sets: int = 1  # input sets that the calls go through
    reuse_bytes: int | None = None  # distinct bytes touched from one use of a set to its next


@dataclass(frozen=True)
class Clock:
    """A way to take time, with what a record says of it.

    `open(device)` returns prepare(call) -> Prepared; it runs once a study, and every arm is
    prepared before the first sample is taken.
    """

    name: str
    open: Callable[[str], Callable[[Callable], Prepared]]
    cache: str  # "cold", "hot", "rotating" or "" where the caches are left as they are
    needs_gpu: bool
    repeats: int  # samples of an arm, at most, where the caller does not say
    captures: bool = False  # calls are captured in a CUDA graph
    rotates: bool = False  # calls go through several sets of inputs


@dataclass(frozen=True)
class Plan:
    """How many samples are taken."""

    repeats: int  # of an arm, at most
    budget_s: float = 2.0  # of an arm; a slow arm gets fewer samples, but at least 5
    # All arms stop together once the 95 % interval of every median is this narrow (half of its
    # width over the median) or at the grain of a timer; 0: never before `repeats`. No sample is
    # ever taken back.
    precision: float = 0.0


@dataclass
class Samples:
    """The samples of one arm."""

    calls: int  # a sample is the mean of this many calls
    samples_us: list[float] = field(default_factory=list)
    sets: int = 1
    reuse_bytes: int | None = None
    compiled: list[str] = field(default_factory=list)  # kernels, while samples were taken


def measure(
    clock: Clock,
    arms: Arms,
    plan: Plan,
    device: str,
    turn: Turn = lambda name: None,
    between: Callable[[], None] = lambda: None,
) -> dict[str, Samples]:
    """Time every arm, in turns: forward in one round, backward in the next.

    `turn(name)` is called before each use of an arm, so that whoever watches knows what ran last;
    `between()` between rounds, outside of every sample, four times or so. Raises ValueError where
    the clock cannot time an arm as its name says.
    """
    prepare = clock.open(device)
    ready, cost_us = {}, {}
    for name, call in arms.items():
        turn(name)
        with ranges.span("warm_up"):
            ready[name] = prepare(call)
            ready[name].sample()  # compiles, touches memory for the first time
            start = time.perf_counter_ns()
            ready[name].sample()
            cost_us[name] = (time.perf_counter_ns() - start) / 1e3
    out = {name: Samples(p.calls, [], p.sets, p.reuse_bytes) for name, p in ready.items()}
    count = shares(cost_us, plan.repeats, plan.budget_s)
    most = max(count.values(), default=0)
    with uncollected(), ranges.silenced(), compilations() as compiled:
        for i, names in enumerate(rounds(count)):
            if i % max(1, most // 4) == 0:
                between()
            for name in names:
                turn(name)
                out[name].samples_us.append(ready[name].sample())
                out[name].compiled += compiled
                compiled.clear()
            late = i + 1 >= FEWEST and (i + 1) % EVERY == 0
            if late and all(
                settled(s.samples_us, plan.precision) or len(s.samples_us) == count[name]
                for name, s in out.items()
            ):
                break
    return out


@contextmanager
def uncollected():
    """No garbage is collected inside the block; it was just before."""
    collected = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def shares(cost_us: Mapping[str, float], repeats: int, budget_s: float) -> dict[str, int]:
    """How many samples each arm gets: `repeats`, or what fits the budget, but at least 5."""
    return {
        name: max(min(repeats, 5), min(repeats, int(budget_s * 1e6 / max(us, 1e-3))))
        for name, us in cost_us.items()
    }


def rounds(count: Mapping[str, int]) -> Iterator[list[str]]:
    """Who takes a sample in each round: forward, then backward, each as often as `count` says.

    Every other round begins with the next arm, so that none always follows the same neighbour.
    """
    names = list(count)
    for i in range(max(count.values(), default=0)):
        begin = i // 2 % len(names)
        turned = names[begin:] + names[:begin]
        order = turned if i % 2 == 0 else reversed(turned)
        yield [name for name in order if i < count[name]]


def settled(samples: list[float], precision: float) -> bool:
    """Whether the median is known to `precision` of itself, by the interval around it."""
    if len(samples) < FEWEST or precision <= 0:
        return False
    low, high = interval(samples)
    return high - low <= 2 * max(precision * sorted(samples)[len(samples) // 2], GRAIN_US)


def interval(samples: list[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by the order statistics around it.

    It lies between ranks n / 2 -+ 0.98 sqrt(n) (normal approximation of the binomial) and asks
    nothing of how the samples are distributed but that they are independent.
    """
    n = len(samples)
    ordered, reach = sorted(samples), 0.98 * math.sqrt(n)
    return ordered[max(0, int(n / 2 - reach))], ordered[min(n - 1, math.ceil(n / 2 + reach))]
