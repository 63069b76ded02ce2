"""What a profiler says of the same call: which kernels ran, for how long, from first to last.

A cross-check of the clocks and a look inside; never a timed sample, since a profiler slows what it
watches.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from .evict import evictor
from .graph import captured, warmed
from .samples import Call, Clock

TAKES = 5  # calls under the profiler, back to back as the clock makes them
Activity = tuple[str, float, float]  # name, start, stop in microseconds


@dataclass(frozen=True)
class Profile:
    """One call as the profiler saw it: the middle one of several by its span."""

    # From the start of its first kernel to the end of its last; None for an eager call, whose
    # kernels the profiled host does not launch in time.
    span_us: float | None
    kernels: dict[str, tuple[float, float]]  # name -> (launches, microseconds in sum)


def profiled(call: Call, clock: Clock, device: str) -> Profile | None:
    """Profile `call` in the cache state of `clock`; None where no take could be told from the next.

    Under a rotating clock a take is a call on each set, and what is told is a set's share of it.
    """
    calls = [lambda x=x: call.run(x) for x in call.sets] if clock.rotates else [call]
    for each in calls:
        warmed(each)
    replay = captured(calls) if clock.captures else call
    before = evictor(device) if clock.cache == "cold" else lambda: None
    before()
    skipped = len(_activities(before))

    def takes():
        for _ in range(TAKES + 1):
            before()
            replay()

    found = _activities(takes)
    each = len(found) // (TAKES + 1)
    if not each or len(found) % (TAKES + 1):
        return None
    parts = [found[i + skipped : i + each] for i in range(each, len(found), each)]
    middle = sorted(parts, key=_span)[TAKES // 2]
    if not middle:
        return None
    count, total = Counter(), Counter()
    for name, start, stop in middle:
        count[name] += 1 / len(calls)
        total[name] += (stop - start) / len(calls)
    span_us = _span(middle) / len(calls) if clock.captures else None
    return Profile(span_us, {name: (count[name], total[name]) for name in count})


def _activities(call: Callable) -> list[Activity]:
    """All that the device did for one call, in order."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as p:
        call()
        torch.cuda.synchronize()
    found = [
        (e.name, e.time_range.start, e.time_range.end)
        for e in p.events()
        if e.device_type == DeviceType.CUDA and not e.is_user_annotation
    ]
    return sorted(found, key=lambda e: e[1])


def _span(activities: list[Activity]) -> float:
    return max((stop for _, _, stop in activities), default=0.0) - min(
        (start for _, start, _ in activities), default=0.0
    )
