"""Two CUDA events around one eager call with an evicted L2: what most harnesses do.

For a variant that no graph can hold, since it reads the device on the host. The host launches while
the eviction still runs, so a call's launch is in its time only as far as it takes longer than that:
compare with `floor_us`, or take a graph clock.
"""

from collections.abc import Callable

import torch

from .evict import evictor
from .samples import Clock, Prepared


def _open(device: str):
    evict = evictor(device)

    def prepare(call: Callable) -> Prepared:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def sample() -> float:
            evict()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            return start.elapsed_time(stop) * 1e3

        return Prepared(sample)

    return prepare


events = Clock("events", _open, cache="cold", needs_gpu=True, repeats=100)
