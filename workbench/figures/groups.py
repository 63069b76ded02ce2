"""The figure of group sizes: what sharing a gather gains, over the context and the churn."""

import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ..evidence import derived, newest
from ..models.grouping import best_group, placed
from .axes import COLORS, one_setup, plain, styled
from .ratios import log_ticks

CELL = 1.02, 0.80  # inches
EDGES = 0.62, 0.16, 0.52, 0.34  # of a panel, in inches: left, right, below, above
WIDE = 11.6  # inches of panels side by side, at most
HEAD, FOOT, BAR = 0.50, 0.36, 0.98  # inches: titles, legend, color bar
LEAST = 7.4  # inches of a figure: its titles
FLAT = 1.1  # the scale of colors reaches at least this far
FIXED = ("heads", "tokens", "context", "rows", "law", "churn")  # told by axes and titles
MARKS = {True: ("o", "the model's group, too"),
         False: ("^", "the model's is another: time lost")}  # fmt: skip
DOUBT = {"edgecolor": COLORS[1], "linestyle": (0, (3, 1.5)), "linewidth": 1.5}


@styled
def group_gain(table: pd.DataFrame) -> Figure:
    """Time of the best arm of one token over that of the best group, over context and churn.

    A cell says the fastest group, the gain and the arm; "?" where no interval shows the next best
    group to be slower. A dot says that the least floor is of that group too, a triangle that it is
    of another, and what choosing so would cost; neither, that the work was not counted. What was
    not measured stays an empty frame. Raises ValueError where no place has times of two groups.
    """
    table = _compared(table)
    best = best_group(table)
    if not len(best):
        raise ValueError("no place of these records has times of two group sizes of sparse_prefill")
    setup = one_setup(table)
    parts = list(_parts(best))
    spots, (width, height) = _flowed(parts)
    figure = Figure(figsize=(max(width + BAR, LEAST), height + HEAD + FOOT))
    whole = figure.get_size_inches()
    most = max([FLAT, *np.exp(np.abs(np.log(best["gain"].dropna())))])
    colors = matplotlib.cm.ScalarMappable(LogNorm(1 / most, most), "RdBu")
    for part, (left, top) in zip(parts, spots, strict=True):
        at = (left, height + FOOT - top - part.high, part.wide, part.high)
        axes = figure.add_axes(tuple(v / whole[i % 2] for i, v in enumerate(at)))
        _panel(axes, part, colors)
    if best["gain"].notna().any():
        _bar(figure, best, colors, (width, height))
    figure.text(0.1 / whole[0], 1 - 0.1 / whole[1], "What sharing a gather gains, and the fastest "
                f"group of tokens\n{setup}", va="top", fontsize=10.5, linespacing=1.4)  # fmt: skip
    empty = sum(len(p.laws) * len(p.contexts) for p in parts) > len(best)
    _legend(figure, best, empty)
    return figure


def best_groups(table: pd.DataFrame) -> pd.DataFrame:
    """What the figure shows: `grouping.best_group` of the newest build of each arm."""
    return best_group(_compared(table))


def _compared(table: pd.DataFrame) -> pd.DataFrame:
    return newest(placed(table if "place" in table else derived(table)))


@dataclass(frozen=True)
class _Part:
    """The places of one panel."""

    title: str
    places: pd.DataFrame
    contexts: list[int]
    laws: list[str]  # the churn of a walk as a number, others by their text

    @property
    def wide(self) -> float:
        return CELL[0] * len(self.laws)

    @property
    def high(self) -> float:
        return CELL[1] * len(self.contexts)

    @property
    def names(self) -> list[str]:
        return [textwrap.fill(_short(law), 15) for law in self.laws]

    @property
    def below(self) -> float:
        return EDGES[2] + 0.12 * max(name.count("\n") for name in self.names)


def _parts(best: pd.DataFrame) -> Iterator[_Part]:
    """A panel for every number of heads and of tokens, and for what else tells places apart."""
    words = [[w for w in place.split() if w.partition("=")[0] not in FIXED]
             for place in best["place"]]  # fmt: skip
    rest = pd.Series([" ".join(each) for each in words], best.index)
    best = best.assign(told=best["churn"].map("{:g}".format).where(best["law"] == "walk",
                                                                   best["law"]))  # fmt: skip
    for (heads, tokens, more), places in best.groupby([best["heads"], best["tokens"], rest]):
        title = " · ".join(filter(None, (f"H {heads}", f"T {plain(tokens)}", more)))
        laws = sorted(places["told"].unique(), key=lambda law: (law[0].isalpha(), law))
        yield _Part(title, places, sorted(places["context"].unique()), laws)


def _short(law: str) -> str:
    """A law without its folders: they would not fit under a cell."""
    return re.sub(r":file=(?:.*/)?(.*)\.safetensors", r" \1", law).replace(":", " ")


def _flowed(parts: list[_Part]) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """Left and top of each panel, in rows as wide as WIDE allows; width and height of all."""
    left, right, _, above = EDGES
    spots, x, y, row, width = [], 0.0, 0.0, 0.0, 0.0
    for part in parts:
        wide, high = left + part.wide + right, above + part.high + part.below
        if x and x + wide > WIDE:
            x, y, row = 0.0, y + row, 0.0
        spots.append((x + left, y + above))
        x, row = x + wide, max(row, high)
        width = max(width, x)
    return spots, (width, y + row)


def _panel(axes, part: _Part, colors) -> None:
    across, up = len(part.laws), len(part.contexts)
    axes.set(xlim=(0, across), ylim=(0, up), xticks=np.arange(across) + 0.5,
             yticks=np.arange(up) + 0.5)  # fmt: skip
    axes.set_xticklabels(part.names, fontsize=8.5 if max(map(len, part.names)) < 8 else 7)
    axes.set_yticklabels([plain(c) for c in part.contexts], fontsize=8.5)
    axes.tick_params(length=0, pad=3)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(part.title, fontsize=10, pad=5)
    walks = (part.places["law"] == "walk").any()
    quiet = {"fontsize": 8.5, "color": "#555555", "labelpad": 2}
    axes.set_xlabel("churn of the walk" if walks else "law", **quiet)
    axes.set_ylabel("context S − T", **quiet)
    spots = {(c, law): (x, y) for x, law in enumerate(part.laws)
             for y, c in enumerate(part.contexts)}  # fmt: skip
    for _, row in part.places.iterrows():
        _cell(axes, spots.pop((row["context"], row["told"])), row, colors)
    for spot in spots.values():
        axes.add_patch(_tile(spot, "none", "#cfcfcf"))


def _tile(spot: tuple[int, int], color, edge) -> Rectangle:
    x, y = spot
    return Rectangle((x + 0.025, y + 0.03), 0.95, 0.94, facecolor=color, edgecolor=edge, lw=0.6)


def _cell(axes, spot: tuple[int, int], row: pd.Series, colors) -> None:
    known = not math.isnan(row["gain"])
    color = colors.to_rgba(row["gain"]) if known else (0.95, 0.95, 0.95, 1.0)
    ink = "white" if np.dot(color[:3], (0.299, 0.587, 0.114)) < 0.5 else "#222222"
    tile = _tile(spot, color, "none")
    if row["flags"]:
        tile.set(**DOUBT)
    axes.add_patch(tile)
    x, y = spot[0] + 0.5, spot[1]
    sure = "" if row["verdict"] == "SLOWER" else " ?"
    told = f"{row['gain']:.2f}×" if known else "gain unknown"
    lines = [(0.79, f"G {row['group']}{sure}", 11, "bold"),
             (0.55, told, 9.5 if known else 7.5, None),
             (0.33, row["arm"].split(" ")[0], 7, None)]  # fmt: skip
    if not pd.isna(row["model_group"]):
        same = bool(row["model_group"] == row["group"])
        axes.plot(spot[0] + 0.88, y + 0.84, MARKS[same][0], ms=5, color=ink, mew=0)
        if row["model_arm"] != row["arm"]:
            lost = f"G {row['model_group']}: {row['regret'] - 1:+.1%}"
            lines.append((0.14, f"model {lost}", 7, None))
    for up, text, size, weight in lines:
        axes.text(x, y + up, text, ha="center", va="center", fontsize=size, color=ink,
                  weight=weight)  # fmt: skip


def _bar(figure: Figure, best: pd.DataFrame, colors, panels: tuple[float, float]) -> None:
    """The color bar to the right of the panels, over the gains that are there."""
    high = min(panels[1] - EDGES[3] - 0.12, 3.4)
    at = (panels[0] + 0.05, FOOT + panels[1] - EDGES[3] - high, 0.14, high)
    whole = figure.get_size_inches()
    axes = figure.add_axes(tuple(v / whole[i % 2] for i, v in enumerate(at)))
    bar = figure.colorbar(colors, cax=axes)
    gains = [1 / FLAT, FLAT, *best["gain"].dropna()]
    bar.ax.set_ylim(min(gains), max(gains))
    bar.ax.tick_params(labelsize=8)
    log_ticks(bar.ax.yaxis, subs=(1, 1.5, 2, 3, 4, 5, 6, 8))
    bar.outline.set_visible(False)
    bar.set_label("gain of a group\nover one token", fontsize=8.5)


def _legend(figure: Figure, best: pd.DataFrame, empty: bool) -> None:
    chosen = best["model_group"].dropna() == best["group"][best["model_group"].notna()]
    handles = [Line2D([], [], ls="", marker=MARKS[same][0], color="#222222", label=MARKS[same][1])
               for same in sorted(set(chosen.astype(bool)), reverse=True)]  # fmt: skip
    if (best["verdict"] != "SLOWER").any():
        handles.append(Line2D([], [], ls="", marker="$?$", color="#222222",
                              label="next best group not shown to be slower"))  # fmt: skip
    if best["flags"].map(len).any():
        handles.append(Patch(facecolor="none", label="a time is flagged", **DOUBT))
    if empty:
        handles.append(Patch(fc="none", ec="#cfcfcf", label="not measured"))
    figure.legend(handles=handles, loc="lower left", ncols=len(handles), fontsize=8,
                  handletextpad=0.5, columnspacing=1.3)  # fmt: skip
