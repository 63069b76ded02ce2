"""Figure of what 8 bits cost: the error of attention beside float64, by what is rounded."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from ..models.quantised_error import ARITHMETICS, Error
from .axes import COLORS, MARKERS, legend, plain, styled

PUBLISHED = {"fp8 kernel": 0.99975, "bf16 kernel": 0.999996}  # cosines of seed 003
TINY = 1e-9  # of 1 - cosine


@styled
def rounding(found: Sequence[Error]) -> Figure:
    """1 - cosine against float64, along the spread of the scores and along the selected rows.

    Left: errors of the topk that most have; right: those of the spread that most have.
    Dotted: what was published of two kernels on inputs of their own. Raises ValueError on none.
    """
    if not found:
        raise ValueError("no error to draw")
    figure = Figure(figsize=(10.4, 5.4), layout="constrained")
    grid = figure.subplots(1, 2, sharey=True)
    topk = _most([e.topk for e in found])
    spread = _most([round(e.spread, 1) for e in found])
    parts = ([(e.spread, e) for e in found if e.topk == topk],
             [(e.topk, e) for e in found if abs(e.spread - spread) < 0.1 * spread])  # fmt: skip
    titles = (f"topk {topk:,}", f"scores with a standard deviation of {spread:g}")
    names = ("standard deviation of the scores (natural units)", "selected rows (topk)")
    for axes, points, title, name in zip(grid, parts, titles, names, strict=True):
        _curves(axes, points)
        axes.set(xscale="log", yscale="log", title=title, xlabel=name)
        axes.xaxis.set_major_locator(FixedLocator(sorted({at for at, _ in points})))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(_number))
    for name, cosine in PUBLISHED.items():
        grid[1].annotate(f"published, {name}: cosine {cosine:g}", (0.5, 1 - cosine), (0, 3),
                         xycoords=("axes fraction", "data"), textcoords="offset points",
                         fontsize=8, ha="center", color="#555555")  # fmt: skip
    grid[0].set_ylabel("1 - cosine with the float64 answer")
    beside = grid[1].secondary_yaxis("right", functions=(_l2, _cosine))
    beside.yaxis.set_major_locator(FixedLocator([0.002, 0.005, 0.01, 0.02, 0.05]))
    beside.yaxis.set_minor_locator(NullLocator())
    beside.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.1%}"))
    beside.set_ylabel("as relative L2 error, (2 - 2 cosine) ** 0.5", fontsize=9)
    figure.suptitle("What rounding of operands costs, sums exact: computed on the CPU, no kernel "
                    f"ran\n{_said(found)}, the answer rounded to bf16; dotted: published of "
                    "others' kernels, on inputs of their own",
                    x=0.01, ha="left", fontsize=10.5)  # fmt: skip
    legend(figure, grid)
    return figure


def _said(found: Sequence[Error]) -> str:
    formats = dict.fromkeys(e.scale_format for e in found)
    return f"cache of e4m3 codes, scales {', '.join(formats)}"


def _l2(distance):
    return np.sqrt(2 * np.maximum(distance, 0))


def _cosine(l2):
    return np.square(l2) / 2


def _most(values: list) -> float:
    """The value that most have; the largest one of several."""
    return max(sorted(set(values), reverse=True), key=values.count)


def _curves(axes, points: list[tuple[float, Error]]) -> None:
    names = list(dict.fromkeys(e.arithmetic for _, e in points))
    for name in names:
        line = sorted((at, max(1 - e.cosine, TINY)) for at, e in points if e.arithmetic == name)
        place = list(ARITHMETICS).index(name) if name in ARITHMETICS else len(ARITHMETICS)
        # a second pass undoes what the weights' rounding cost: its curve lies on another one
        again = name in ARITHMETICS and ARITHMETICS[name].passes > 1
        wide = {"ls": "--", "mfc": "none", "ms": 9} if again else {"ms": 5}
        axes.plot(*np.array(line).T, marker=MARKERS[place], lw=1.4, color=COLORS[place],
                  label=name, **wide)  # fmt: skip
    for cosine in PUBLISHED.values():
        axes.axhline(1 - cosine, color="#777777", lw=1.1, ls=":")


def _number(value: float, _=None) -> str:
    return plain(value) if value >= 16 else f"{value:.2g}"
