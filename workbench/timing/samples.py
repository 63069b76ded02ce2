"""What a clock is and what it returns."""

import gc
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

Arms = Mapping[str, Callable[[], object]]
Turn = Callable[[str], None]


@dataclass
class Samples:
    """The samples of one arm."""

    calls: int  # a sample is the mean of this many calls
    samples_us: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Clock:
    """A way to take time, with what a record says of it."""

    name: str
    measure: Callable[[Arms, int, float, Turn, str], dict[str, Samples]]
    cache: str  # "cold", "hot" or "" where the caches are left as they are
    needs_gpu: bool
    repeats: int  # samples of an arm where the caller does not say


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


def shares(first_us: Mapping[str, float], repeats: int, budget_s: float) -> dict[str, int]:
    """How many samples each arm gets: `repeats`, or what fits the budget, but at least 5."""
    return {
        name: max(min(repeats, 5), min(repeats, int(budget_s * 1e6 / max(us, 1e-3))))
        for name, us in first_us.items()
    }


def rounds(count: Mapping[str, int]):
    """Names in turn, forward and backward by round, each as often as `count` says."""
    names = list(count)
    for i in range(max(count.values(), default=0)):
        for name in names if i % 2 == 0 else reversed(names):
            if i < count[name]:
                yield name
