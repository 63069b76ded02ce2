"""Figures of comparison: one arm over another, with its interval, beside the noise of A/A pairs."""

import textwrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..comparison import Compared, Line
from ..models.crossover import frontier, said
from .axes import COLORS, plain, styled

NOISE, CROSSING = "#9a9a9a", COLORS[1]
WIDE = 100  # characters of a title's line
LABELS = 14  # of an axis, at most


@styled
def ratio_line(line: Line, question: str = "") -> Figure:
    """Two arms along an axis: their times above, the time of b over that of a below.

    Below: points with their intervals, each crossing between the measured points on its sides, and
    in grey what an A/A pair of the same studies differed by; nothing inside is a difference. Hollow
    points carry a flag.
    """
    figure = Figure(figsize=(7.6, 6.0), layout="constrained")
    times, axes = figure.subplots(2, sharex=True, height_ratios=(1, 1.25))
    _times(times, line)
    _ratios(axes, line)
    blocks = min(p.blocks for p in line.found.points)
    place = f" · {line.place}" if line.place else ""
    lines = [question, *textwrap.wrap(said(line.found, line.a, line.b, line.axis), WIDE),
             f"{line.device} · {line.clock}{place} · {blocks} process blocks or more"]  # fmt: skip
    _titled(figure, axes, [text for text in lines if text])
    return figure


def _times(axes, line: Line) -> None:
    for color, name, side in ((COLORS[7], line.a, "a_us"), (COLORS[0], line.b, "b_us")):
        axes.plot(line.found.x, [getattr(c, side) for c in line.cases], "o-", ms=3.5, lw=1.3,
                  color=color, label=name)  # fmt: skip
    axes.set(ylabel="time of a call (µs)", yscale="log")
    _plain_log(axes.yaxis, subs=(1, 2, 5))
    axes.legend(loc="best", fontsize=8.5)


def _ratios(axes, line: Line) -> None:
    found = line.found
    x, values = np.array(found.x), np.array([p.value for p in found.points])
    low, high = (np.array([getattr(p, end) for p in found.points]) for end in ("low", "high"))
    if line.noise == line.noise:
        axes.axhspan(np.exp(-line.noise), np.exp(line.noise), color=NOISE, alpha=0.4, lw=0,
                     label=f"A/A noise ±{np.expm1(line.noise):.2%}", zorder=0)  # fmt: skip
    for c in found.crossings:
        axes.axvspan(*c.between, color=CROSSING, alpha=0.18, lw=0)
        axes.axvline(c.at, color=CROSSING, lw=1.6, label="crossing: between its neighbours")
    for u in found.unresolved:
        ends = (x[0] if u.low is None else u.low, x[-1] if u.high is None else u.high)
        axes.axvspan(*ends, color="#cccccc", alpha=0.3, lw=0, label="undecided")
    axes.axhline(1.0, color="#555555", lw=1)
    axes.plot(x, values, color=COLORS[0], lw=1.3)
    bars = np.where(np.isnan(low), 0.0, [values - low, high - values])
    axes.errorbar(x, values, yerr=np.abs(bars), fmt="o", ms=4.5, color=COLORS[0], capsize=2.5,
                  label="ratio with its 95 % interval")  # fmt: skip
    flagged = np.array([bool(c.flags) for c in line.cases])
    if flagged.any():
        axes.plot(x[flagged], values[flagged], "o", ms=7, mfc="white", mec=COLORS[0],
                  label="flagged")  # fmt: skip
    axes.set(yscale="log", ylabel=f"{line.b} over\n{line.a}")
    _plain_log(axes.yaxis, subs=(1, 1.5, 2, 3, 5, 7))
    _axis(axes, x, found.linear, line.axis)
    for name, y, align in ((line.a, 0.97, "top"), (line.b, 0.03, "bottom")):
        axes.annotate(f"{name} is faster", (0.008, y), xycoords="axes fraction", va=align,
                      fontsize=8.5, color="#666666")  # fmt: skip


def _plain_log(axis, subs: tuple) -> None:
    axis.set_major_locator(LogLocator(subs=subs))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.3g}" if v < 1e3 else f"{v:,.0f}"))


def _axis(axes, x: np.ndarray, linear: bool, name: str) -> None:
    if not linear:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        apart, kept = (x[-1] / x[0]) ** (1 / LABELS), [x[0]]
        for tick in x:
            if tick >= kept[-1] * apart:
                kept.append(tick)
        axes.set_xticks(kept)
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlabel(name.replace("_", " "))


def _titled(figure: Figure, axes, lines: list[str]) -> None:
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=10)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=8.5,
                  ncols=min(3, len(handles)))  # fmt: skip


@styled
def forest(cases: list[Compared], question: str = "") -> Figure:
    """One row a case: b over a with its interval, the A/A noise of its study behind it."""
    if not cases:
        raise ValueError("no case to draw")
    figure = Figure(figsize=(8.2, 1.7 + 0.34 * len(cases)), layout="constrained")
    axes = figure.subplots()
    for y, c in enumerate(cases):
        if c.noise == c.noise:
            ends = np.exp([-c.noise, c.noise])
            axes.fill_betweenx([y - 0.4, y + 0.4], *ends, color=NOISE, alpha=0.35, lw=0,
                               label="A/A noise")  # fmt: skip
        r = c.ratio
        width = [[r.value - r.low], [r.high - r.value]] if r.low == r.low else None
        axes.errorbar([r.value], [y], xerr=width, fmt="o", ms=5, capsize=2.5, color=COLORS[0],
                      mfc="white" if c.flags else COLORS[0], label="ratio, 95 %")  # fmt: skip
        axes.annotate(c.verdict, (1.01, y), xycoords=("axes fraction", "data"), va="center",
                      fontsize=8, color="#555555")  # fmt: skip
    axes.axvline(1.0, color="#555555", lw=1)
    names = [f"{c.place or 'default'}" + ("" if c.a == c.b else f"\n{c.b} / {c.a}") for c in cases]
    axes.set(yticks=range(len(cases)), yticklabels=names, xlabel="time of b over time of a")
    axes.invert_yaxis()
    setups = dict.fromkeys(f"{c.device} · {c.clock}" for c in cases)
    _titled(figure, axes, [text for text in (question, ", ".join(setups)) if text])
    return figure


@styled
def ratio_map(rows: list[tuple[float, Line]], y_name: str) -> Figure:
    """Two axes: b over a as color, the contour where neither is faster with its band.

    `rows` are (y, the line along x at that y). Raises ValueError below two rows.
    """
    if len(rows) < 2:
        raise ValueError(f"a map takes two lines or more, not {len(rows)}")
    rows = sorted(rows, key=lambda row: row[0])
    first = rows[0][1]
    x = np.array(sorted(set.intersection(*(set(line.found.x) for _, line in rows))))
    if len(x) < 2:
        raise ValueError("the lines of a map share fewer than two points")
    y = np.array([value for value, _ in rows])
    logs = np.array([[np.log(line.found.points[line.found.x.index(v)].value) for v in x]
                     for _, line in rows])  # fmt: skip
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    most = max(np.abs(logs).max(), 1e-3)
    drawn = axes.pcolormesh(x, y, np.exp(logs), shading="gouraud", cmap="RdBu_r",
                            norm=_centred(most))  # fmt: skip
    contour = frontier(y, [line.found for _, line in rows])
    sure = [r for r in contour if r.at is not None]
    axes.plot([r.at for r in sure], [r.y for r in sure], "-o", color="black", ms=4,
              label="neither is faster")  # fmt: skip
    axes.fill_betweenx([r.y for r in contour], [x[0] if r.low is None else r.low for r in contour],
                       [x[-1] if r.high is None else r.high for r in contour], color="black",
                       alpha=0.15, lw=0, label="its 95 % band")  # fmt: skip
    _axis(axes, x, first.found.linear, first.axis)
    axes.set(ylabel=y_name.replace("_", " "), yticks=y)
    figure.colorbar(drawn, label=f"time of {first.b} over time of {first.a}")
    _titled(figure, axes, [f"{first.device} · {first.clock}"])
    return figure


def _centred(most: float):
    from matplotlib.colors import LogNorm

    return LogNorm(np.exp(-most), np.exp(most))
