"""Arms of one study against each other, and one file of records against another.

The statistics are those of `models.ratio` and `models.crossover`; this is what of a table they are
given. Arms are paired by the process block in which they took turns; two files are not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan

import numpy as np
import pandas as pd

from .columns import arm_labels
from .evidence import CASE, newest, number
from .fields import choose
from .flags import merged
from .models.crossover import Crossover, crossover
from .models.ratio import Ratio, noise, ratio, verdict
from .ops import OPS

BAND = 0.005  # relative difference that nobody cares about


@dataclass(frozen=True)
class Compared:
    """Arm b over arm a on one case: below 1, b is faster."""

    device: str
    clock: str
    cache: str
    op: str
    place: str  # what is special of the workload
    a: str
    b: str
    a_us: float  # geometric mean of the blocks' medians
    b_us: float
    ratio: Ratio
    noise: float  # absolute log ratio of the study's A/A pair; nan where it had none
    verdict: str
    flags: tuple[str, ...]  # of either side
    logs: tuple[float, ...] = ()  # log ratio of each block, where they are paired

    @property
    def said(self) -> str:
        r = self.ratio
        interval = f" ({r.low:.3f} to {r.high:.3f})" if r.low == r.low else ""
        return f"{r.value:.3f}{interval} {self.verdict}"


def compare_arms(table: pd.DataFrame, a: str, b: str, band: float = BAND) -> list[Compared]:
    """Arm `b` over arm `a` on every case that has both, paired by the block of their study.

    `a` and `b` are labels of the table's `arm` column, or variants where that is enough to tell.
    Raises ValueError on an arm that is not there and where no case has both.
    """
    a, b = arm_in(table, a), arm_in(table, b)
    if a == b:
        raise ValueError(f"{a!r} is both arms")
    timed = table[table["median_us"].notna()]
    ours = timed[timed["arm"].isin([a, b])]
    turns = [*CASE, "study", "block"]  # in which both arms took turns
    both = ours.groupby(turns, dropna=False)["arm"].transform("nunique") == len({a, b})
    ours = newest(ours[both], CASE)
    known = noises(timed[timed["study"].isin(ours["study"])])
    out = [
        _compared(case, rows, a, b, known, band)
        for case, rows in ours.groupby(CASE, sort=False, dropna=False)
    ]
    if not out:
        raise ValueError(f"no case of these records has times of both {a!r} and {b!r}")
    return out


def arm_in(table: pd.DataFrame, text: str) -> str:
    """The label of the arm that `text` names. Raises ValueError, listing what is there."""
    known = list(dict.fromkeys(table["arm"]))
    if text in known:
        return text
    of_variant = [k for k in known if k.split(" ")[0] == text]
    plain = {k.replace(",", ""): k for k in known}
    if len(of_variant) == 1:
        return of_variant[0]
    return plain[choose("arm", text.replace(",", ""), plain)]


def noises(timed: pd.DataFrame) -> dict[tuple, float]:
    """The A/A noise of each case with a pair, as an absolute log ratio, by its newest source."""
    twins = newest(timed[timed["twin_median_us"].notna()], CASE)
    return {
        case: noise(rows["median_us"], rows["twin_median_us"])
        for case, rows in twins.groupby(CASE, dropna=False)
    }


def _compared(case, rows: pd.DataFrame, a: str, b: str, known: dict, band: float) -> Compared:
    pair = rows.pivot_table(index=["study", "block"], columns="arm", values="median_us")
    logs = np.log(pair[b] / pair[a])
    flags = merged(rows["flags"])
    a_us, b_us = (float(np.exp(np.log(pair[x]).mean())) for x in (a, b))
    r, floor = ratio(pair[a], pair[b], paired=True), known.get(case, nan)
    said = verdict(r, band, 0.0 if floor != floor else floor)
    return Compared(*case, a, b, a_us, b_us, r, floor, said, flags, tuple(logs))


def compare_files(base: pd.DataFrame, new: pd.DataFrame, band: float = BAND) -> list[Compared]:
    """Each arm of `new` over the same arm of `base`, on every case that both have.

    Blocks are paired where both name one study (two versions that took turns), else each side has
    its own spread. The noise is that of the case's A/A pair, the larger of both sides. Raises
    ValueError where nothing is in both.
    """
    sides = [newest(t) for t in named_alike(*(t[t["median_us"].notna()] for t in (base, new)))]
    keys, known = [*CASE, "arm"], [noises(t) for t in sides]
    found = [dict(iter(t.groupby(keys, sort=False, dropna=False))) for t in sides]
    out = []
    for key in (k for k in found[0] if k in found[1]):
        a, b = (f[key].sort_values(["study", "block"]) for f in found)
        paired = _turns(a) == _turns(b) and all(a["study"])
        r = ratio(a["median_us"], b["median_us"], paired=paired)
        floor = max((k[key[:-1]] for k in known if key[:-1] in k), default=nan)
        a_us, b_us = (float(np.exp(np.log(t["median_us"]).mean())) for t in (a, b))
        flags = merged([*a["flags"], *b["flags"]])
        device, clock, cache, op, place, arm = key
        said = verdict(r, band, 0.0 if floor != floor else floor)
        out.append(Compared(device, clock, cache, op, place, arm, arm, a_us, b_us, r, floor, said,
                            flags))  # fmt: skip
    if not out:
        raise ValueError("no case is in both: device, clock, workload and arm must be the same")
    return out


def named_alike(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """The tables with their arms named as in one: a label holds what differs within its table."""
    asked = [row for t in tables for row in _asked(t)]
    rows = pd.concat([t[["op", "variant"]] for t in tables])
    labels = iter(arm_labels(rows["op"], rows["variant"], asked, np.arange(len(rows))))
    return [t.assign(arm=[next(labels) for _ in range(len(t))]) for t in tables]


def _asked(table: pd.DataFrame) -> list[dict]:
    """The config that each record asked for, as text."""
    names = [c for c in table.columns if c.startswith("config_asked.")]
    return [
        {n.removeprefix("config_asked."): number(v) for n, v in zip(names, row, strict=True)
         if v is not None and v == v}
        for row in table[names].itertuples(index=False, name=None)
    ]  # fmt: skip


def _turns(rows: pd.DataFrame) -> list[tuple]:
    return list(zip(rows["study"], rows["block"], strict=True))


@dataclass(frozen=True)
class Line:
    """Arm b over arm a along one axis, all else equal."""

    device: str
    clock: str
    place: str  # what is special of the workloads besides the axis
    axis: str
    a: str
    b: str
    cases: tuple[Compared, ...]  # its points, ascending
    found: Crossover
    noise: float  # the largest A/A noise of its points
    flags: tuple[str, ...]


def lines(
    table: pd.DataFrame, a: str, b: str, axis: str, band: float = BAND
) -> Iterator[Line]:
    """One `Line` for each device, clock and choice of the other workload fields.

    `axis` is a workload field, or a statistic of the inputs that one field moves. Raises ValueError
    on one that is neither, on arms that are not there, and where no line has two points.
    """
    column = column_of(table, axis)
    cases = compare_arms(table, a, b, band)
    known = table.groupby(CASE, dropna=False)[column].first()  # that is there
    xs = [_x(known, column, c) for c in cases]
    statistic = column.startswith("statistics.")
    field = _moving(axis, cases, xs) if statistic else column.removeprefix("workload.")
    out: dict[tuple, list] = {}
    for x, c in zip(xs, cases, strict=True):
        out.setdefault((c.device, c.clock, _without(c.place, field)), []).append((x, c))
    long = {key: found for key, found in out.items() if len(found) > 1}
    if not long:
        raise ValueError(f"no line along {axis} has two points: other fields differ between the "
                         f"{len(cases)} cases, or there is one")  # fmt: skip
    for (device, clock, rest), found in long.items():
        yield _line(device, clock, rest, axis, sorted(found, key=lambda p: p[0]))


def _x(known: pd.Series, column: str, c: Compared) -> float:
    """Where a case stands on an axis; a field that its records lack has the op's default."""
    x = known[c.device, c.clock, c.cache, c.op, c.place]
    if x is None or x != x:
        default = OPS[c.op].Workload() if c.op in OPS else None
        x = getattr(default, column.removeprefix("workload."), None)
    if x is None or isinstance(x, str):
        raise ValueError(f"{column}={x!r} of {c.place or 'the default'} is no place on an axis")
    return float(x)


def _moving(axis: str, cases: list[Compared], xs: list[float]) -> str:
    """The one workload field with which a statistic changes, all else equal; "" where none does."""
    fields = {word.partition("=")[0] for c in cases for word in c.place.split()}
    found = []
    for field in sorted(fields):
        values: dict[tuple, set] = {}
        for x, c in zip(xs, cases, strict=True):
            values.setdefault((c.device, c.clock, _without(c.place, field)), set()).add(x)
        if any(len(several) > 1 for several in values.values()):
            found.append(field)
    if len(found) > 1:
        raise ValueError(f"{axis} changes with {' and with '.join(found)}: a line needs records "
                         "in which one of them does")  # fmt: skip
    return found[0] if found else ""


def _without(place: str, field: str) -> str:
    return " ".join(word for word in place.split() if word.partition("=")[0] != field)


def _line(device: str, clock: str, rest: str, axis: str, found: list) -> Line:
    blocks = max(len(c.logs) for _, c in found)
    logs = np.full((len(found), blocks), nan)
    for row, (_, c) in zip(logs, found, strict=True):
        row[: len(c.logs)] = c.logs
    floors = [c.noise for _, c in found if c.noise == c.noise]
    flags = merged(c.flags for _, c in found)
    floor, first = max(floors, default=nan), found[0][1]
    known = [0.0 if c.noise != c.noise else c.noise for _, c in found]
    curve = crossover([x for x, _ in found], logs, noise=known)
    return Line(device, clock, rest, axis, first.a, first.b, tuple(c for _, c in found), curve,
                floor, flags)  # fmt: skip


def column_of(table: pd.DataFrame, axis: str) -> str:
    """The column of a workload field or statistic. Raises ValueError, listing what there is."""
    known = {c.partition(".")[2]: c for c in table.columns
             if c.startswith(("statistics.", "workload."))}  # fmt: skip
    return axis if axis in known.values() else known[choose("axis", axis, known)]
