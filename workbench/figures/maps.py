"""The figure of two axes: one arm over another as color, and where both take equally long."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from ..comparison import Line
from ..models.crossover import frontier
from .axes import styled
from .ratios import along, log_ticks, titled

FINE = 200  # points of the interpolated plane along each axis
MARKS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 2, 3, 5, 10)  # thin contours


@styled
def ratio_map(rows: list[tuple[float, Line]], y_name: str) -> Figure:
    """Two axes: b over a as color, the contour of equal time with the 95 % band of its crossings.

    `rows` are (y, the line along x at that y); between them log ratios are joined by straight
    lines, as crossings are. Raises ValueError below two rows, on a y that is given twice and where
    the lines share no range.
    """
    if len(rows) < 2:
        raise ValueError(f"a map takes two lines or more, not {len(rows)}")
    rows = sorted(rows, key=lambda row: row[0])
    y, found = np.array([value for value, _ in rows]), [line.found for _, line in rows]
    if (twice := y[1:][np.diff(y) == 0]).size:
        raise ValueError(f"{y_name}={twice[0]:g} is given twice: several devices, clocks or other "
                         "fields are several maps")  # fmt: skip
    ends = max(f.x[0] for f in found), min(f.x[-1] for f in found)
    if not ends[0] < ends[1]:
        raise ValueError(f"the lines of a map share no range of {rows[0][1].axis}")
    straight = any(f.linear for f in found), bool(y[0] <= 0 or y[-1] < 8 * y[0])
    fine_x, fine_y = _steps(*ends, straight[0]), _steps(y[0], y[-1], straight[1])
    logs = _plane(fine_x, fine_y, y, found, straight)

    figure = Figure(figsize=(7.6, 5.0), layout="constrained")
    axes = figure.subplots()
    most = max(np.abs(logs).max(), 0.01)
    drawn = axes.pcolormesh(fine_x, fine_y, np.exp(logs), shading="gouraud", cmap="RdBu_r",
                            norm=LogNorm(np.exp(-most), np.exp(most)), rasterized=True)  # fmt: skip
    x = sorted({v for f in found for v in f.x if ends[0] <= v <= ends[1]})
    along(axes, "x", np.array(x), straight[0], rows[0][1].axis)
    along(axes, "y", y, straight[1], y_name)
    axes.set(yticks=y[:: -(-len(y) // 12)])
    thin = axes.contour(fine_x, fine_y, logs, np.log(MARKS), colors="#444444", linewidths=0.6,
                        linestyles="solid")  # fmt: skip
    for label in axes.clabel(thin, fmt=lambda v: f"{np.exp(v):.3g}", fontsize=7.5):
        label.set_path_effects([withStroke(linewidth=2.0, foreground="white", alpha=0.6)])
    _frontier(axes, y, found, ends)
    if logs.min() < 0 < logs.max():
        axes.contour(fine_x, fine_y, logs, [0.0], colors="black", linewidths=1.8)
    axes.grid(False)
    axes.set(xlim=ends, ylim=(y[0], y[-1]))
    _bar(figure, axes, drawn, rows[0][1])
    setup = rows[0][1]
    place = " ".join(w for w in setup.place.split() if not w.startswith(f"{y_name}="))
    titled(figure, axes, [" · ".join(filter(None, (setup.device, setup.clock, place)))])
    return figure


def _steps(low: float, high: float, straight: bool) -> np.ndarray:
    return np.linspace(low, high, FINE) if straight else np.geomspace(low, high, FINE)


def _plane(fine_x, fine_y, y, found, straight: tuple[bool, bool]) -> np.ndarray:
    """Log ratios [FINE, FINE], straight between points along x, then between lines along y."""
    scale_x, scale_y = (np.asarray if s else np.log for s in straight)
    along_x = [np.interp(scale_x(fine_x), scale_x(f.x), np.log([p.value for p in f.points]))
               for f in found]  # fmt: skip
    columns = [np.interp(scale_y(fine_y), scale_y(y), column) for column in np.transpose(along_x)]
    return np.transpose(columns)


def _frontier(axes, y: np.ndarray, found: list, ends: tuple[float, float]) -> None:
    """Crossings with their intervals; a band where each of neighbouring lines has one."""
    rows = frontier(y, found)
    low, high = (np.array([end if getattr(r, side) is None else getattr(r, side) for r in rows])
                 for side, end in (("low", ends[0]), ("high", ends[1])))  # fmt: skip
    band = np.full((2, len(y)), np.nan)
    for i, value in enumerate(y):
        mine = [j for j, r in enumerate(rows) if r.y == value]
        if len(mine) == 1:
            band[:, i] = low[mine[0]], high[mine[0]]
    axes.fill_betweenx(y, *band, color="black", alpha=0.16, lw=0,
                       label="95 % interval of a crossing")  # fmt: skip
    sure = [(c.at, v) for v, f in zip(y, found, strict=True) for c in f.crossings
            if ends[0] <= c.at <= ends[1]]  # fmt: skip
    axes.plot(*np.reshape(sure, (-1, 2)).T, "o", color="black", ms=4.5, clip_on=False,
              label="crossing of a measured line")  # fmt: skip
    axes.plot([], [], color="black", lw=1.8, label="equal time")


def _bar(figure: Figure, axes, drawn, line: Line) -> None:
    bar = figure.colorbar(drawn, ax=axes, pad=0.02, aspect=28)
    log_ticks(bar.ax.yaxis, subs=(1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8))
    bar.outline.set_visible(False)
    bar.set_label(f"time of {line.b} over time of {line.a}\n← {line.b} is faster · "
                  f"{line.a} is faster →", fontsize=8.5)  # fmt: skip
