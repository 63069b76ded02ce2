"""compare, crossover: what records say of one arm against another."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

Band = Annotated[float, typer.Option(min=0.0, help="Relative difference that nobody cares about.")]


def _svg(path: Path | None) -> Path | None:
    if path is not None and path.suffix != ".svg":
        raise typer.BadParameter(f"{path} does not end in .svg")
    return path


Picture = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE.svg", help="Draw it, too.", callback=_svg),
]


def register(app: typer.Typer) -> None:
    app.command("compare")(o.told(compare))
    app.command("crossover")(o.told(crossover))


def compare(
    base: Annotated[str, typer.Argument(help="Records, or a git revision (with --op).")],
    new: Annotated[str | None, typer.Argument(help="Records or a git revision; none: two arms "
                                              "of BASE, with -a and -b.")] = None,
    a: Annotated[str | None, typer.Option("-a", help="An arm, such as per_token.")] = None,
    b: Annotated[str | None, typer.Option("-b", help="An arm, such as 'union group=4'.")] = None,
    op: Annotated[str | None, typer.Option(help="For git revisions: the op to measure.")] = None,
    variant: o.Variants = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    clock: Annotated[str | None, typer.Option(help="Only this clock.")] = None,
    blocks: Annotated[int, typer.Option(min=2, help="For git revisions: processes each.")] = 5,
    to: Annotated[Path, typer.Option(help="For git revisions: folder of their records.")
                  ] = Path("runs/compare"),
    device: o.Device = "auto",
    band: Band = 0.005,
    figure: Picture = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """One file of records or git revision against another, arm by arm; or two arms of one file.

    Ratios are of medians over process blocks, with a 95 % interval: below 1, NEW (or -b) is faster.
    Two revisions are measured here, in turns, each in processes of its own.
    """
    from .. import comparison
    from ..evidence import load

    if (new is None) != (a is not None and b is not None):
        raise ValueError("name two files or revisions, or one file with both -a and -b")
    if new is None:
        table = _clocked(load(Path(base)), clock)
        cases = comparison.compare_arms(table, a, b, band)
    else:
        from ..revisions import WORKING_TREE, measured

        sides, study = (base, new), None
        if WORKING_TREE in sides or not all(Path(side).exists() for side in sides):
            what = {"op": op, "variant": variant, "workload": workload, "config": config,
                    "clock": clock, "device": device}  # fmt: skip
            with o.progress(2 * blocks) as (advance, say):
                sides, study = measured(sides, what, blocks, to, lambda t: (advance(), say(t)))
            o.err.print(f"records in {to}", highlight=False)
        tables = [_clocked(load(Path(side)), clock) for side in sides]
        if study is not None:  # the files may hold earlier ones
            tables = [t[t["study"] == study] for t in tables]
        cases = comparison.compare_files(*tables, band)
        sources = [set(t["environment.source"]) for t in tables]
        if sources[0] == sources[1] and len(sources[0]) == 1:
            o.err.print("both sides ran the same source: this is an A/A comparison")
    _show(cases, figure, json)
    return 0


def _clocked(table, clock: str | None):
    from ..fields import choose

    if clock is None:
        return table
    return table[table["clock"] == choose("clock in these records", clock, table["clock"].unique())]


def _show(cases: list, figure: Path | None, json: bool) -> None:
    from ..evidence import told_apart
    from ..models.ratio import as_share, geomean
    from ..record import plain

    mean = geomean(c.ratio.value for c in cases)
    if figure:
        from .. import figures as f

        _save(f.forest(cases), figure)
    if json:
        o.print_json(plain({"cases": [asdict(c) for c in cases], "geomean": asdict(mean)}))
        return
    devices = sorted({c.device for c in cases})
    places = {op: told_apart([c.place for c in cases if c.op == op], op)
              for op in dict.fromkeys(c.op for c in cases)}  # fmt: skip
    own = {op: iter(each) for op, (_, each) in places.items()}
    rows = [
        [*[c.device] * (len(devices) > 1), c.op, c.b if c.a == c.b else f"{c.b} / {c.a}",
         next(own[c.op]) or "default", c.clock, f"{c.a_us:,.1f}", f"{c.b_us:,.1f}",
         f"{c.ratio.value:.3f}",
         f"{c.ratio.low:.3f}-{c.ratio.high:.3f}" if c.ratio.low == c.ratio.low else "one block",
         f"±{as_share(c.noise):.2%}" if c.noise == c.noise else "-", c.verdict,
         ", ".join(dict.fromkeys(f.split(":")[0] for f in c.flags))]
        for c in cases
    ]  # fmt: skip
    columns = [*["device"] * (len(devices) > 1), "op", "arm", "workload", "clock", "a us", "b us",
               "b/a", "95 %", "A/A", "", "flags"]  # fmt: skip
    title = " · ".join([" / ".join(devices), *(s for s, _ in places.values() if s)])
    o.out.print(o.grid(title, columns, rows, right=columns.index("a us")))
    o.out.print(f"geometric mean {mean.value:.3f} of {mean.cases} cases: {mean.below} below 1, "
                f"{mean.above} above", highlight=False)  # fmt: skip


def crossover(
    records: Annotated[list[Path], typer.Argument(help="Record files or folders.")],
    a: Annotated[str, typer.Option("-a", help="An arm, such as per_token.")],
    b: Annotated[str, typer.Option("-b", help="The arm that may overtake it.")],
    axis: Annotated[str, typer.Option("-x", help="A workload field or statistic: tokens, ...")],
    y: Annotated[str | None, typer.Option("-y", help="A second field: a map of both.")] = None,
    clock: Annotated[str | None, typer.Option(help="Only this clock.")] = None,
    refine: Annotated[bool, typer.Option("--refine", help="Measure more points here, where a "
                                         "crossing is wide; they are added to RECORDS.")] = False,
    to_within: Annotated[float, typer.Option(min=0.001, help="high / low - 1 of a crossing that "
                                             "is narrow enough.")] = 0.1,
    module: o.Modules = None,
    figure: Picture = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Where b overtakes a along an axis, each crossing with a 95 % interval; or that it does not.

    One line for each device, clock and choice of the other workload fields.
    """
    from ..comparison import lines
    from ..evidence import load
    from ..flags import summed
    from ..models.crossover import said
    from ..models.ratio import as_share
    from ..record import plain

    if y is not None and figure is None:
        raise ValueError(f"-y {y} is of a map: name its file, with --figure")
    if refine:
        from ..refinement import refined

        with o.progress(24) as (advance, say):
            refined(records, (a, b), axis, clock, to_within, lambda t: (advance(), say(t)),
                    o.files(module))  # fmt: skip
    found = list(lines(_clocked(load(*records), clock), a, b, axis))
    if figure:
        _draw(found, y, figure)
    if json:
        o.print_json(plain([{**asdict(line), "said": said(line.found, line.a, line.b, axis)}
                            for line in found]))  # fmt: skip
        return 0
    for line in found:
        noise = f", A/A ±{as_share(line.noise):.2%}" if line.noise == line.noise else ""
        place = f" {line.place}" if line.place else ""
        o.out.print(f"{line.device} {line.clock}{place}: "
                    f"{said(line.found, line.a, line.b, axis)}{noise}", markup=False,
                    highlight=False)  # fmt: skip
        for flag in summed(line.flags):
            o.out.print(f"  flagged: {flag}", markup=False, highlight=False)
    return 0


def _draw(found: list, y: str | None, figure: Path) -> None:
    from .. import figures as f

    if y is not None:
        _save(f.ratio_map([(_field(line, y), line) for line in found], y), figure)
        return
    for i, line in enumerate(found, 1):
        _save(f.ratio_line(line), figure.with_stem(f"{figure.stem}_{i}" if len(found) > 1 else
                                                   figure.stem))  # fmt: skip


def _field(line, name: str) -> float:
    """The workload field `name` of a line: its place tells it, or it is the op's default."""
    from ..fields import choose
    from ..ops import OPS

    default = vars(OPS[line.cases[0].op].Workload()) if line.cases[0].op in OPS else {}
    known = default | dict(word.partition("=")[::2] for word in line.place.split())
    value = known[choose("workload field", name, known)]
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value} is no number, so no axis of a map") from None


def _save(drawn, path: Path) -> None:
    from ..figures import save

    o.err.print(str(save(drawn, path.stem, path.parent)), markup=False, highlight=False)
