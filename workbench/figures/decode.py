"""Figure of sparse decode: every variant's time along the tokens of a step."""

import csv

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from ..columns import column
from ..evidence import derived
from ..models.dispatch_estimates import REFERENCE
from ..models.splits import COUNT
from ..ops import OPS
from ..record import found
from ..regret import family_of
from .axes import COLORS, MARKERS, one_setup, plain, styled, timed

OP, X, H = "sparse_decode", "workload.tokens", "workload.heads"
FLASHMLA = "traces/published/flashmla_decode_h200.csv"
LEAST, TICKS = (64, 128), (1, 2, 4, 8, 16, 32, 64, 128)  # heads that FlashMLA takes; of an axis
SHADES = {"decode": (0, 2, 4, 7, 5, 3, 6), "prefill": (1, 9)}  # of COLORS, by family


def look(name: str) -> dict:
    """Color, marker and line of a variant: decode's preferred ones first, prefill's dashed."""
    family, op = family_of(name), OPS[OP]
    order = [n for n in dict.fromkeys((*op.preference, *op.variants))
             if family_of(n) == family and not n.startswith(REFERENCE)]  # fmt: skip
    shades = SHADES[family if family in SHADES else "decode"]
    place = order.index(name) if name in order else len(order)
    return {"color": COLORS[shades[place % len(shades)]], "marker": MARKERS[place % len(MARKERS)],
            "ls": "--" if family == "prefill" else "-"}  # fmt: skip


def along_tokens(table: pd.DataFrame) -> pd.DataFrame:
    """The times of DeepSeek-V3.2's rows in which T and H alone differ; lanes in no order."""
    table = table[table["op"] == OP]
    table = table if "place" in table else derived(table)
    words = table["place"].map(lambda place: dict(word.split("=") for word in place.split()))
    kept = words.map(lambda w: set(w) <= {"tokens", "heads", "padding"}
                     and w.get("padding") == "mixed")  # fmt: skip
    return table[kept.astype(bool) & table["median_us"].notna()]


def flashmla(device: str) -> pd.DataFrame:
    """FlashMLA's times on `device`, by heads and requests; empty where none was written down."""
    with found(FLASHMLA).open(newline="") as file:
        rows = pd.DataFrame(csv.DictReader(file))
    rows = rows[rows["gpu"] == device]
    return rows.astype({"heads": int, "requests": int, "us": float})


def decode_table(table: pd.DataFrame) -> pd.DataFrame:
    """The fastest config of each variant at each H and T: arm, median, percentiles, flags, floor.

    Only where a variant ran by its own rule, too: two points of a calibration are no fastest of
    many. Empty where there is no such time.
    """
    rows = timed(along_tokens(table), OP)
    by_rule = column(rows, f"config.{COUNT}").fillna(0) == 0
    rows = rows[by_rule.groupby([rows[c] for c in (H, X, "variant")]).transform("any")]
    best = rows.sort_values("median_us", kind="stable").drop_duplicates([H, X, "variant"])
    return best.sort_values([H, X, "median_us"], ignore_index=True)


def decode_times(table: pd.DataFrame) -> pd.DataFrame:
    """`decode_table` as microseconds [H and T, variant], FlashMLA and the floor beside them."""
    rows = decode_table(table).rename(columns={H: "H", X: "T"})
    times = rows.pivot(index=["H", "T"], columns="variant", values="median_us")
    others = flashmla(rows["environment.device"].iloc[0]) if len(rows) else ()
    if len(others):
        known = others.set_index(["heads", "requests"])["us"]
        times["FlashMLA (not here)"] = [known.get((padded(h), t), np.nan) for h, t in times.index]
    times["floor"] = rows.groupby(["H", "T"])["roofline_us"].min()
    return times


def padded(heads: int) -> int | None:
    """The heads that FlashMLA takes for so many; None where it has no kernel for them."""
    return next((least for least in LEAST if heads <= least), None)


def has_line(table: pd.DataFrame) -> bool:
    """Whether some variant has times at two token counts or more of one H."""
    rows = decode_table(table)
    return bool((rows.groupby([H, "variant"])[X].nunique() > 1).any())


@styled
def decode_latency(table: pd.DataFrame) -> Figure:
    """Time against tokens, a panel an H: each variant in the fastest config that was timed there.

    Dashed: kernels of prefill. Dotted: the least time that bytes and products allow at measured
    ceilings. Crosses: FlashMLA, of a file of its own and no records. Raises ValueError where no
    time is of DeepSeek-V3.2's default rows.
    """
    rows = decode_table(table)
    if not len(rows):
        raise ValueError(f"no times of {OP} along T and H in these records")
    setup, parts = one_setup(timed(along_tokens(table), OP)), list(rows.groupby(H))
    figure = Figure(figsize=(max(6.6, 1.2 + 4.0 * len(parts)), 5.4), layout="constrained")
    grid = figure.subplots(1, len(parts), sharex=True, sharey=True, squeeze=False)[0]
    names = [n for n in OPS[OP].variants if n in set(rows["variant"])]
    others = flashmla(rows["environment.device"].iloc[0])
    for axes, (heads, part) in zip(grid, parts, strict=True):
        _latencies(axes, part, names)
        _beside(axes, others, int(heads))
        axes.set(xscale="log", yscale="log", title=f"{heads:.0f} heads")
        axes.set_xlabel("tokens of the step, one a request")
        ticks(axes, rows[X])
    grid[0].set_ylabel("time of a call (µs), merge included")
    grid[0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    grid[0].yaxis.set_minor_locator(NullLocator())
    grid[0].yaxis.set_major_formatter(FuncFormatter(plain))
    kinds = sorted({flag.split(":")[0] for flags in rows["flags"] for flag in flags})
    told = ["Sparse decode of DeepSeek-V3.2 (656 bytes a row), topk 2,048, pool of 262,144 rows",
            f"{setup} · each variant in its fastest config"
            + (f" · hollow: {', '.join(kinds)}" if kinds else "")]  # fmt: skip
    dress(figure, grid, told)
    return figure


def _latencies(axes, rows: pd.DataFrame, names: list[str]) -> None:
    floor = rows.drop_duplicates(X).sort_values(X).dropna(subset="roofline_us")
    axes.plot(floor[X], floor["roofline_us"], ":", color="#777777", lw=1.3,
              label="floor: bytes and products at measured ceilings")  # fmt: skip
    for name in (n for n in names if n in set(rows["variant"])):
        line = rows[rows["variant"] == name].sort_values(X)
        axes.plot(line[X], line["median_us"], ms=5, lw=1.4, label=name, **look(name))
        axes.fill_between(line[X], line["low_us"], line["high_us"], alpha=0.18, lw=0,
                          color=look(name)["color"])  # fmt: skip
        doubted = line[line["flags"].map(len) > 0]
        axes.plot(doubted[X], doubted["median_us"], **look(name) | {"ls": ""}, ms=5.5, mfc="white")


def _beside(axes, others: pd.DataFrame, heads: int) -> None:
    """FlashMLA's marks, of the heads that it pads to."""
    taken = padded(heads)
    mine = others[others["heads"] == taken]
    if len(mine):
        axes.plot(mine["requests"], mine["us"], ls="", marker="x", ms=6.5, mew=1.6, color="#222222",
                  zorder=4, label="FlashMLA, timed outside this workbench")  # fmt: skip
    if len(mine) and heads < taken:
        first = mine.iloc[0]
        axes.annotate(f"FlashMLA pads\nto {taken} heads", (first["requests"], first["us"]),
                      (-4, 11), textcoords="offset points", fontsize=8,
                      color="#222222")  # fmt: skip


def ticks(axes, tokens) -> None:
    """Tokens along x, at powers of two."""
    low, high = min(tokens), max(tokens)
    axes.xaxis.set_major_locator(FixedLocator([t for t in TICKS if low <= t <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_xlim(low / 1.25, high * 1.25)


def dress(figure: Figure, grid, told: list[str]) -> None:
    """The title, and one legend of all panels below."""
    figure.suptitle("\n".join(told), x=0.01, ha="left", fontsize=10.5)
    named = {h.get_label(): h for axes in np.ravel(grid)
             for h in axes.get_legend_handles_labels()[0]}  # fmt: skip
    figure.legend(named.values(), named.keys(), loc="outside lower center", fontsize=9,
                  ncols=min(1 + np.shape(grid)[-1], 4, len(named)))  # fmt: skip
