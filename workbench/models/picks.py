"""What the chunk model's picks cost where its constants were not fitted, beside other choices."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .makespan import refined
from .splits import Calibration, Sweep

WITHIN, WORST = 1.10, 1.30  # of the best time: what nearly every pick should reach, and all
WAYS = {"pick": "ratio", "refined": "refined_ratio", "own rule": "rule_ratio"}  # of `Judged`


@dataclass(frozen=True)
class Judged:
    """A pick beside what was measured at a place that the constants were not fitted on."""

    sweep: Sweep
    wanted: int  # the pick among all counts
    pick: int  # the pick among those that were measured
    refined: int  # the fastest that was measured within `makespan.AROUND` of the pick

    @property
    def ratio(self) -> float:
        return self._over(self.sweep.times_us[self.pick])

    @property
    def refined_ratio(self) -> float:
        return self._over(self.sweep.times_us[self.refined])

    @property
    def rule_ratio(self) -> float | None:
        return None if self.sweep.rule_us is None else self._over(self.sweep.rule_us)

    def _over(self, us: float) -> float:
        return us / self.sweep.times_us[self.sweep.best]


def judged(found: Sequence[Sweep], calibrations: Iterable[Calibration]) -> list[Judged]:
    """The picks of each good calibration at all places but its own, of two counts or more."""
    out = []
    for c in calibrations:
        own = [p.sweep for p in c.points]
        others = [s for s in found if (s.variant, s.layout) == (c.variant, c.layout)
                  and s not in own and len(s.times_us) > 1]  # fmt: skip
        out += [_judged(c, s) for s in others if c.why is None]
    return out


def _judged(c: Calibration, s: Sweep) -> Judged:
    pick = c.pick(s.call, s.times_us)
    near, _ = refined(s.call, pick, lambda n: s.times_us.get(n, math.inf))
    return Judged(s, c.pick(s.call, range(1, s.call.chunks + 1)), pick, near)


def shares(seen: Sequence[Judged]) -> list[dict]:
    """Of each variant and layout: how often a way to choose is within WITHIN, and its worst place.

    None for the own rule where no record has it.
    """
    names = dict.fromkeys((j.sweep.variant, j.sweep.layout) for j in seen)
    out = []
    for name in names:
        own = [j for j in seen if (j.sweep.variant, j.sweep.layout) == name]
        told = {"variant": name[0], "layout": name[1], "places": len(own)}
        for way, of in WAYS.items():
            over = [r for r in (getattr(j, of) for j in own) if r is not None]
            told[way] = {"within": sum(r <= WITHIN for r in over) / len(over),
                         "worst": max(over)} if over else None  # fmt: skip
        out.append(told)
    return out
