"""Figure of the orientations as they are compiled for one architecture: what each one costs."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ..models.orientation import LOCAL, MOST, accounts
from ..ops import OPS
from .axes import COLORS, styled

KIB = 1024
FAULT = COLORS[3]
SHADES = ("#8fb8dd", "#2f6ea5", "#173f66")  # of few heads to many
TITLES = ("registers a thread", "local loads, stores in the loop", "KiB shared memory a block",
          "barriers for 64 cache rows", "warp instructions a cache row")  # fmt: skip
HIGH = 0.8  # of a variant's bars together


@styled
def orientations(rows: Sequence[Mapping], arch: str = "sm_120") -> Figure:
    """Registers, local memory, shared memory, barriers and instructions, by variant and H.

    `rows` are those of `compiled.table`. Lines mark what a thread or a block may have; red is
    beyond it, or local memory in the loop. Raises ValueError where no row is a kernel with products
    for `arch`.
    """
    rows = [r for r in rows if r["arch"] == arch and r.get("mma") and r.get("hot_loop")]
    if not rows:
        raise ValueError(f"no kernel with products for {arch} in these rows")
    order = list(OPS[rows[0]["op"]].variants)
    names = sorted({r["variant"] for r in rows}, key=lambda n: order.index(n.split(" ")[0]))
    heads = sorted({r["workload"]["heads"] for r in rows})
    figure = Figure(figsize=(13.2, 2.0 + 0.29 * len(names) * len(heads)), layout="constrained")
    grid = figure.subplots(1, len(TITLES), sharey=True)
    found = {(r["variant"], r["workload"]["heads"]): r for r in rows}
    of_row = {(a.variant, a.heads): a.instructions for a in accounts(rows) if a.arch == arch}
    for place in [(name, h) for name in names for h in heads]:
        shade = heads.index(place[1])
        y = names.index(place[0]) + HIGH * ((shade + 0.5) / len(heads) - 0.5)
        bars = _bars(found[place], of_row.get(place)) if place in found else [(None, None)] * 5
        for axes, bar in zip(grid, bars, strict=True):
            _bar(axes, y, *bar, SHADES[shade % len(SHADES)], HIGH / len(heads))
    _dress(grid, names, rows)
    shown = [Patch(color=SHADES[i % len(SHADES)], label=f"{h} heads") for i, h in enumerate(heads)]
    shown.append(Patch(color=FAULT, label="beyond the black line, or local memory in the loop"))
    figure.legend(handles=shown, loc="outside lower center", ncols=len(shown))
    figure.suptitle(f"fp8 prefill as compiled for {arch}, DeepSeek-V3.2's rows: every variant with "
                    "products for it\nblack line: what a thread or a block may have",
                    x=0.01, ha="left", fontsize=10.5)  # fmt: skip
    return figure


def _bars(r: Mapping, instructions: float | None) -> list[tuple[float | None, float | None]]:
    """(value, the most it may be) of a compiled kernel, in the order of TITLES."""
    loop, rows = r["hot_loop"], r["config"].get("block_k")
    barriers = 64 / rows * loop.get("BAR", 0) if rows else None
    return [(r["registers"], MOST), (sum(loop.get(name, 0) for name in LOCAL), 0),
            (r["shared_bytes"] / KIB, r["shared_limit"] / KIB), (barriers, None),
            (instructions, None)]  # fmt: skip


def _bar(axes, y: float, value, most, color, high: float) -> None:
    if value is None:
        axes.annotate(" –", (0, y), va="center", fontsize=8, color="#777777")
        return
    over = most is not None and value > most
    axes.barh(y, value, height=high * 0.92, color=FAULT if over else color)
    # a number that would stand on the line stands behind it
    at = max(value, most or 0) if value > 0.6 * (most or 0) else value
    axes.annotate(f" {value:,.4g}", (at, y), va="center", fontsize=8)


def _dress(grid, names: list[str], rows: Sequence[Mapping]) -> None:
    for axes, title in zip(grid, TITLES, strict=True):
        axes.set_title(title, fontsize=9.5)
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
        axes.grid(axis="y", visible=False)
    for axes, limit in ((grid[0], MOST), (grid[2], rows[0]["shared_limit"] / KIB)):
        axes.axvline(limit, color="#333333", lw=1)
    tiles = {r["variant"]: r["config"].get("block_k") for r in rows}
    told = [f"{n}\n{tiles[n]} rows a tile" if tiles[n] else n for n in names]
    grid[0].set_yticks(range(len(names)), told)
    grid[0].set_ylim(len(names) - 0.45, -0.55)
