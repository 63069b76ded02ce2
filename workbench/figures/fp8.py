"""Figure of fp8 prefill: every variant's time, and that of `mg` over that of `swapab`."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..comparison import Compared, compare_arms, lines
from ..evidence import derived
from ..models.crossover import said as said_of
from ..models.orientation import FP8_MMA
from ..ops import OPS
from .axes import COLORS, MARKERS, one_setup, panels, plain, styled, timed
from .ratios import log_ticks

OP, X = "fp8_prefill", "workload.tokens"
WIDE = 4  # panels of H side by side


def along_tokens(table: pd.DataFrame) -> pd.DataFrame:
    """The times of DeepSeek-V3.2's rows in which T and H alone differ from the op's default."""
    table = table[table["op"] == OP]
    table = table if "place" in table else derived(table)
    names = table["place"].map(lambda place: {word.split("=")[0] for word in place.split()})
    return table[names.map(lambda found: found <= {"tokens", "heads"}) & table["median_us"].notna()]


def mg_over_swapab(table: pd.DataFrame) -> list[Compared]:
    """Time of `mg` over that of `swapab` at each place at which both took turns, config by config.

    Above 1, swapping the operands is faster. Empty where no place has both.
    """
    return [c for swapped, mg in _pairs(table) for c in compare_arms(table, swapped, mg)]


def ratio_table(table: pd.DataFrame) -> pd.DataFrame:
    """`mg_over_swapab` as rows: arms, H, T, times, ratio with its 95 % interval, verdict."""
    return pd.DataFrame([
        (c.b, c.a, _field(c, "heads"), _field(c, "tokens"), c.b_us, c.a_us, c.ratio.value,
         c.ratio.low, c.ratio.high, c.ratio.blocks, c.verdict, "; ".join(c.flags))
        for c in mg_over_swapab(table)
    ], columns=["mg", "swapab", "H", "T", "mg (µs)", "swapab (µs)", "MG / swapAB", "low", "high",
                "blocks", "mg is", "flags"])  # fmt: skip


def measured_ratios(table: pd.DataFrame) -> dict[str, tuple[str, list[float]]]:
    """By architecture, (device, MG over swapAB at each place) in the arithmetic that it has."""
    found: dict[str, tuple[str, list[float]]] = {}
    named = table.groupby("environment.device")["environment.capability"].first()
    for c in mg_over_swapab(table):
        arch = f"sm_{named[c.device]}".replace(".", "")
        if c.b.split(" ")[0] == ("mg_fp8" if arch in FP8_MMA else "mg"):
            found.setdefault(arch, (c.device, []))[1].append(c.ratio.value)
    return found


def crossings(table: pd.DataFrame) -> list[str]:
    """Where along T the faster one of `mg` and `swapab` changes: a sentence for each H and pair."""
    found = []
    for swapped, mg in _pairs(table):
        at: dict[int, list[int]] = {}
        for c in compare_arms(table, swapped, mg):
            at.setdefault(_field(c, "heads"), []).append(_field(c, "tokens"))
        alone = {heads: tokens for heads, tokens in at.items() if len(tokens) == 1}
        if len(alone) < len(at):
            found += [f"H={_field(line.cases[0], 'heads')}: "
                      f"{said_of(line.found, swapped, mg, 'tokens')}"
                      for line in lines(table, swapped, mg, "tokens")]  # fmt: skip
        found += [f"H={heads}: {swapped} and {mg} were timed at T={tokens[0]} alone"
                  for heads, tokens in alone.items()]  # fmt: skip
    return found


def _pairs(table: pd.DataFrame) -> list[tuple[str, str]]:
    """Arms (swapab, mg) of one arithmetic and config that took turns somewhere."""
    arms = list(dict.fromkeys(table["arm"]))
    named = [(arm.replace("mg", "swapab", 1), arm) for arm in arms if arm.startswith("mg")]
    turns = {arm: set(map(tuple, table[table["arm"] == arm][["place", "study", "block"]].values))
             for arm in arms}  # fmt: skip
    return [(a, b) for a, b in named if turns.get(a, set()) & turns[b]]


def _field(c: Compared, name: str) -> int:
    """A field of a case's workload: as its place says it, or the op's default."""
    known = dict(word.split("=") for word in c.place.split())
    return int(known.get(name, getattr(OPS[OP].Workload(), name)))


@styled
def fp8_prefill(table: pd.DataFrame) -> Figure:
    """Times against query tokens above, `mg` over `swapab` with intervals below; a column an H.

    Raises ValueError where no time is of DeepSeek-V3.2's default rows.
    """
    table = along_tokens(table)
    if not len(table):
        raise ValueError(f"no times of {OP} along T and H in these records")
    rows = timed(table, OP)
    setup, parts = one_setup(rows), panels(rows, X)[:WIDE]
    compared = mg_over_swapab(table)
    figure = Figure(figsize=(max(6.6, 1.4 + 3.8 * len(parts)), 7.6), layout="constrained")
    grid = figure.subplots(2, len(parts), sharex=True, sharey="row", squeeze=False,
                           height_ratios=(1.9, 1))  # fmt: skip
    for (above, below), (_, part) in zip(grid.T, parts, strict=True):
        heads = int(part["workload.heads"].iloc[0])
        _times(above, part)
        above.set(xscale="log", yscale="log", title=f"{heads} heads")
        _ratios(below, [c for c in compared if _field(c, "heads") == heads])
        below.set_xlabel("query tokens")
        _ticks(below, sorted(rows[X].unique()))
    above.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    above.yaxis.set_minor_locator(NullLocator())
    above.yaxis.set_major_formatter(FuncFormatter(plain))
    _ratio_axis(below, [c.ratio.value for c in compared])
    grid[0, 0].set_ylabel("time of a call (µs)")
    grid[1, 0].set_ylabel("time of mg over swapab")
    said = ["fp8 prefill of DeepSeek-V3.2 (656 bytes a row), topk 2,048, S = T", setup,
            _told(rows, compared)]  # fmt: skip
    figure.suptitle("\n".join(filter(None, said)), x=0.01, ha="left", fontsize=10.5)
    named = {h.get_label(): h for axes in grid.flat for h in axes.get_legend_handles_labels()[0]}
    figure.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9,
                  ncols=2 if len(parts) == 1 else 4)  # fmt: skip
    return figure


def _look(arm: str) -> dict:
    """An arm's color, marker and line: those of its orientation, dashed where codes are fp8."""
    name, others = arm.split(" ")[0], [v.removesuffix("_fp8") for v in OPS[OP].variants]
    known = list(dict.fromkeys(["swapab", "mg", *others]))
    base = name.removesuffix("_fp8")
    place = known.index(base) if base in known else len(known)
    return {"color": COLORS[place % len(COLORS)], "marker": MARKERS[place % len(MARKERS)],
            "ls": "--" if name.endswith("_fp8") else "-"}  # fmt: skip


def _times(axes, rows: pd.DataFrame) -> None:
    for arm, line in rows.sort_values(X).groupby("arm", sort=False):
        look = _look(arm)
        axes.plot(line[X], line["median_us"], ms=5, lw=1.4, label=arm, **look)
        axes.fill_between(line[X], line["low_us"], line["high_us"], color=look["color"],
                          alpha=0.18, lw=0)  # fmt: skip
        doubted = line[line["flags"].map(len) > 0]
        axes.plot(doubted[X], doubted["median_us"], **look | {"ls": ""}, ms=5.5, mfc="white")


def _ticks(axes, tokens: list[int]) -> None:
    axes.xaxis.set_major_locator(FixedLocator(tokens))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlim(tokens[0] / 1.3, tokens[-1] * 1.3)


def _ratios(axes, compared: list[Compared]) -> None:
    axes.axhline(1.0, color="#555555", lw=1)
    top = {}  # the largest ratio at each T: its number stands above it, others' below
    for c in compared:
        top[c.place] = max(top.get(c.place, 0.0), c.ratio.value)
    for b in dict.fromkeys(c.b for c in compared):
        mine = sorted((c for c in compared if c.b == b), key=lambda c: _field(c, "tokens"))
        x, value = ([_field(c, "tokens") for c in mine], np.array([c.ratio.value for c in mine]))
        ends = np.array([[c.ratio.value - c.ratio.low, c.ratio.high - c.ratio.value] for c in mine])
        axes.errorbar(x, value, yerr=np.nan_to_num(ends).T, lw=1.3, ms=4.5, capsize=3,
                      **_look(mine[0].a), label=f"{b} / {mine[0].a}, 95 % interval")  # fmt: skip
        for c, at in zip(mine, x, strict=True):
            above = c.ratio.value == top[c.place]
            axes.annotate(f"{c.ratio.value:.2f}", (at, c.ratio.value), (0, 8 if above else -8),
                          textcoords="offset points", fontsize=8, ha="center",
                          va="bottom" if above else "top")  # fmt: skip
    for y, va, name in ((0.97, "top", "swapab"), (0.03, "bottom", "mg")):
        axes.text(0.02, y, f"{name} is faster", transform=axes.transAxes, va=va, fontsize=8,
                  color="#777777")  # fmt: skip


def _ratio_axis(axes, values: list[float]) -> None:
    axes.set(yscale="log", ylim=(min(0.8, *values, 1.0) / 1.35, max(1.15, *values, 1.0) * 1.25))
    log_ticks(axes.yaxis, subs=(1, 2, 5))


def _told(rows: pd.DataFrame, compared: list[Compared]) -> str:
    """What of the points is doubtful, in words."""
    kinds = sorted({flag.split(":")[0] for flags in rows["flags"] for flag in flags})
    told = [f"hollow: {', '.join(kinds)}"] if kinds else []
    if any(c.ratio.low != c.ratio.low for c in compared):
        told.append("a ratio of one process has no interval")
    return " · ".join(told)
