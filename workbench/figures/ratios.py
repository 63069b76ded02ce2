"""Figures of comparison: one arm over another, with its interval, beside the noise of A/A pairs."""

import textwrap

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..comparison import Compared, Line
from ..models.crossover import said
from ..ops import OPS
from .axes import COLORS, plain, styled

NOISE, CROSSING, DOUBT = "#9a9a9a", COLORS[1], "#cccccc"
WIDE = 98  # characters of a title's line
LABELS = 14  # of an axis, at most
FAR = 4.0  # times the outermost ratio: an interval that is wider is cut off


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
    blocks = sorted({p.blocks for p in line.found.points})
    place = f" · {line.place}" if line.place else ""
    lines = [question, said(line.found, line.a, line.b, line.axis),
             f"{line.device} · {line.clock}{place} · process blocks: "
             + " to ".join(map(str, dict.fromkeys((blocks[0], blocks[-1]))))]  # fmt: skip
    titled(figure, axes, lines)
    return figure


def _times(axes, line: Line) -> None:
    for color, name, side in ((COLORS[7], line.a, "a_us"), (COLORS[0], line.b, "b_us")):
        axes.plot(line.found.x, [getattr(c, side) for c in line.cases], "o-", ms=3.5, lw=1.3,
                  color=color, label=name)  # fmt: skip
    axes.set(ylabel="time of a call (µs)", yscale="log")
    log_ticks(axes.yaxis, subs=(1, 2, 5))
    axes.legend(loc="best", fontsize=8.5)


def _ratios(axes, line: Line) -> None:
    found = line.found
    x, values = np.array(found.x), np.array([p.value for p in found.points])
    low, high = (np.array([getattr(p, end) for p in found.points]) for end in ("low", "high"))
    if line.noise == line.noise:
        axes.axhspan(np.exp(-line.noise), np.exp(line.noise), color=NOISE, alpha=0.4, lw=0,
                     label=f"A/A noise ±{np.expm1(line.noise):.2%}", zorder=0)  # fmt: skip
    for c in found.crossings:
        axes.axvspan(*c.between, color=CROSSING, alpha=0.18, lw=0,
                     label="crossing: between these points")  # fmt: skip
        axes.axvline(c.at, color=CROSSING, lw=1.6, label="if straight between them")
    for u in found.unresolved:
        ends = (x[0] if u.low is None else u.low, x[-1] if u.high is None else u.high)
        axes.axvspan(*ends, color=DOUBT, alpha=0.3, lw=0, label="undecided")
    axes.axhline(1.0, color="#555555", lw=1)
    axes.plot(x, values, color=COLORS[0], lw=1.3)
    bars = np.where(np.isnan(low), 0.0, [values - low, high - values])
    axes.errorbar(x, values, yerr=np.abs(bars), fmt="o", ms=4.5, color=COLORS[0], capsize=2.5,
                  label="ratio with its 95 % interval")  # fmt: skip
    flagged = np.array([bool(c.flags) for c in line.cases])
    if flagged.any():
        axes.plot(x[flagged], values[flagged], "o", ms=7, mfc="white", mec=COLORS[0], zorder=3,
                  label="flagged")  # fmt: skip
    axes.set(yscale="log", ylabel=f"{line.b} over\n{line.a}")
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, min(1, *values) / FAR), min(top, max(1, *values) * FAR))
    log_ticks(axes.yaxis, subs=(1, 1.5, 2, 3, 5, 7))
    along(axes, "x", x, found.linear, line.axis)
    for arrow, name, up, align in (("↑", line.a, 4, "bottom"), ("↓", line.b, -4, "top")):
        told = f"{arrow} {textwrap.fill(name, 14, break_long_words=False)}\nis faster"
        axes.annotate(told, (1.0, 1.0), (5, up), xycoords=("axes fraction", "data"), va=align,
                      textcoords="offset points", fontsize=8, color="#555555")  # fmt: skip


def log_ticks(axis, subs: tuple) -> None:
    """Plain numbers on a logarithmic axis: `subs` of each decade, or even steps where it is short.

    The limits of the axis must stand already.
    """
    low, high = axis.get_view_interval()
    short = high < 4 * low
    even = MaxNLocator(8, steps=(1, 2, 2.5, 5, 10)).tick_values(low, high)
    axis.set_major_locator(FixedLocator([v for v in even if low <= v <= high]) if short else
                           LogLocator(subs=subs))  # fmt: skip
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}" if v < 1e3 else f"{v:,.0f}"))


def along(axes, side: str, values: np.ndarray, linear: bool, name: str) -> None:
    """Name and mark the x or y axis of a workload, at powers of two or measured values that fit."""
    axes.set(**{f"{side}label": name.replace("_", " ")})
    axis = axes.xaxis if side == "x" else axes.yaxis
    if not linear:
        axes.set(**{f"{side}scale": "log"})
        axis.set_minor_locator(NullLocator())
        axis.set_major_locator(FixedLocator(_marks(values)))
    axis.set_major_formatter(
        FuncFormatter(lambda v, _: plain(v) if float(v).is_integer() else f"{v:.4g}")
    )


def _marks(values: np.ndarray) -> np.ndarray | list:
    """Where a logarithmic axis has labels, LABELS at most."""
    powers = 2.0 ** np.arange(np.ceil(np.log2(values[0])), np.floor(np.log2(values[-1])) + 1)
    apart, kept = (values[-1] / values[0]) ** (1 / LABELS), [values[0]]
    for value in values:
        if value >= kept[-1] * apart and (value * apart <= values[-1] or value == values[-1]):
            kept.append(value)
    if values[0] >= 1 and 4 <= len(powers) <= LABELS:
        return powers
    if len(values) <= LABELS:
        return kept
    decades = 10.0 ** np.arange(np.floor(np.log10(values[0])), np.log10(values[-1]))
    return [v for d in decades for v in d * np.array([1, 1.5, 2, 3, 5, 7])
            if values[0] <= v <= values[-1]]  # fmt: skip


def titled(figure: Figure, axes, lines: list[str]) -> None:
    """Lines of text above, the legend of `axes` below."""
    told = [part for text in lines for part in textwrap.wrap(text, WIDE)]
    figure.suptitle("\n".join(told), x=0.01, ha="left", fontsize=10)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=8.5,
                  ncols=min(3, len(handles)))  # fmt: skip


@styled
def forest(cases: list[Compared], question: str = "") -> Figure:
    """One row a case: b over a with its interval, the A/A noise of its study behind it.

    Rows are named by what differs among them; the rest is in the title. Hollow points carry a flag.
    Raises ValueError on no case.
    """
    if not cases:
        raise ValueError("no case to draw")
    shared, names = _rows(cases)
    figure = Figure(figsize=(8.2, 1.9 + 0.34 * len(cases)), layout="constrained")
    axes = figure.subplots()
    for y, c in enumerate(cases):
        r = c.ratio
        if c.noise == c.noise:
            axes.fill_betweenx([y - 0.4, y + 0.4], *np.exp([-c.noise, c.noise]), color=NOISE,
                               alpha=0.35, lw=0, label="A/A noise")  # fmt: skip
        width = [[r.value - r.low], [r.high - r.value]] if r.low == r.low else None
        axes.errorbar([r.value], [y], xerr=width, fmt="o", ms=5, capsize=2.5, color=COLORS[0],
                      mfc="white" if c.flags else COLORS[0],
                      label="flagged" if c.flags else "ratio with its 95 % interval")  # fmt: skip
        axes.annotate(f"{r.value:.3f} {c.verdict}", (1.01, y), va="center", fontsize=8,
                      xycoords=("axes fraction", "data"), color="#555555")  # fmt: skip
    axes.axvline(1.0, color="#555555", lw=1)
    pairs = {(c.a, c.b) for c in cases if c.a != c.b}
    sides = pairs.pop() if len(pairs) == 1 else ("base", "new") if not pairs else ("a", "b")
    axes.set(xscale="log", yticks=range(len(cases)), yticklabels=names,
             ylim=(len(cases) - 0.4, -0.6), xlabel=f"time of {sides[1]} over time of {sides[0]}")
    left, right = axes.get_xlim()
    values = [1.0, *(c.ratio.value for c in cases)]
    axes.set_xlim(max(left, min(values) / FAR), min(right, max(values) * FAR))
    log_ticks(axes.xaxis, subs=(1, 1.5, 2, 3, 5, 7))
    titled(figure, axes, [question, shared])
    return figure


def _rows(cases: list[Compared]) -> tuple[str, list[str]]:
    """(what all cases share, the name of each case by what it does not)."""
    words = [{"device": c.device, "clock": c.clock, "op": c.op,
              "arm": c.b if c.a == c.b else f"{c.b} / {c.a}",
              **dict(word.partition("=")[::2] for word in c.place.split())}
             for c in cases]  # fmt: skip
    for c, each in zip(cases, words, strict=True):  # a field that others name has its default here
        default = vars(OPS[c.op].Workload()) if c.op in OPS else {}
        for name in (n for other in words for n in other):
            if name in default:
                each.setdefault(name, f"{default[name]}")
    differ = [n for n in dict.fromkeys(n for each in words for n in each)
              if len({each.get(n) for each in words}) > 1]  # fmt: skip
    bare = ("device", "clock", "op", "arm")
    told = [[v if n in bare else f"{n}={v}" for n, v in each.items()] for each in words]
    named = [" ".join(t for t, n in zip(row, each, strict=True) if n in differ)
             for row, each in zip(told, words, strict=True)]  # fmt: skip
    shared = " · ".join(t for t, n in zip(told[0], words[0], strict=True) if n not in differ)
    return shared, [textwrap.fill(name or c.place or "default", 40)
                    for name, c in zip(named, cases, strict=True)]  # fmt: skip
