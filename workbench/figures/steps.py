"""Figure of a decode step: what reading takes, and what each way of splitting adds to it."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ..models.step import FLOOR, Split, Total, splits
from .axes import color_of, flagged, one_setup, styled, timed

OP = "decode_split_step"
READING = "#c4c4c4"


@styled
def step_cost(table: pd.DataFrame, total: Total | None = None) -> Figure:
    """A decode step by variant, a panel a workload: reading in grey, the splits' part in color.

    With a `total`, a bar also says the share of the step that it would leave. Hatched bars carry a
    flag. Raises ValueError where the table has no times of the op or no time of reading alone.
    """
    table = timed(table, OP)
    if not len(table):
        raise ValueError(f"no times of {OP} in these records")
    setup = one_setup(table)
    parts = [part for part in table.groupby("place", sort=False) if FLOOR in set(part[1]["arm"])]
    if not parts:
        raise ValueError(f"no time of {FLOOR!r} beside those of {OP}")
    most = table["arm"].nunique()
    figure = Figure(figsize=(8.6, 1.5 + len(parts) * (0.55 + 0.34 * most)), layout="constrained")
    grid = figure.subplots(len(parts), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (place, rows) in zip(grid, parts, strict=True):
        _bars(axes, rows, total)
        axes.set_title(_titled(place, rows.iloc[0]))
    grid[-1].set_xlabel("time of a step (µs), both caches of all layers")
    grid[-1].xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}"))
    lines = ["Page splits of a decode step: grey is the reading behind them", setup]
    if total is not None:
        lines.append(f"of a step of {total.us:,.0f} µs with {total.base} ({total.source})")
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10.5)
    return figure


def _bars(axes, rows: pd.DataFrame, total: Total | None) -> None:
    rows = rows.sort_values("median_us", ascending=False)
    arms = list(rows["arm"])
    found = splits(dict(zip(arms, rows["median_us"], strict=True)), total)
    for y, (_, row) in enumerate(rows.iterrows()):
        part = found[row["arm"]]
        axes.barh(y, part.step_us - part.split_us, color=READING, height=0.66)
        axes.barh(y, part.split_us, left=part.step_us - part.split_us, height=0.66,
                  color=color_of(OP, row["arm"], arms), **flagged(row))  # fmt: skip
        axes.annotate(f"  {_told(part)}", (part.step_us, y), va="center", fontsize=8.5)
    axes.set(yticks=range(len(rows)), yticklabels=arms)
    axes.invert_yaxis()
    axes.margins(x=0.28)
    axes.grid(axis="y", visible=False)


def _told(part: Split) -> str:
    own = f"splits {part.split_us:,.0f} µs" if part.split_us else f"{FLOOR}: no split"
    return own + (f" · {part.share:.1%} of the step" if part.share else "")


def _titled(place: str, row: pd.Series) -> str:
    touched = row.get("statistics.touched_pages"), row.get("statistics.extra_touched_pages")
    told = f"touches {touched[0]:,.0f} + {touched[1]:,.0f} pages a layer" if all(touched) else ""
    return " · ".join(filter(None, [place or "default workload", told]))
