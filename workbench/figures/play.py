"""A figure of one law and one group, and widgets that draw it again at every choice."""

from collections.abc import Sequence
from functools import lru_cache
from io import StringIO

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from .. import selections
from .axes import COLORS, STYLE, plain, styled
from .overlap import ratio_axes

PLAYED = range(1, 17)  # groups to play with
SEEN = 192  # rows of the cache that a picture of a selection shows


@styled
def union_play(
    law: str, group: int, tokens: int = 512, context: int = 512, topk: int = 256
) -> Figure:
    """One law and one group, of a batch that is small enough to be drawn while a slider moves.

    Left: the union ratio of every group, the chosen one marked. Right: the rows of a mean union by
    how many tokens of its group read them, and one group's tokens over a part of the cache. Raises
    ValueError on an unknown law and a group outside [1, 16].
    """
    if not 1 <= group <= PLAYED[-1]:
        raise ValueError(f"group={group} is outside [1, {PLAYED[-1]}]")
    reads, found = _played(law, tokens, context, topk)
    ratio = found["union_ratio"][group]
    figure = Figure(figsize=(9.6, 3.9), layout="constrained")
    grid = figure.subplot_mosaic([["curve", "rows"], ["curve", "tokens"]], width_ratios=(1, 1.3))
    axes = grid["curve"]
    axes.plot(PLAYED, PLAYED, ls=":", color="#777777", label="no row shared")
    axes.plot(PLAYED, found["uniform_union_ratio"].values(), ls="--", color="#555555", lw=1.2,
              label="independent tokens")  # fmt: skip
    axes.plot(PLAYED, found["union_ratio"].values(), marker="o", ms=3, color=COLORS[0], label=law)
    axes.plot(group, ratio, "o", ms=9, mfc="none", mec=COLORS[3], mew=2)
    ratio_axes(axes, "union ratio")
    axes.set_ylim(0.95, 1.2 * max(found["uniform_union_ratio"].values()))
    axes.legend(loc="upper left", fontsize=8.5, frameon=True, edgecolor="none", framealpha=0.9)
    _members(grid["rows"], grid["tokens"], reads, group)
    figure.suptitle(f"{law}: a group of {group} reads {ratio:.2f} times the rows of one token, "
                    f"{1 - ratio / group:.0%} fewer gathers than one by one\n"
                    f"T {plain(tokens)} · S {plain(context + tokens)} · topk {plain(topk)}",
                    x=0.01, ha="left", fontsize=10.5)  # fmt: skip
    return figure


@lru_cache(maxsize=64)
def _played(law: str, tokens: int, context: int, topk: int) -> tuple[np.ndarray, dict]:
    """(which rows each token reads [tokens, rows] bool, statistics): a slider asks again."""
    s = selections.selection(law, [(tokens, context + tokens)], topk)
    reads = np.zeros((tokens, s.rows + 1), bool)  # the last column: no row
    reads[np.arange(tokens)[:, None], s.indices.numpy()] = True
    return reads[:, :-1], selections.statistics(s, PLAYED, (1,), ())


def _members(above, below, reads: np.ndarray, group: int) -> None:
    """Rows of a mean union by the number of their readers; one group's tokens and rows."""
    groups = len(reads) // group
    readers = reads[: groups * group].reshape(groups, group, -1).sum(1)  # [groups, rows]
    counts = np.bincount(readers.ravel(), minlength=group + 1)[1:] / groups
    shades = matplotlib.colormaps["viridis_r"](np.linspace(0.08, 1, group))
    above.bar(np.arange(1, group + 1), counts, color=shades, width=0.8)
    above.set(xlabel="tokens of the group that read a row", ylabel="rows of a union",
              xticks=np.arange(1, group + 1))  # fmt: skip
    above.grid(axis="x", visible=False)
    middle = groups // 2
    part = reads[middle * group : (middle + 1) * group]
    end = int(part.any(0).nonzero()[0].max(initial=SEEN - 1)) + 1
    shown = slice(max(0, end - SEEN), end)
    image = np.where(part[:, shown, None], shades[readers[middle, shown] - 1], 1.0)
    below.imshow(image, aspect="auto", interpolation="nearest",
                 extent=(shown.start, shown.stop, group, 0))  # fmt: skip
    below.set(xlabel="cache row, colored as above; white: not read", ylabel="token", yticks=[])
    below.grid(False)


def union_playground(laws: Sequence[str], law: str = "boundary"):
    """A widget for notebooks: `union_play` of the law, group and context that one chooses.

    Its figure is a value, not output that is caught: nbclient may miss the end of a cell that makes
    an `Output` widget, since it then sends on the socket that it waits for.
    """
    from ipywidgets import HTML, Dropdown, HBox, IntSlider, VBox

    controls = {
        "law": Dropdown(options=list(laws), value=law, description="law"),
        "group": IntSlider(value=4, min=PLAYED[0], max=PLAYED[-1], description="group"),
        "context": IntSlider(value=512, max=1536, step=256, description="rows before"),
    }
    shown = HTML()

    def draw(_=None) -> None:
        text = StringIO()
        with matplotlib.rc_context(STYLE):
            figure = union_play(**{name: control.value for name, control in controls.items()})
            figure.savefig(text, format="svg", metadata={"Date": None})
        shown.value = "<svg" + text.getvalue().partition("<svg")[2]  # without the header of a file

    for control in controls.values():
        control.observe(draw, "value")
    draw()
    return VBox([HBox(list(controls.values())), shown])
