"""Figure of a profile: what ran when, a lane a stream and a thread, in the colors of its ranges."""

import numpy as np
import pandas as pd
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..profiles import Attributed
from .axes import COLORS, styled

NAMED = 7  # ranges with a color of their own: those with the most time
LANES = 12  # streams, and depths of threads, that are drawn
MANY = 1000  # bars, from which on all are drawn as pixels
LETTERS = 30  # of a range's name in the legend
REST = "other ranges"
OTHER, OUTSIDE, LOST = "#8c8c8c", "#c4c4c4", "#ececec"
HEIGHT = 0.76
UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


@styled
def timeline(found: Attributed, between: tuple[int, int] | None = None) -> Figure:
    """GPU rows by stream, and the ranges of each CPU thread by depth, over one axis of time.

    A GPU row has the color of the innermost range around its launch, so that work and the range
    that asked for it are found although one runs long after the other. `between` are nanoseconds
    of the profile. Raises ValueError where nothing lies in there.
    """
    rows = _lanes(found)
    if between is not None:
        rows = rows[(rows["end_ns"] > between[0]) & (rows["start_ns"] < between[1])]
    if not len(rows):
        raise ValueError("no GPU rows and no ranges to draw")
    first, last = between or (rows["start_ns"].min(), rows["end_ns"].max())
    unit, scale = next((u for u in UNITS if last - first >= u[1]), UNITS[-1])
    lanes, left_out = _chosen(rows)
    colors = _colors(rows)
    rows = rows.assign(range=rows["range"].where(rows["range"].isin(colors), REST))
    figure = Figure(figsize=(9.6, 1.5 + 0.34 * len(lanes)), layout="constrained")
    axes = figure.subplots()
    for y, lane in enumerate(lanes):
        bars = rows[rows["lane"] == lane]
        _bars(axes, bars, y, colors, first, scale, len(rows) > MANY)
    axes.set(yticks=range(len(lanes)), yticklabels=lanes, ylim=(len(lanes) - 0.4, -0.6),
             xlim=(0, max(last - first, 1) / scale), xlabel=f"time ({unit})")  # fmt: skip
    axes.grid(axis="y", visible=False)
    shown = rows[rows["lane"].isin(lanes)]
    used = {name: color for name, color in colors.items() if name in set(shown["range"])}
    said = [name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…" for name in used]
    wide = max(1, 110 // (8 + max(map(len, said))))
    figure.legend([Patch(color=color) for color in used.values()], said,
                  loc="outside lower center", ncols=min(wide, len(used)))  # fmt: skip
    title = "What ran when, in the color of its range"
    figure.suptitle(title + (f" ({left_out} more lanes)" if left_out else ""), x=0.01, ha="left",
                    fontsize=10.5)  # fmt: skip
    return figure


def _lanes(found: Attributed) -> pd.DataFrame:
    """A row for each bar: lane, rank of the lane, range, start_ns, end_ns."""
    gpu, ranges = found.events.gpu, found.events.ranges
    names = np.append(ranges["name"].astype(str).to_numpy(), "")
    around = np.where(found.range >= 0, names[found.range], "outside every range")
    around = np.where(found.launch >= 0, around, "no launch row")
    several = gpu["device"].nunique() > 1
    device = "GPU " + gpu["device"].astype(str) + " " if several else ""
    streams = gpu[["start_ns", "end_ns"]].assign(
        lane=device + "stream " + gpu["stream"].astype(str), rank=-1, range=around
    )
    threads = ranges["thread"].nunique() > 1
    of = "CPU " + ranges["thread"].astype(str) if threads else "CPU"
    depth = pd.Series(_depths(ranges), ranges.index)
    said = pd.Series("", ranges.index).where(depth == 0, " +" + depth.astype(str))
    rank = pd.factorize(ranges["thread"])[0] * (1 + depth.max()) + depth if len(ranges) else 0
    host = ranges[["start_ns", "end_ns"]].assign(lane=of + said, rank=rank, range=names[:-1])
    return pd.concat([streams, host], ignore_index=True)


def _depths(ranges: pd.DataFrame) -> np.ndarray:
    """How many ranges of its thread are open where each starts."""
    depth = np.zeros(len(ranges), "i8")
    for _, rows in ranges.reset_index(drop=True).groupby(["process", "thread"]):
        ends = []
        rows = rows.sort_values(["start_ns", "end_ns"], ascending=[True, False], kind="stable")
        for at, start, end in zip(rows.index, rows["start_ns"], rows["end_ns"], strict=True):
            while ends and ends[-1] <= start:
                ends.pop()
            depth[at] = len(ends)
            ends.append(end)
    return depth


def _chosen(rows: pd.DataFrame) -> tuple[list[str], int]:
    """Lanes from streams to depths, those with the most time where they are too many."""
    spent = (rows["end_ns"] - rows["start_ns"]).groupby(rows["lane"]).sum()
    kept = spent.sort_values(ascending=False, kind="stable").index[:LANES]
    order = rows[rows["lane"].isin(kept)].groupby("lane")["rank"].min()
    return sorted(order.index, key=lambda lane: (order[lane], lane)), len(spent) - len(kept)


def _colors(rows: pd.DataFrame) -> dict[str, object]:
    """A color for each range, the first ones for those with the most time."""
    spent = (rows["end_ns"] - rows["start_ns"]).groupby(rows["range"]).sum()
    fixed = {"outside every range": OUTSIDE, "no launch row": LOST}
    order = spent.drop(fixed, errors="ignore").sort_values(ascending=False, kind="stable").index
    return dict(zip(order[:NAMED], COLORS, strict=False)) | {REST: OTHER} | fixed


def _bars(axes, rows: pd.DataFrame, y: int, colors: dict, first: int, scale: float,
          pixels: bool) -> None:  # fmt: skip
    left = (rows["start_ns"].to_numpy() - first) / scale
    right = (rows["end_ns"].to_numpy() - first) / scale
    low, high = np.full(len(rows), y - HEIGHT / 2), np.full(len(rows), y + HEIGHT / 2)
    corners = np.stack([[left, low], [left, high], [right, high], [right, low]])  # [4, 2, bars]
    faces = [colors[name] for name in rows["range"]]
    axes.add_collection(PolyCollection(
        corners.transpose(2, 0, 1), facecolors=faces, edgecolors=faces, linewidths=0.4,
        rasterized=pixels,
    ), autolim=False)  # fmt: skip
