"""Figures of overlap: how many rows neighbouring tokens share."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from .axes import COLORS, MARKERS, cache_rows, legend, panels_of, plain, styled

TICKS = [1, 2, 4, 8, 16, 32, 64]  # tokens of a group
STROKES = [("#000000", "-"), ("#777777", "--"), ("#aa3377", ":"), ("#44aa99", "-.")]  # captures


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
    churn = " churn " + table["workload.churn"].map("{:g}".format)  # only a walk reads it
    label = table["workload.law"] + churn.where(table["workload.law"] == "walk", "")
    table = table.assign(S=cache_rows(table), label=label)
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


@styled
def union_curves(
    found: Mapping[str, dict], published: Mapping[str, Mapping[int, float]] | None = None
) -> Figure:
    """Union ratio against the tokens of a group, a panel for each selection.

    `found`: what `selections.statistics` says, by the name of the law; `published`: ratios by
    group, by the same names. Reference lines: what independent tokens would share among the rows
    that these see, and the bounds that the Jaccard of neighbours sets. Raises ValueError where
    `found` is empty or `published` names none of it.
    """
    if not found or set(published or {}) - set(found):
        strange = ", ".join(set(published or {}) - set(found)) or "nothing"
        raise ValueError(f"curves of {', '.join(found) or 'nothing'}, published: {strange}")
    figure, grid = panels_of(len(found), 3, 2.9)
    highest = max(max(s["uniform_union_ratio"].values()) for s in found.values())
    for axes, (name, s) in zip(grid, found.items(), strict=True):
        groups = [int(g) for g in s["union_ratio"]]
        least, most = zip(*s["jaccard_bounds"].values(), strict=True)
        axes.fill_between(groups, least, most, color="#dddddd", lw=0,
                          label="bounds of the neighbours' Jaccard")  # fmt: skip
        axes.plot(groups, s["uniform_union_ratio"].values(), ls="--", color="#555555", lw=1.2,
                  label="independent tokens")  # fmt: skip
        axes.plot(groups, s["union_ratio"].values(), marker="o", markersize=3.5, color=COLORS[0],
                  label="drawn")  # fmt: skip
        if published and name in published:
            axes.plot(published[name].keys(), published[name].values(), ls="", marker="D",
                      markersize=8, mfc="none", mec=COLORS[3], mew=1.5, label="published",
                      zorder=3)  # fmt: skip
        nearest = s["jaccard"].get(1, s["jaccard"].get("1"))
        of = f" · {s['requests']} requests" if s["requests"] > 1 else ""
        axes.set(title=f"{name}\nT {plain(s['tokens'])} · topk {plain(s['topk'])}{of} · "
                       f"J {nearest:.2f}", xscale="log", yscale="log",
                 xticks=TICKS, yticks=[1, 1.1, 1.25, 1.5, 2, 3, 4],
                 xlim=(0.9, max(groups) * 1.1), ylim=(0.97, 1.15 * highest))  # fmt: skip
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_minor_locator(NullLocator())
    for axes in grid[-3:]:  # the last of each column
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("tokens of a group")
    figure.supylabel("union ratio", fontsize=10)
    figure.suptitle("Rows of a group's union, over the rows of one token", x=0.01, ha="left",
                    fontsize=10.5)  # fmt: skip
    legend(figure, grid)
    return figure


@styled
def union_overlay(
    laws: Mapping[str, dict], captures: Mapping[str, Sequence[dict]] | None = None
) -> Figure:
    """Union ratios of laws and captures on the same axes, and over those of independent tokens.

    `laws`: what `selections.statistics` says of one draw, by name; `captures`: of each layer, by
    name: the middle one is a line, the span of all a band. Raises ValueError where both are empty.
    """
    captures = {name: layers for name, layers in (captures or {}).items() if layers}
    if not laws and not captures:
        raise ValueError("no law and no capture to draw curves of")
    figure = Figure(figsize=(10.2, 4.3), layout="constrained")
    grid = figure.subplots(1, 2)
    for i, (name, layers) in enumerate([*((n, [s]) for n, s in laws.items()), *captures.items()]):
        style = {"color": COLORS[i % len(COLORS)], "marker": MARKERS[i % len(MARKERS)], "ms": 4}
        if i >= len(laws):
            ink, dashes = STROKES[(i - len(laws)) % len(STROKES)]
            style = {"color": ink, "ls": dashes, "lw": 2.4}
        groups = [int(g) for g in layers[0]["union_ratio"]]
        ratio, chance = (np.array([list(s[key].values()) for s in layers])
                         for key in ("union_ratio", "uniform_union_ratio"))  # fmt: skip
        for axes, values in zip(grid, (ratio, ratio / chance), strict=True):
            axes.plot(groups, np.median(values, 0), label=name, **style)
            if len(layers) > 1:
                axes.fill_between(groups, values.min(0), values.max(0), color=style["color"],
                                  alpha=0.22, lw=0)  # fmt: skip
    ratio_axes(grid[0], "union ratio: rows of a group's union\nover the rows of one token")
    ratio_axes(grid[1], "over the union ratio of\nindependent tokens of that shape")
    figure.suptitle("What neighbouring tokens share: every law and capture", x=0.01, ha="left",
                    fontsize=10.5)  # fmt: skip
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8.5)
    return figure


def ratio_axes(axes, name: str) -> None:
    """Logarithmic axes of a ratio against the tokens of a group; both limits as drawn."""
    axes.set(xscale="log", yscale="log", xlabel="tokens of a group", ylabel=name)
    axes.axhline(1.0, ls="--", color="#777777", lw=1)
    low, high = axes.get_ylim()
    axes.set(xticks=[t for t in TICKS if t <= max(axes.get_xlim()[1], 2)],
             yticks=[y for y in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4,
                                 6, 8, 12, 16) if low <= y <= high])  # fmt: skip
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
