"""Host time, for a CPU: it contains everything that Python does for a call."""

import time
from collections.abc import Callable

from ..machine import synchronize
from .samples import Clock, Prepared


def _open(device: str):
    def prepare(call: Callable) -> Prepared:
        def sample() -> float:
            start = time.perf_counter_ns()
            call()
            synchronize(device)
            return (time.perf_counter_ns() - start) / 1e3

        return Prepared(sample)

    return prepare


wall_clock = Clock("wall_clock", _open, cache="", needs_gpu=False, repeats=20)
