"""Figure of the crossover: from how many tokens on prefill kernels overtake those of decode."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..comparison import Line, lines
from ..evidence import CASE, newest
from ..models.crossover import said as said_of
from ..models.dispatch_estimates import REFERENCE
from ..ops import OPS
from ..regret import DECODE_MOST_TOKENS, family_of
from .axes import COLORS, one_setup, styled
from .decode import OP, H, X, along_tokens, dress, ticks
from .ratios import log_ticks

FAMILIES = {"decode": COLORS[0], "prefill": COLORS[1]}
BOUNDARY = DECODE_MOST_TOKENS + 0.5


def families(table: pd.DataFrame) -> pd.DataFrame:
    """The times of decode's and of prefill's fastest arm of each study and place, named so.

    Only where both families took turns. The column `fastest` has the arm itself.
    """
    rows = along_tokens(table)
    rows = newest(rows[~rows["variant"].str.startswith(REFERENCE)], CASE)
    rows = rows.assign(fastest=rows["arm"], arm=rows["variant"].map(family_of))
    rows = rows[rows["arm"].isin(list(FAMILIES))]
    study = [*CASE, "study"]
    both = rows.groupby(study, dropna=False)["arm"].transform("nunique") == len(FAMILIES)
    rows = rows[both]
    mean = np.log(rows["median_us"]).groupby([rows[c] for c in (*study, "arm", "fastest")],
                                             dropna=False).transform("mean")  # fmt: skip
    least = mean.groupby([rows[c] for c in (*study, "arm")], dropna=False).transform("min")
    kept = rows[mean == least]
    return kept.drop_duplicates([*study, "block", "arm"])


def crossovers(table: pd.DataFrame) -> list[tuple[int, Line]]:
    """(H, time of decode over that of prefill along T), ascending; above 1 prefill is faster.

    Empty where no H has two token counts at which both took turns.
    """
    rows = families(table)
    counts = rows.groupby(H)[X].nunique()
    if not (counts > 1).any():
        return []
    rows = rows[rows[H].isin(counts[counts > 1].index)]
    own = [(_heads(line), line) for line in lines(rows, "prefill", "decode", "tokens")]
    return sorted(own, key=lambda pair: pair[0])


def _heads(line: Line) -> int:
    known = dict(word.split("=") for word in line.place.split())
    return int(known.get("heads", OPS[OP].Workload().heads))


def crossover_table(table: pd.DataFrame) -> pd.DataFrame:
    """`crossovers` as rows: H, T, the fastest arm of each family, times, ratio and its interval."""
    rows = families(table)
    arms = rows.groupby([H, X, "arm"])["fastest"].last() if len(rows) else {}
    return pd.DataFrame([
        (heads, int(x), arms[heads, x, "decode"], arms[heads, x, "prefill"], c.b_us, c.a_us,
         c.ratio.value, c.ratio.low, c.ratio.high, c.ratio.blocks, c.verdict, "; ".join(c.flags))
        for heads, line in crossovers(table) for x, c in zip(line.found.x, line.cases, strict=True)
    ], columns=["H", "T", "decode", "prefill", "decode (µs)", "prefill (µs)", "decode / prefill",
                "low", "high", "blocks", "decode is", "flags"])  # fmt: skip


def decode_crossings(table: pd.DataFrame) -> list[str]:
    """Where along T the faster family changes: a sentence for each H."""
    return [_said(heads, line) for heads, line in crossovers(table)]


def _said(heads: int, line: Line) -> str:
    return f"H={heads}: {said_of(line.found, 'prefill', 'decode', 'tokens')}"


@styled
def decode_crossover(table: pd.DataFrame) -> Figure:
    """Decode beside prefill kernels along T: times above, their ratio below; a column an H.

    Each family is the fastest of its arms at a place. The line between 64 and 65 tokens is where
    servers change over by a fixed rule. Raises ValueError where no H has both families along T.
    """
    crossed = crossovers(table)
    if not crossed:
        raise ValueError(f"no two token counts at which decode and prefill kernels of {OP} took "
                         "turns in these records")  # fmt: skip
    seen = families(table)
    figure = Figure(figsize=(max(6.6, 1.2 + 4.0 * len(crossed)), 6.8), layout="constrained")
    grid = figure.subplots(2, len(crossed), sharex=True, sharey="row", squeeze=False,
                           height_ratios=(1.2, 1))  # fmt: skip
    for (above, below), (heads, line) in zip(grid.T, crossed, strict=True):
        for name, side in (("decode", "b_us"), ("prefill", "a_us")):
            above.plot(line.found.x, [getattr(c, side) for c in line.cases], "o-", ms=4, lw=1.4,
                       color=FAMILIES[name], label=f"the fastest {name} variant")  # fmt: skip
        above.set(xscale="log", yscale="log", title=f"{heads} heads")
        mine = seen[seen[H] == heads].sort_values(X)
        for y, name in ((0.97, "prefill"), (0.90, "decode")):
            told = ", ".join(dict.fromkeys(mine[mine["arm"] == name]["variant"]))
            above.text(0.02, y, told, transform=above.transAxes, va="top", fontsize=8,
                       color=FAMILIES[name])  # fmt: skip
        _ratios(below, line)
        for axes in (above, below):
            axes.axvline(BOUNDARY, color="#444444", lw=1, ls=(0, (2, 2)), zorder=1,
                         label="the fixed rule of servers: decode up to 64 tokens")  # fmt: skip
        below.set_xlabel("tokens of the step")
        ticks(below, [x for _, each in crossed for x in each.found.x])
    grid[0, 0].set_ylabel("time of a call (µs)")
    grid[1, 0].set_ylabel("time of decode over prefill")
    grid[0, 0].set_ylim(top=grid[0, 0].get_ylim()[1] * 1.6)  # room for the variants' names
    log_ticks(grid[0, 0].yaxis, (1, 2, 5))
    values = [p.value for _, line in crossed for p in line.found.points]
    grid[1, 0].set(yscale="log", ylim=(min(*values, 0.8) / 1.4, max(*values, 1.25) * 1.2))
    log_ticks(grid[1, 0].yaxis, (1, 2, 5))
    setup = one_setup(along_tokens(table).assign(noise=max(line.noise for _, line in crossed)))
    dress(figure, grid, ["Where prefill kernels overtake decode kernels, DeepSeek-V3.2's rows, "
                         f"topk 2,048\n{setup}", *(_said(*each) for each in crossed)])  # fmt: skip
    return figure


def _ratios(axes, line: Line) -> None:
    x, points = np.array(line.found.x), line.found.points
    value = np.array([p.value for p in points])
    ends = np.nan_to_num([[p.value - p.low for p in points], [p.high - p.value for p in points]])
    for c in line.found.crossings:
        axes.axvspan(*c.between, color=COLORS[2], alpha=0.18, lw=0,
                     label="changes between these points")  # fmt: skip
    for u in line.found.unresolved:
        axes.axvspan(x[0] if u.low is None else u.low, x[-1] if u.high is None else u.high,
                     color="#cccccc", alpha=0.4, lw=0, label="undecided")  # fmt: skip
    axes.axhline(1.0, color="#555555", lw=1)
    axes.errorbar(x, value, yerr=np.abs(ends), fmt="o-", ms=4, lw=1.3, capsize=2.5, color="#333333",
                  label="decode / prefill, 95 % interval")  # fmt: skip
    flagged = np.array([bool(c.flags) for c in line.cases])
    axes.plot(x[flagged], value[flagged], "o", ms=6, mfc="white", mec="#333333", zorder=3)
    for at, y, name, ha in ((0.02, 0.93, "prefill", "left"), (0.8, 0.05, "decode", "right")):
        axes.text(at, y, f"{name} is faster", transform=axes.transAxes, ha=ha, va="center",
                  fontsize=8.5, color=FAMILIES[name])  # fmt: skip
