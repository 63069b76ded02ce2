"""Figures of time: against a workload field, and the ladder of ideas."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..models.rungs import rungs
from ..ops import OPS
from .axes import (
    COLUMNS,
    color_of,
    flagged,
    legend,
    marker_of,
    one_setup,
    panels,
    panels_of,
    plain,
    said,
    styled,
    timed,
)

NARROW = 14  # labels along the axis of a panel, at most
OFF_SCALE = 8.0  # an arm this many times slower than the fastest everywhere is told, not drawn


def _draw(axes, rows: pd.DataFrame, x: str, op: str, arms: list[str]) -> None:
    for arm in arms:
        line = rows[rows["arm"] == arm].sort_values(x)
        if not len(line):
            continue
        color = color_of(op, arm, arms)
        axes.plot(line[x], line["median_us"], marker=marker_of(op, arm, arms), markersize=5,
                  color=color, label=arm)  # fmt: skip
        axes.fill_between(line[x], line["low_us"], line["high_us"], color=color, alpha=0.18, lw=0)
        doubted = line[line["flags"].map(len) > 0]
        axes.plot(doubted[x], doubted["median_us"], "o", markersize=7, mfc="white", mec=color)


def _drawn(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """(arms to draw, what is said of the others): a far slower arm would flatten all the rest."""
    fields = [c for c in table.columns if c.startswith("workload.")]
    fastest = table.groupby(fields, dropna=False)["median_us"].transform("min")
    times = (table["median_us"] / fastest).groupby(table["arm"])
    slow = times.min()[times.min() > OFF_SCALE].index
    told = [f"{arm} is off the scale: {times.min()[arm]:.0f} to {times.max()[arm]:.0f} times the "
            "fastest" for arm in slow]  # fmt: skip
    return [arm for arm in dict.fromkeys(table["arm"]) if arm not in slow], told


def _apart(values) -> list:
    """The largest value, and down from it each that is far enough from the next for a label."""
    kept, (low, high) = [], (min(values), max(values))
    for value in sorted(values, reverse=True):
        if not kept or kept[-1] / value >= (high / low) ** (1 / NARROW):
            kept.append(value)
    return kept[::-1]


@styled
def curves(table: pd.DataFrame, op: str, x: str, title: str, xlabel: str) -> Figure:
    """Time against one workload field `x`: a panel for each other field's value, a line an arm.

    Raises ValueError where the table has no times of `op`.
    """
    table = timed(table, op)
    if not len(table):
        raise ValueError(f"no times of {op} in these records")
    setup, parts = one_setup(table), panels(table, x)
    arms, absent = _drawn(table)
    figure, grid = panels_of(len(parts), COLUMNS, 2.55)
    for axes, (name, rows) in zip(grid, parts, strict=True):
        _draw(axes, rows, x, op, arms)
        axes.set_title(name.replace(" · law ", "\nlaw "), fontsize=9.5)
        axes.set(xscale="log", yscale="log", xticks=_apart(table[x].unique()))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(plain))
        axes.set_xlabel(xlabel if axes in grid[-COLUMNS:] else "")
    figure.supylabel("time of a call (µs)", fontsize=10)
    lines = [title, setup, *absent]
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10.5)
    legend(figure, grid)
    return figure


def latency(table: pd.DataFrame) -> Figure:
    """Sparse prefill: time against query tokens."""
    return curves(table, "sparse_prefill", "workload.tokens",
                  "Sparse prefill against query tokens", "query tokens")  # fmt: skip


def page_split_cost(table: pd.DataFrame) -> Figure:
    """Page split: time against pool size; `page_split_share` has the records along a share."""
    if "workload.touch" in table:
        table = table[table["workload.touch"] != "share"]
    return curves(table, "page_split", "workload.pages",
                  "Page split against the size of the pool", "pages of the pool")  # fmt: skip


def page_split_share(table: pd.DataFrame) -> Figure:
    """Page split: time against the share of the pool's pages that the indices name."""
    if "workload.touch" in table:
        table = table[table["workload.touch"] == "share"]
    title = "Page split against the touched share of the pool"
    return curves(table, "page_split", "workload.share", title, "touched share of the pages")


def paged_read_cost(table: pd.DataFrame) -> Figure:
    """Reading rows of a paged pool: as it lies, and behind a split."""
    return curves(table, "paged_read", "workload.pages",
                  "Reading a window: from pages as they lie, and behind a split",
                  "pages of the pool")  # fmt: skip


@styled
def ladder(table: pd.DataFrame, op: str = "sparse_prefill") -> Figure:
    """What each idea buys: the arms of one workload, slowest first, a bar each.

    The workload is the largest of those nearest to the op's default one. A bar says the arm's time
    and its speed-up over the variant that it changes (`step_from`). Raises ValueError where the
    table has no times of `op`.
    """
    table = timed(table, op)
    if not len(table):
        raise ValueError(f"no times of {op} in these records")
    setup = one_setup(table)
    fields = [c for c in table.columns if c.startswith("workload.")]
    place, rows = _typical(table, fields, op)
    found = rungs(rows, op)
    rows = rows.drop_duplicates("arm").sort_values("median_us", ascending=False)
    figure = Figure(figsize=(8.5, 1.4 + 0.58 * len(rows)), layout="constrained")
    axes = figure.subplots()
    arms = list(dict.fromkeys(table["arm"]))
    for y, ((_, row), rung) in enumerate(zip(rows.iterrows(), found.itertuples(), strict=True)):
        axes.barh(y, row["median_us"], color=color_of(op, row["arm"], arms), height=0.6,
                  **flagged(row))  # fmt: skip
        at = (row["median_us"] * 1.08, y)
        axes.annotate(_told(rung), at, xytext=(0, 6), textcoords="offset points", va="center",
                      fontsize=9)  # fmt: skip
        axes.annotate(rung.idea, at, xytext=(0, -6), textcoords="offset points", va="center",
                      fontsize=7.5, color="#666666")  # fmt: skip
    low, high = rows["median_us"].min(), rows["median_us"].max()
    axes.set(yticks=range(len(rows)), yticklabels=list(rows["arm"]), xscale="log",
             xlim=(low / 2, high * max(40.0, 3 * high / low)),  # room for the ideas
             xlabel="time of a call (µs)")  # fmt: skip
    axes.invert_yaxis()
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.grid(axis="y", visible=False)
    figure.suptitle(f"What each idea buys: {op}, {place}\n{setup}", x=0.01, ha="left",
                    fontsize=10.5)  # fmt: skip
    return figure


def _typical(table: pd.DataFrame, fields: list[str], op: str) -> tuple[str, pd.DataFrame]:
    """(name, records) of the workload with most variants; of those the most usual, the largest."""
    default = vars(OPS[op].Workload()) if op in OPS else {}
    size = next(c for c in ("workload.tokens", "workload.pages") if c in fields)
    free = [f for f in fields if f not in (size, "workload.rows")]

    def rank(item) -> tuple:
        _, rows = item
        first = rows.iloc[0]
        usual = sum(first[f] == default.get(f.removeprefix("workload."), 0) for f in free)
        return rows["variant"].nunique(), usual, first[size]

    _, rows = max(table.groupby(fields, dropna=False), key=rank)
    names = [size, *(f for f in free if table[f].map(str).nunique() > 1)]
    return " · ".join(said(f, rows.iloc[0][f]) for f in names), rows


def ladder_table(table: pd.DataFrame, op: str = "sparse_prefill") -> pd.DataFrame:
    """The bars of `ladder`: what each arm changes, its predicted and its measured gain."""
    table = timed(table, op)
    return rungs(_typical(table, [c for c in table if c.startswith("workload.")], op)[1], op)


def _told(rung) -> str:
    """Time, speed-up and where its floor lies, of one bar of the ladder."""
    us = rung.median_us
    told = f"{us:,.0f} µs" if us >= 100 else f"{us:.3g} µs"
    if rung.over:
        told += f" · {rung.measured:.2f}× over {rung.over}"
    if rung.floor_share == rung.floor_share:
        told += f" · floor at {rung.floor_share:.0%} ({rung.limit.replace('_', ' ')})"
    return told
