"""Figure of limits: what each arm takes, beside the least that its counted work allows."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..evidence import ceilings_of
from ..models.roofline import LIMITS, floor
from .axes import COLORS, color_of, flagged, legend, one_setup, styled, timed

MARKS = dict(zip(LIMITS, "os^DPv", strict=True))


@styled
def floors(table: pd.DataFrame, op: str) -> Figure:
    """A bar for the time of each arm and workload of `op`, a mark for each limit on its work.

    The mark furthest to the right is the floor: memory, L2 gather and shared memory at the measured
    rates, arithmetic that the answer needs (useful) and that the arm does (executed, padding too).
    Raises ValueError where the table has no times of `op`, or no ceiling of its device is known.
    """
    rows = timed(table, op)
    if not len(rows):
        raise ValueError(f"no times of {op} in these records")
    setup = one_setup(rows)
    limits = ceilings_of(table, rows["environment.device"].iloc[0])
    rows = rows.sort_values(["place", "median_us"], ascending=[True, False], kind="stable")
    found = [floor(_ledger(row), limits) for _, row in rows.iterrows()]
    if not any(found):
        raise ValueError("no ceiling of this device is known: `workbench ceilings --measure`")
    figure = Figure(figsize=(8.4, 1.9 + 0.42 * len(rows)), layout="constrained")
    axes = figure.subplots()
    arms = list(dict.fromkeys(rows["arm"]))
    for y, ((_, row), least) in enumerate(zip(rows.iterrows(), found, strict=True)):
        axes.barh(y, row["median_us"], height=0.62, color=color_of(op, row["arm"], arms),
                  alpha=0.45, **flagged(row))  # fmt: skip
        axes.annotate(f" {row['median_us']:,.0f}", (row["median_us"], y), va="center", fontsize=8.5)
        for name, us in (least.limits_us if least else {}).items():
            axes.plot(us, y, MARKS[name], ms=6, color=COLORS[list(MARKS).index(name)],
                      mec="white", mew=0.6, label=name.replace("_", " "))  # fmt: skip
    names = [f"{row['arm']}\n{row['place'] or 'default'}" for _, row in rows.iterrows()]
    axes.set(yticks=range(len(rows)), xscale="log", xlabel="time of a call (µs)")
    axes.set_yticklabels(names, fontsize=8)
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    title = "Measured time (bars) and the limits of the work that is done (marks)"
    figure.suptitle(f"{title}\n{setup}", x=0.01, ha="left", fontsize=10.5)
    legend(figure, [axes])
    return figure


def _ledger(row: pd.Series) -> dict:
    counts = row[[c for c in row.index if c.startswith("ledger.")]].dropna()
    found = {c.removeprefix("ledger."): n for c, n in counts.items()}
    if row["resident"]:
        found.pop("least_bytes", None)
    return found
