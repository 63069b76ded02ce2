"""What a dispatch table says of each arm on a workload, and which of them serve it."""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..fields import replaced
from ..op import Config, Op, Variant, Workload
from .dispatch_table import AXIS, Arm, Entry, Table, identity

REFERENCE = "eager"  # how the names of variants begin that are there to be compared with


class Estimate(NamedTuple):
    variant: str
    config: Config  # None, too, where the variant or its config is not known here
    us: float
    at: tuple[int, ...]  # token counts of the one or two places that it follows from; none where
    # it is modelled
    sides: tuple[Arm, ...]  # the arm at each
    reason: str | None  # why it does not serve the workload


def refusal(
    v: Variant, w: Workload, config: Config, arch: str | None, named: bool = False
) -> str | None:  # fmt: skip
    """Why a variant does not serve a workload on `arch`, or None: the envelope that it declares.

    An unknown arch refuses what is written for some. A variant that the caller has `named` may be
    a reference, read from the device, and be written for the GPU that nobody has named.
    """
    if not named and (reason := _unfit(v)):
        return reason
    if v.archs and arch not in v.archs and not (named and arch is None):
        here = f"this is {arch}" if arch else "no GPU is named"
        return f"written for {', '.join(v.archs)}, {here}"
    return v.requires(w, config)


def _unfit(v: Variant) -> str | None:
    """Why a variant serves nobody who does not name it, or None."""
    if v.name.startswith(REFERENCE):
        return "a reference"
    return None if v.capturable else "reads from the device: no CUDA graph holds it"


def estimates(
    op: Op, w: Workload, table: Table | None, arch: str | None = None, named: bool = False
) -> list[Estimate]:  # fmt: skip
    """What `table` says of each arm at the place of `w`, the fastest first.

    Between two token counts a time is read off a line in log-log. An arm that was not measured so
    far up takes its last time in proportion to the tokens, so that it does not win by having been
    left out there; one that was not measured so far down takes its first time.
    """
    arms: dict[str, dict[int, Arm]] = {}
    for tokens, entry in sorted(series(op, w, table).items()):
        for arm in entry.arms:
            key = arm.variant + json.dumps(arm.config, sort_keys=True)
            arms.setdefault(key, {})[tokens] = arm
    found = []
    for key, points in sorted(arms.items()):
        us, at = _between(points, max(1, vars(w).get(AXIS, 1)))
        arm = points[at[0]]
        config, reason = _served(op, w, arm, arch, named)
        sides = tuple(points[t] for t in at)
        found.append((us, key, Estimate(arm.variant, config, us, at, sides, reason)))
    return [e for *_, e in sorted(found, key=lambda row: row[:2])]


def series(op: Op, w: Workload, table: Table | None) -> dict[int, Entry]:
    """The entries of a table that differ from `w` in their tokens at most, by their tokens.

    Where the op has no tokens, the one entry of the place stands at 1.
    """
    if table is None:
        return {}
    asked, default = _others(identity(w)), identity(op.Workload())
    found = {e.workload.get(AXIS, default.get(AXIS, 1)): e for e in table.entries
             if _others(default | dict(e.workload)) == asked}  # fmt: skip
    return {tokens: e for tokens, e in found.items() if tokens > 0}


def _others(place: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in place.items() if name != AXIS}


def _between(points: Mapping[int, Arm], tokens: int) -> tuple[float, tuple[int, ...]]:
    """(time of an arm at so many tokens, the measured token counts that it follows from)."""
    below = max((t for t in points if t <= tokens), default=None)
    above = min((t for t in points if t >= tokens), default=None)
    if below is None:
        return points[above].us, (above,)
    if above is None or below == above:
        return points[below].us * (tokens / below), (below,)
    share = math.log(tokens / below) / math.log(above / below)
    us = points[below].us ** (1 - share) * points[above].us ** share
    return us, (below, above)


def _served(
    op: Op, w: Workload, arm: Arm, arch: str | None, named: bool
) -> tuple[Config, str | None]:  # fmt: skip
    """(config of an arm, with what it leaves to `w` filled in; why it does not serve `w`)."""
    v = op.variants.get(arm.variant)
    if v is None:
        return None, "not a variant here"
    try:
        config = replaced(v.config, dict(arm.config), "config")
    except ValueError as error:
        return None, str(error)
    reason = refusal(v, w, config, arch, named)
    return config if reason else v.settled(w, config), reason
