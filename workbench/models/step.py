"""What a decode step pays for its page splits, and how much of the step that is.

The share of a step is the split's time over the step's, and the step's is not measured here: who
runs the server gives it, or a profile does, and the source is told beside the number. Removing a
split shortens the step too, so a variant's share of the step that it would leave is smaller than
its share of the step that was measured (the seed's "16.8 % -> 2.2 %" is the latter kind).
"""

from collections.abc import Mapping
from dataclasses import dataclass

FLOOR = "direct"  # reads without a split: what it takes, no split can save


@dataclass(frozen=True)
class Total:
    """GPU time of one decode step of a server."""

    us: float
    source: str  # "given", or the profile that it comes from and how
    base: str  # the variant whose splits are in it

    def __post_init__(self):
        if not 0 < self.us < float("inf"):
            raise ValueError(f"a step of {self.us} us is no time")


@dataclass(frozen=True)
class Split:
    """A variant's part of a step."""

    step_us: float  # both caches, all layers, reading included
    split_us: float  # beyond reading alone
    share: float | None  # of the step that it would leave; None without a total
    saved: float | None  # of the step as it was measured, against its base; below 0: it costs more


def splits(step_us: Mapping[str, float], total: Total | None = None) -> dict[str, Split]:
    """Each variant's part of a step; `step_us` {variant: microseconds}, `FLOOR` among them.

    A split's time is what its variant takes beyond the floor, 0 where noise puts it below. Raises
    ValueError without the floor, and where `total` has another base or is less than its splits.
    """
    if FLOOR not in step_us:
        raise ValueError(f"no time of {FLOOR!r}, only of {', '.join(map(repr, step_us))}: "
                         "what reading alone takes is unknown")  # fmt: skip
    own = {name: max(0.0, us - step_us[FLOOR]) for name, us in step_us.items()}
    if total is None:
        return {name: Split(us, own[name], None, None) for name, us in step_us.items()}
    if total.base not in own:
        raise ValueError(f"the total holds splits of {total.base!r}, which was not measured here")
    rest = total.us - own[total.base]
    if rest <= 0:
        raise ValueError(f"a step of {total.us:,.1f} us ({total.source}) cannot hold "
                         f"{own[total.base]:,.1f} us of {total.base} splits")  # fmt: skip
    return {
        name: Split(us, own[name], own[name] / (rest + own[name]),
                    (own[total.base] - own[name]) / total.us)
        for name, us in step_us.items()
    }  # fmt: skip
