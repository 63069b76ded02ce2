"""Why a time may not be what it seems: short sentences that stand in a record.

A flag is "name: what was seen". Figures draw a flagged point hollow, a claim refuses it; nothing is
ever dropped. The flags here are seen while a study runs; `evidence` adds what only shows when
records are read together (warm when cold, warm when rotating, unstable, failed). A graph's replays
run no Python, so nothing can be compiled in their window; only what moves bytes can be seen to be
warm; an eager call's profile says nothing of its time.
"""

from collections.abc import Iterable
from statistics import median

TURNOVER = 2  # times the L2 that the sets of a rotating clock touch before one comes again
AGREE = 0.03  # share by which a clock and the profiler may differ
AGREE_US = 1.0  # and microseconds, where that is more
AGREE_EACH_US = 0.5  # and microseconds a kernel, which a profiler slows and sets apart


def of_state(state: dict | None) -> list[str]:
    """Throttled or busy, from the readings of a GPU around the samples."""
    if state is None:
        return []
    readings = [state["before"], *state["during"], state["after"]]
    reasons = sorted({reason for r in readings for reason in r["throttles"]})
    found = [f"throttled: {', '.join(reasons)}"] if reasons else []
    if busy := max((r["others"] or 0 for r in readings), default=0):
        found.append(f"busy: {busy} other processes on the GPU")
    return found


def of_samples(taken: dict) -> list[str]:
    """Kernels that were compiled while samples were taken."""
    names = sorted(set(taken["compiled"]))
    return [f"compiled in the window: {', '.join(names)}"] if names else []


def of_profile(taken: dict, profile: dict | None, own: Iterable[str], floor: dict) -> list[str]:
    """Another kernel ran, or the profiler's time is not the clock's.

    Around an empty kernel a clock shows more than the profiler does; that much is taken off the
    clock's time first. `floor` is {"us", "span_us"} of the empty kernel.
    """
    if profile is None:
        return []
    found, own = [], list(own)
    if own and not any(name in profile["kernels"] for name in own):
        ran = ", ".join(sorted(profile["kernels"]))[:120]
        found.append(f"another kernel ran: none of {', '.join(own)}, but {ran}")
    if floor.get("span_us") is not None and profile["span_us"] is not None:
        clock = median(taken["samples_us"]) - max(0.0, floor["us"] - floor["span_us"])
        span = profile["span_us"]
        count = sum(launches for launches, _ in profile["kernels"].values())
        if abs(clock - span) > allowed_us(span, count):
            found.append(f"profiler disagrees: {span:.1f} us from first to last kernel, "
                         f"{clock:.1f} us by the clock")  # fmt: skip
    return found


def allowed_us(span_us: float, launches: float) -> float:
    """How far a clock and a profiler may be apart on a call of so many launches."""
    return max(AGREE * span_us, AGREE_US, AGREE_EACH_US * launches)


def merged(lists: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Each flag of several records once, in the order they were seen."""
    return tuple(dict.fromkeys(flag for flags in lists for flag in flags))


def summed(found: Iterable[str]) -> list[str]:
    """One line for each kind of flag: the first that was seen, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for flag in found:
        kinds.setdefault(flag.partition(":")[0], []).append(flag)
    return [seen[0] + (f" (and {len(seen) - 1} more)" if len(seen) > 1 else "")
            for seen in kinds.values()]  # fmt: skip


def of_inputs(doubts: Iterable[str]) -> list[str]:
    """Indices that no model selects."""
    return [f"doubtful indices: {doubt}" for doubt in doubts]
