"""Figure of compiled kernels: what each takes of a multiprocessor, and what its hot loop does."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from .axes import COLORS, legend, styled

# What instructions are for, by how their names begin; the first match counts
PURPOSES = {
    "tensor core": ("HMMA", "IMMA", "QMMA", "HGMMA", "QGMMA", "UTCHMMA", "UTCQMMA"),
    "copies to shared": ("LDGSTS", "UBLKCP", "UTMA"),
    "shared memory": ("LDSM", "STSM", "LDS", "STS", "LDTM", "STTM", "ATOMS"),
    "waiting": ("BAR", "SYNCS", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "WARPGROUP"),
    "global memory": ("LDG", "STG", "LD.", "ST.", "ATOM", "RED"),
    "local memory": ("LDL", "STL"),
    "special functions": ("MUFU",),
}
REST = "everything else"
FAULT = COLORS[3]
KB = 1024
SHADES = {**dict(zip(PURPOSES, (COLORS[i] for i in (4, 0, 9, 7, 2, 1, 8)), strict=True)),
          REST: (0.85, 0.85, 0.85)}  # fmt: skip


@styled
def compiled(rows: Sequence[dict]) -> Figure:
    """Registers, shared memory, warps a multiprocessor and the hot loop, by kernel and arch.

    `rows` are those of `compiled.table`. A line marks what a block may have of shared memory; a
    bar in red exceeds it, or spills. Raises ValueError where no row is a kernel.
    """
    rows = [row for row in rows if "kernel" in row]
    if not rows:
        raise ValueError("no kernel in these rows")
    figure = Figure(figsize=(12.5, 1.8 + 0.21 * len(rows) + 0.12 * _kernels(rows)),
                    layout="constrained")  # fmt: skip
    grid = figure.subplots(1, 4, sharey=True, width_ratios=(1, 1, 1, 1.6))
    places = _places(rows)
    colors = _shades(rows)
    for y, row in zip(places, rows, strict=True):
        color, limit = colors[row["arch"]], row["shared_limit"]
        spilled, large = _spills(row), row["shared_bytes"] > limit
        _bar(grid[0], y, row["registers"], _registers(row), FAULT if spilled else color)
        _bar(grid[1], y, row["shared_bytes"] / KB, "", FAULT if large else color)
        grid[1].vlines(limit / KB, y - 0.45, y + 0.45, color="#333333", linewidth=1)
        _say(grid[1], y, max(limit, row["shared_bytes"]) / KB,
             f"{row['shared_bytes'] / KB:.4g} of {limit / KB:g}")  # fmt: skip
        held = f"{row['warps_per_sm']} · {row['occupancy_limit']}"
        _bar(grid[2], y, row["warps_per_sm"], held, color)
        _loop(grid[3], y, row)
    titles = ("registers a thread", "KB shared memory a block", "warps a multiprocessor",
              "instructions of the hot loop")  # fmt: skip
    for axes, title in zip(grid, titles, strict=True):
        axes.set_title(title)
        axes.margins(x=0.16 if axes is grid[3] else 0.4)
        axes.grid(axis="y", visible=False)
    _name(grid[0], rows, places)
    ops = ", ".join(dict.fromkeys(row["op"] for row in rows))
    told = "black line: what a block may ask for · red: more than that, or undeclared spills"
    figure.suptitle(f"Compiled: {ops}\n{told}", x=0.01, ha="left", fontsize=10.5)
    legend(figure, grid[3:])
    return figure


def _kernels(rows: list[dict]) -> int:
    return len({(row["op"], row["variant"], row["kernel"]) for row in rows})


def _places(rows: list[dict]) -> list[float]:
    """Heights of the bars: those of one kernel stand together."""
    places, y, last = [], 0.0, None
    for row in sorted(rows, key=lambda row: _first(rows, row)):
        this = (row["op"], row["variant"], row["kernel"])
        y += 1.0 if last in (None, this) else 1.6
        last = this
        places.append(y)
    order = sorted(range(len(rows)), key=lambda i: _first(rows, rows[i]))
    found = dict(zip(order, places, strict=True))
    return [found[i] for i in range(len(rows))]


def _first(rows: list[dict], row: dict) -> int:
    names = ("op", "variant", "kernel")
    return next(i for i, r in enumerate(rows) if all(r[n] == row[n] for n in names))


def _shades(rows: list[dict]) -> dict[str, tuple[float, float, float]]:
    """A shade of one color for each architecture, later ones lighter."""
    known = sorted({row["arch"] for row in rows}, key=lambda arch: int(arch.split("_")[1]))
    steps = [0.45 + 0.4 * i / max(1, len(known) - 1) for i in range(len(known))]
    return {arch: (s - 0.25, s - 0.1, s + 0.1) for arch, s in zip(known, steps, strict=True)}


def _spills(row: dict) -> bool:
    """Whether it uses more local memory than its variant declares."""
    local = any((row["looped"] or {}).get(name) for name in PURPOSES["local memory"])
    return row["stack_bytes"] > row["stack_declared"] or (local and not row["stack_declared"])


def _registers(row: dict) -> str:
    spilled = row["spill_store_bytes"] + row["spill_load_bytes"]
    return f"{row['registers']}" + (f" · spills {spilled} B" if spilled else "")


def _bar(axes, y: float, value: float, text: str, color) -> None:
    axes.barh(y, value, height=0.9, color=color)
    _say(axes, y, value, text)


def _say(axes, y: float, x: float, text: str) -> None:
    axes.annotate(f" {text}", (x, y), va="center", fontsize=7.5)


def _loop(axes, y: float, row: dict) -> None:
    left, counts = 0, dict.fromkeys(SHADES, 0)
    for opcode, count in (row["hot_loop"] or row["instructions"] or {}).items():
        counts[purpose(opcode)] += count
    for what, count in counts.items():
        axes.barh(y, count, left=left, height=0.9, color=SHADES[what], label=what)
        left += count
    _say(axes, y, left, f"{left:,}" + ("" if row["hot_loop"] else " · no loop") if left else
         "not read")  # fmt: skip


def purpose(opcode: str) -> str:
    """What an instruction is for."""
    for what, names in PURPOSES.items():
        if any(opcode == n.rstrip(".") or (n[-1] != "." and opcode.startswith(n)) for n in names):
            return what
    return REST


def _name(axes, rows: list[dict], places: list[float]) -> None:
    labels, last = [], None
    for y, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0]):
        this = f"{row['variant']}: {row['kernel']}"
        labels.append((y, f"{this}  {row['arch']}" if this != last else row["arch"]))
        last = this
    axes.set_yticks([y for y, _ in labels], [text for _, text in labels])
    axes.invert_yaxis()
