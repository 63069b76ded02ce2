"""Figures of overlap: how many rows neighbouring tokens share."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from .axes import COLORS, cache_rows, legend, panels_of, plain, styled


@styled
def union_ratio(table: pd.DataFrame) -> Figure:
    """Rows of a group's union over one token's rows, against the tokens of a group.

    Measured on the inputs of the records, not assumed from their law. Raises ValueError where no
    record carries it.
    """
    prefix = "statistics.union_ratio."
    columns = [c for c in table.columns if c.startswith(prefix)]
    table = table[table[columns].notna().any(axis=1)] if columns else table[:0]
    if not len(table):
        raise ValueError("no record here carries a union ratio")
    table = table.assign(S=cache_rows(table), label=table["workload.law"] + " churn " +
                         table["workload.churn"].map("{:g}".format))  # fmt: skip
    parts = table.drop_duplicates(["workload.tokens", "S", "workload.topk", "label"])
    groups = sorted(int(c.removeprefix(prefix)) for c in columns)
    shapes = list(parts.groupby(["workload.tokens", "S", "workload.topk"]))
    figure, grid = panels_of(len(shapes), 4, 1.95)
    labels = sorted(table["label"].unique())
    for axes, ((tokens, context, topk), shape) in zip(grid, shapes, strict=True):
        for _, row in shape.sort_values("label").iterrows():
            ratios = [row[f"{prefix}{g}"] for g in groups]
            axes.plot(groups, ratios, marker="o", markersize=4.5, label=row["label"],
                      color=COLORS[labels.index(row["label"]) % len(COLORS)])  # fmt: skip
        axes.plot(groups, groups, ls=":", color="#777777", label="no row shared")
        axes.axhline(1.0, ls="--", color="#777777", lw=1, label="all rows shared")
        axes.set(title=f"T {plain(tokens)} · S {plain(context)} · topk {plain(topk)}",
                 xscale="log", yscale="log", xticks=groups, yticks=[1, 2, 4, 8],
                 ylim=(0.93, 8.6))  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(plain))
        axes.set_xlabel("tokens of a group" if axes in grid[-4:] else "")
    figure.supylabel("union ratio", fontsize=10)
    figure.suptitle("Rows of a group's union, over the rows of one token", x=0.01, ha="left",
                    fontsize=10.5)  # fmt: skip
    legend(figure, grid)
    return figure
