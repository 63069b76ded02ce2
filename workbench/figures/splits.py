"""Figure of the chunk model: its times beside the measured ones, and what its picks cost."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..evidence import ceilings_of, derived, pooled
from ..models.picks import WAYS, WITHIN, WORST, Judged, judged
from ..models.splits import Calibration, Sweep, calibrated, merge_of, sweeps
from ..ops import OPS
from .axes import one_setup, plain, styled
from .decode import look

OP = "sparse_decode"
EDGES = (0.9, 1.6)  # what costs less or more stands there: the worst is told in a number
Model = tuple[list[Sweep], list[Calibration], list[Judged]]


def split_model(table: pd.DataFrame) -> Model:
    """What was timed with several numbers of chunks, the constants, and the picks elsewhere.

    All empty where no record has a number. Raises ValueError on records of several setups.
    """
    rows = table[(table["op"] == OP) & table["median_us"].notna()]
    one_setup(rows)
    rows = rows if "place" in rows else derived(rows)
    found = sweeps(pooled(rows), OPS[OP])
    if not found:
        return [], [], []
    first = rows.iloc[0]
    merge = merge_of(rows, ceilings_of(rows, first["environment.device"]).copy_gb_per_s)
    made = calibrated(found, int(first["environment.multiprocessors"]), merge)
    return found, made, judged(found, made)


def split_table(seen: Sequence[Judged]) -> pd.DataFrame:
    """Picks as rows: their times, and those of other ways to choose, over the best measured one."""
    return pd.DataFrame([
        (j.sweep.variant, j.sweep.layout, j.sweep.call.heads, j.sweep.call.tokens,
         j.sweep.call.chunks, j.pick, j.sweep.best, j.sweep.times_us[j.sweep.best], j.ratio,
         j.refined_ratio, j.rule_ratio) for j in seen
    ], columns=["variant", "layout", "H", "T", "chunks", "picked", "best", "best (µs)", "pick",
                "refined", "own rule"])  # fmt: skip


def has_picks(table: pd.DataFrame) -> bool:
    """Whether `decode_splits` has something to show."""
    return bool(split_model(table)[2])


@styled
def decode_splits(table: pd.DataFrame, model: Model | None = None) -> Figure:
    """Modelled against measured times at each number of chunks; and the cost of each pick.

    `model` is what `split_model` says of the table, where that is known already. Ringed: the times
    that the constants were fitted on. Right: a dot a place that they were not fitted on, its time
    over that of the best measured number. Raises ValueError where there is none.
    """
    found, made, seen = model or split_model(table)
    if not seen:
        raise ValueError(f"no place of {OP} was timed with several chunks_per_block beside those "
                         "that the model is fitted on")  # fmt: skip
    good = [c for c in made if c.why is None]
    ways = [w for w, of in WAYS.items() if any(getattr(j, of) is not None for j in seen)]
    figure = Figure(figsize=(11.6, max(6.4, 1.7 + 0.36 * (len(ways) + 0.9) * len(good))),
                    layout="constrained")  # fmt: skip
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    _times(left, found, good)
    _costs(right, [(c, [j for j in seen if _of(j.sweep, c)]) for c in good], ways)
    rows = table[(table["op"] == OP) & table["median_us"].notna()]
    refused = [c.why for c in made if c.why]
    figure.suptitle("\n".join([
        "How many chunks should a program take: the model of three constants beside records",
        f"{one_setup(rows)} · {good[0].multiprocessors} multiprocessors", *refused,
    ]), x=0.01, ha="left", fontsize=10.5)  # fmt: skip
    named = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    left.legend(named.values(), named.keys(), loc="upper left", bbox_to_anchor=(-0.02, -0.13),
                fontsize=9)  # fmt: skip
    return figure


def _of(s: Sweep, c: Calibration) -> bool:
    return (s.variant, s.layout) == (c.variant, c.layout)


def _times(axes, found: list[Sweep], good: list[Calibration]) -> None:
    ends = []
    for c in good:
        own = [(us, c.us(s.call, n)) for s in found if _of(s, c) for n, us in s.times_us.items()]
        measured, modelled = np.array(own).T
        ends += [measured.min(), measured.max(), modelled.min(), modelled.max()]
        axes.plot(measured, modelled, **look(c.variant) | {"ls": ""}, ms=4, alpha=0.5, mew=0,
                  label=f"{c.name}, rms of the fit {c.fit.relative_rms:.1%}")  # fmt: skip
    for c in good:
        points = np.array([(p.us, c.us(p.sweep.call, p.chunks_per_block)) for p in c.points])
        axes.plot(*points.T, ls="", marker="o", ms=8, mfc="none", mec="#222222", mew=1.1,
                  label="fitted on these", zorder=4)  # fmt: skip
    line = np.array([min(ends) / 1.2, max(ends) * 1.2])
    axes.plot(line, line, color="#555555", lw=1)
    axes.fill_between(line, line / 1.25, line * 1.25, color="#999999", alpha=0.18, lw=0,
                      label="within 25 %")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=line, ylim=line, xlabel="measured (µs)",
             ylabel="modelled (µs)", title="every number of chunks")  # fmt: skip
    axes.set_aspect("equal", adjustable="box", anchor="N")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 3)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(plain))


def _costs(axes, groups: list[tuple[Calibration, list[Judged]]], ways: list[str]) -> None:
    """A row of dots for each variant and way to choose; its share and its worst at the right."""
    at, y = {}, 0.0
    for c, seen in groups:
        for way in ways:
            over = sorted(r for r in (getattr(j, WAYS[way]) for j in seen) if r is not None)
            if over:
                _dots(axes, y, np.array(over), look(c.variant)["color"])
            at[y] = way
            y += 1
        axes.text(0.5, y - len(ways) - 0.5, f"{c.name}, {len(seen)} places", va="center",
                  ha="center", fontsize=9, color=look(c.variant)["color"], weight="bold",
                  bbox={"fc": "white", "ec": "none", "pad": 1.5},
                  transform=axes.get_yaxis_transform())  # fmt: skip
        y += 0.9
    axes.set_yticks(list(at), list(at.values()))
    for value, style in ((1.0, "-"), (WITHIN, "--"), (WORST, ":")):
        axes.axvline(value, color="#555555", lw=1, ls=style, zorder=1)
    axes.set(xlim=EDGES, ylim=(max(at) + 0.6, -0.9),
             xlabel="time over that of the best measured number of chunks",
             title="places that the constants were not fitted on")  # fmt: skip
    axes.grid(axis="y", visible=False)


def _dots(axes, y: float, over: np.ndarray, color) -> None:
    """Dots of one row, spread a little: equal data gives equal places."""
    spread = 0.26 * np.sin(np.arange(len(over)) * 2.4)
    inside = np.clip(over, EDGES[0] + 0.006, EDGES[1] - 0.006)
    axes.plot(inside, y + spread, ls="", marker="o", ms=4, mew=0, alpha=0.55, color=color)
    share = (over <= WITHIN).mean()
    axes.annotate(f"{share:.0%} ≤ {WITHIN:.2f}\nworst {over[-1]:.2f}", (1.01, y), va="center",
                  xycoords=("axes fraction", "data"), annotation_clip=False,
                  fontsize=8)  # fmt: skip
