"""The chunk model out of records: what its constants are fitted on.

Records say it where a variant was timed at one place with several `chunks_per_block`. Six of those
times set the constants: PLACES by COUNTS, few and many tokens by short and long programs; records
without those have three places of their own instead. All other places are there to be foretold
(`picks`). A count of 0 leaves the choice to the variant's own rule.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import pandas as pd

from ..columns import column
from ..op import Op, Variant
from .dispatch_modelled import COUNT, FITTED_HEADS, call_of
from .dispatch_records import config_of, places
from .dispatch_table import Model
from .makespan import START, Call, Fit, fitted, predicted_s, programs

SHAPES = 3  # that constants are fitted on
# what `calibrate --measure` times; no place is one of the suite `splits`
PLACES = tuple({"tokens": tokens, "heads": FITTED_HEADS} for tokens in (2, 24, 128))
COUNTS = (2, 16)


@dataclass(frozen=True)
class Sweep:
    """One variant at one place, timed with several numbers of chunks."""

    variant: str
    layout: str
    workload: Mapping  # every field but the seed
    call: Call
    times_us: Mapping[int, float]  # by the chunks that a program takes, ascending
    rule_us: float | None  # where the variant chose itself

    @property
    def best(self) -> int:
        return min(self.times_us, key=lambda n: (self.times_us[n], -n))


@dataclass(frozen=True)
class Point:
    """A time that constants were fitted on."""

    sweep: Sweep
    chunks_per_block: int

    @property
    def us(self) -> float:
        return self.sweep.times_us[self.chunks_per_block]


@dataclass(frozen=True)
class Calibration:
    """The constants of one variant and layout."""

    variant: str
    layout: str
    multiprocessors: int
    points: tuple[Point, ...]
    fit: Fit | None  # None: too few points

    @property
    def name(self) -> str:
        return f"{self.variant} {self.layout}"

    @property
    def why(self) -> str | None:
        """Why the constants are none to go by, in words; or None."""
        if self.fit is None:
            return (f"{self.name}: {len(self.points)} times with a {COUNT} do not determine "
                    f"{len(START)} constants")  # fmt: skip
        if not self.fit.good:
            return (f"{self.name}: a relative rms of {self.fit.relative_rms:.2f}, the model does "
                    "not hold here")  # fmt: skip
        return None

    @property
    def fills_memory(self) -> bool:
        """Whether some point was so wide that memory set its time: else its rate is not known."""
        k, wide = self.fit.constants, max(programs(p.sweep.call, p.chunks_per_block)
                                          for p in self.points)  # fmt: skip
        return min(wide, self.multiprocessors) * k.memory_s_per_byte > k.program_s_per_byte

    def us(self, call: Call, chunks_per_block: int) -> float:
        return predicted_s(call, chunks_per_block, self.fit.constants, self.multiprocessors) * 1e6

    def pick(self, call: Call, among: Iterable[int]) -> int:
        """The one of `among` with the least modelled time; of several, the largest."""
        return min(among, key=lambda n: (self.us(call, n), -n))


def sweeps(rows: pd.DataFrame, op: Op) -> list[Sweep]:
    """What of `op` was timed with a given number of chunks, in order of variant and layout.

    `rows` are of `evidence.pooled`. Other fields of a config than the number of chunks are the
    default: another tile has other constants.
    """
    rows = rows[(rows["op"] == op.name) & rows["median_us"].notna()]
    rows = rows[~rows["flags"].map(lambda flags: any(f.startswith("failed") for f in flags))]
    found: dict[tuple[str, str], dict[int, float]] = {}
    for (_, row), place in zip(rows.iterrows(), places(rows, op), strict=True):
        v, config = op.variants.get(row["variant"]), config_of(row, op)
        known = isinstance(place, str) and v is not None and COUNT in config
        if known and {**config, COUNT: 0} == {**asdict(v.config), COUNT: 0}:
            found.setdefault((v.name, place), {})[config[COUNT]] = float(row["median_us"])
    out = [_sweep(op, op.variants[name], json.loads(place), times)
           for (name, place), times in found.items() if any(times)]  # fmt: skip
    return sorted(out, key=lambda s: (s.variant, s.layout, -s.call.chunks, s.call.pieces))


def _sweep(op: Op, v: Variant, fields: dict, times: dict[int, float]) -> Sweep:
    w = op.Workload(**fields)
    call = call_of(v, w)
    counts: dict[int, float] = {}  # beyond all chunks of a token, more is the same program
    for asked in sorted(n for n in times if n):
        counts.setdefault(min(asked, call.chunks), times[asked])
    return Sweep(v.name, w.layout, fields, call, counts, times.get(0))


def merge_of(rows: pd.DataFrame, copy_gb_per_s: float | None) -> tuple[float, float]:
    """(seconds of an empty kernel, seconds a byte of a copy) beside these records.

    Both are 0, and the merge is left out, where one of them was not measured.
    """
    launch_us = column(rows, "floor_us").median()
    if not copy_gb_per_s or math.isnan(launch_us):
        return 0.0, 0.0
    return float(launch_us) * 1e-6, 1e-9 / copy_gb_per_s


def calibrated(
    found: Sequence[Sweep], multiprocessors: int, merge: tuple[float, float] = (0.0, 0.0)
) -> list[Calibration]:  # fmt: skip
    """The constants of each variant and layout among `found`, which is of `sweeps`.

    `merge` is of `merge_of`. Raises ValueError where there is nothing to fit on, and without a
    multiprocessor.
    """
    if not found:
        raise ValueError(f"no time with a {COUNT} above 0 in these records")
    if multiprocessors < 1:
        raise ValueError(f"records of {multiprocessors} multiprocessors: the model is of a GPU")
    groups = groupby(found, key=lambda s: (s.variant, s.layout))
    return [_calibrated(name, layout, points_of(list(own)), multiprocessors, merge)
            for (name, layout), own in groups]  # fmt: skip


def _calibrated(name, layout, points: list[Point], multiprocessors: int, merge) -> Calibration:
    times = [(p.sweep.call, p.chunks_per_block, p.us * 1e-6) for p in points]
    fit = fitted(times, multiprocessors, merge) if len(times) >= len(START) else None
    return Calibration(name, layout, multiprocessors, tuple(points), fit)


def points_of(found: Sequence[Sweep]) -> list[Point]:
    """The points that constants of one variant and layout are fitted on: PLACES by COUNTS.

    Where they are not among `found`: of the calls with most chunks those with the fewest, the
    middle and the most pieces, each in its shortest and in its longest programs. All times where
    there are fewer places.
    """
    swept = [s for s in found if len(s.times_us) > 1]
    if len(swept) < SHAPES:
        return [Point(s, n) for s in found for n in s.times_us]
    longest = [s for s in swept if s.call.chunks == max(t.call.chunks for t in swept)]
    named = [s for s in longest if set(COUNTS) <= s.times_us.keys() and _is_a_place(s)]
    if len(named) == SHAPES:
        return [Point(s, n) for s in named for n in COUNTS]
    of = sorted(longest if len(longest) >= SHAPES else swept, key=lambda s: s.call.pieces)
    chosen = (of[0], of[len(of) // 2], of[-1])
    return [Point(s, n) for s in chosen for n in (min(s.times_us), max(s.times_us))]


def _is_a_place(s: Sweep) -> bool:
    return {name: s.workload[name] for name in PLACES[0]} in PLACES


def model_of(made: Iterable[Calibration]) -> Model | None:
    """What of these a dispatch table keeps: the constants to go by; None without any."""
    good = [c for c in made if c.why is None]
    return Model(good[0].multiprocessors, {c.name: c.fit for c in good}) if good else None
