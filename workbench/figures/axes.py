"""What all figures share: style, colors, panels, how numbers and fields are written."""

import functools
import math

import matplotlib
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from ..comparison import noises
from ..evidence import derived, pooled
from ..ops import OPS

COLUMNS = 3  # panels side by side
STYLE = {
    **sns.axes_style("whitegrid"),
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": "#e6e6e6",
    "axes.edgecolor": "#b0b0b0",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "workbench",  # equal data, equal file
}
COLORS = sns.color_palette("colorblind", 10)
MARKERS = "os^DvPX*<>"




def styled(figure):
    """Draw with STYLE, whatever the caller's matplotlib settings are, and leave those alone."""

    @functools.wraps(figure)
    def drawn(*args, **kwargs) -> Figure:
        with matplotlib.rc_context(STYLE):
            return figure(*args, **kwargs)

    return drawn


def one_setup(table: pd.DataFrame) -> str:
    """Name the single device and clock of `table`. Raises ValueError where there are several."""
    setups = table[["environment.device", "clock", "cache"]].drop_duplicates()
    if len(setups) != 1:
        raise ValueError(f"records of {len(setups)} setups in one figure: "
                         f"{setups.to_dict('records')}")  # fmt: skip
    device, clock, cache = setups.iloc[0]
    if "noise" in table:  # of all blocks: they are one row here
        found = list(table["noise"].dropna())
    else:
        found = list(noises(table).values()) if "place" in table else []
    noise = f" · A/A noise ±{math.expm1(max(found)):.2%}" if found else ""
    return f"{device} · {clock}" + (f" ({cache} L2)" if cache else "") + noise


def timed(table: pd.DataFrame, op: str) -> pd.DataFrame:
    """What was timed of `op`, blocks as one; its own workload fields, and a prefill's S - T."""
    table = table[(table["op"] == op) & table["median_us"].notna()]
    table = pooled(table if "place" in table else derived(table))
    fields = [c for c in table.columns if c.startswith("workload.")]
    table = table.drop(columns=[c for c in fields if table[c].isna().all() and len(table)])
    # a record from before a field existed is one of its default
    default = vars(OPS[op].Workload()) if op in OPS else {}
    known = {f"workload.{n}": v for n, v in default.items() if v is not None}
    table = table.assign(**{c: table[c].fillna(v) for c, v in known.items() if c in table})
    if "workload.tokens" in table and len(table):
        table["workload.rows"] = cache_rows(table)
        table["workload.context"] = table["workload.rows"] - table["workload.tokens"].astype(int)
    return table


def cache_rows(table: pd.DataFrame) -> pd.Series:
    """S of each record: as given, or else its tokens behind those that each request had before."""
    absent = pd.Series(float("nan"), table.index)
    before = table.get("workload.context", absent).fillna(0)
    before = before * table.get("workload.requests", absent).fillna(1)
    given = table.get("workload.rows", absent)
    return given.fillna(table["workload.tokens"] + before).astype(int)


def panels(table: pd.DataFrame, x: str) -> list[tuple[str, pd.DataFrame]]:
    """Split by every workload field other than `x` that differs; (title, records) each.

    Only panels with the most points along `x` are kept: a lone point is no curve.
    """
    fields = [c for c in table.columns if c.startswith("workload.")]
    fields = [c for c in fields if c not in (x, "workload.rows", "workload.seed")]
    fields = [c for c in fields if table[c].map(str).nunique() > 1]
    if not fields:
        return [("", table)]
    found = []
    for values, rows in table.groupby(fields, dropna=False):
        title = " · ".join(said(f, v) for f, v in zip(fields, values, strict=True))
        found.append((title, rows))
    most = max(rows[x].nunique() for _, rows in found)
    return [(title, rows) for title, rows in found if rows[x].nunique() == most]


def said(field: str, value) -> str:
    """A workload field and its value as part of a title."""
    name = field.removeprefix("workload.")
    if name == "context":
        return f"S = T + {plain(value)}" if value else "S = T"
    return f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"


def plain(value: float, _=None) -> str:
    """8k for 8,192, which is how the field writes it; other numbers with separators."""
    if value >= 1024 and value % 1024 == 0:
        return f"{value / 1024:g}k"
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def color_of(op: str, arm: str, arms: list[str]):
    """Variants keep their color over figures; several configs of one take lighter shades."""
    name = arm.split(" ")[0]
    known = list(OPS[op].variants) if op in OPS else sorted({a.split(" ")[0] for a in arms})
    base = COLORS[known.index(name) % len(COLORS)] if name in known else (0.4, 0.4, 0.4)
    same = sorted(a for a in arms if a.split(" ")[0] == name)
    return sns.light_palette(base, len(same) + 2)[same.index(arm) + 2]


def marker_of(op: str, arm: str, arms: list[str]) -> str:
    """Variants keep their marker over figures, too: lines that lie on each other stay apart."""
    name = arm.split(" ")[0]
    known = list(OPS[op].variants) if op in OPS else sorted({a.split(" ")[0] for a in arms})
    return MARKERS[known.index(name) % len(MARKERS)] if name in known else "o"


def flagged(row) -> dict:
    """How the bar of a record that carries a flag is drawn: hollow, hatched."""
    return {"fill": False, "hatch": "////", "edgecolor": "#777777"} if row["flags"] else {}


def panels_of(count: int, most: int, width: float) -> tuple[Figure, list]:
    """A figure of `count` panels that share their axes, at most `most` side by side."""
    wide = min(most, count)
    high = -(-count // wide)
    figure = Figure(figsize=(max(5.2, 0.9 + width * wide), 1.7 + 2.4 * high), layout="constrained")
    grid = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False).flatten()
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, list(grid[:count])


def legend(figure: Figure, grid) -> None:
    handles = {h.get_label(): h for axes in grid for h in axes.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center",
                  ncols=min(5, len(handles)))  # fmt: skip
