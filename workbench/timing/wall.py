"""Host time, for a CPU: it contains everything that Python does for a call."""

import time

from .. import ranges
from ..machine import synchronize
from .samples import Arms, Clock, Samples, Turn, rounds, shares, uncollected


def _measure(
    arms: Arms, repeats: int, budget_s: float, turn: Turn, device: str
) -> dict[str, Samples]:
    def sample(name: str) -> float:
        start = time.perf_counter_ns()
        arms[name]()
        synchronize(device)
        return (time.perf_counter_ns() - start) / 1e3

    first = {}
    for name in arms:
        turn(name)
        with ranges.span("warm_up"):
            sample(name)  # compiles, touches memory for the first time
            first[name] = sample(name)
    out = {name: Samples(calls=1) for name in arms}
    with uncollected(), ranges.silenced():
        for name in rounds(shares(first, repeats, budget_s)):
            turn(name)
            out[name].samples_us.append(sample(name))
    return out


wall_clock = Clock("wall_clock", _measure, cache="", needs_gpu=False, repeats=20)
