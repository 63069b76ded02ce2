"""compare, crossover, regress, quality: what records say of one arm against another."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

Band = Annotated[float, typer.Option(min=0.0, help="Relative difference that nobody cares about.")]
Picture = Annotated[
    Path | None, typer.Option("--figure", metavar="FILE.svg", help="Draw it, too.")
]


def register(app: typer.Typer) -> None:
    app.command("compare")(o.told(compare))
    app.command("crossover")(o.told(crossover))
    app.command("regress")(o.told(regress))
    app.command("quality")(o.told(quality))


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
        sides = (base, new)
        if not all(Path(side).exists() for side in sides):
            from ..revisions import measured

            what = {"op": op, "variant": variant, "workload": workload, "config": config,
                    "clock": clock, "device": device}  # fmt: skip
            with o.progress(2 * blocks) as (advance, say):
                sides = measured(sides, what, blocks, to, lambda said: (advance(), say(said)))
            o.err.print(f"records in {to}", highlight=False)
        tables = [_clocked(load(Path(side)), clock) for side in sides]
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
    from ..models.ratio import geomean
    from ..record import plain

    mean = geomean(c.ratio.value for c in cases)
    if figure:
        from .. import figures as f

        f.save(f.forest(cases), figure.stem, figure.parent)
    if json:
        o.print_json(plain({"cases": [asdict(c) for c in cases], "geomean": asdict(mean)}))
        return
    rows = [
        [c.op, c.b if c.a == c.b else f"{c.b} / {c.a}", c.place or "default", c.clock,
         f"{c.a_us:,.1f}", f"{c.b_us:,.1f}", f"{c.ratio.value:.3f}",
         f"{c.ratio.low:.3f}-{c.ratio.high:.3f}" if c.ratio.low == c.ratio.low else "one block",
         f"±{c.noise:.2%}" if c.noise == c.noise else "-", c.verdict,
         ", ".join(dict.fromkeys(f.split(":")[0] for f in c.flags))]
        for c in cases
    ]  # fmt: skip
    columns = ["op", "arm", "workload", "clock", "a us", "b us", "b/a", "95 %", "A/A", "", "flags"]
    o.out.print(o.grid(" / ".join(sorted({c.device for c in cases})), columns, rows, right=4))
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
    from ..record import plain

    if refine:
        from ..refinement import refined

        with o.progress(24) as (advance, say):
            refined(records, (a, b), axis, clock, to_within, lambda t: (advance(), say(t)))
    found = list(lines(_clocked(load(*records), clock), a, b, axis))
    if figure:
        _draw(found, y, figure)
    if json:
        o.print_json(plain([{**asdict(line), "said": said(line.found, line.a, line.b, axis)}
                            for line in found]))  # fmt: skip
        return 0
    for line in found:
        noise = f", A/A ±{line.noise:.2%}" if line.noise == line.noise else ""
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
        rows = [(float(word.partition("=")[2]), line) for line in found
                for word in line.place.split() if word.startswith(f"{y}=")]  # fmt: skip
        f.save(f.ratio_map(rows, y), figure.stem, figure.parent)
        return
    for i, line in enumerate(found):
        name = figure.stem + (f"_{i + 1}" if len(found) > 1 else "")
        f.save(f.ratio_line(line), name, figure.parent)


def regress(
    base: Annotated[Path, typer.Argument(help="Records of the version to compare with.")],
    new: Annotated[Path, typer.Argument(help="Records of the version in question.")],
    relative: Annotated[float, typer.Option(min=0.0, help="Slowdown that is let through.")] = 0.03,
    absolute: Annotated[float, typer.Option(min=0.0, help="And microseconds of it.")] = 0.5,
    json: o.AsJson = False,
) -> int:
    """A gate for continuous integration: exit code 1 on a confirmed slowdown.

    Confirmed: the 95 % interval over process blocks lies above 1, and the slowdown is beyond both
    budgets. A case measured in one block can confirm nothing: that is said, and let through.
    """
    from .. import comparison
    from ..evidence import load
    from ..models.ratio import slowdown
    from ..record import plain

    cases = comparison.compare_files(load(base), load(new))
    budgets = {"relative": relative, "absolute_us": absolute}
    slow = [(c, said) for c in cases if (said := slowdown(c.ratio, c.a_us, **budgets))]
    blind = sum(c.ratio.blocks < 2 for c in cases)
    if json:
        o.print_json(plain({"slower": [{**asdict(c), "said": said} for c, said in slow],
                            "cases": len(cases), "one_block": blind}))  # fmt: skip
        return int(bool(slow))
    for c, said in slow:
        o.out.print(f"{c.op} {c.b} {c.place or 'default'} ({c.clock}): {said}", markup=False,
                    highlight=False)  # fmt: skip
    o.out.print(f"{len(slow)} of {len(cases)} cases are slower, confirmed", highlight=False)
    if blind:
        o.err.print(f"{blind} cases have one process block on a side and can confirm nothing: "
                    "measure with --blocks 5", highlight=False)  # fmt: skip
    return int(bool(slow))


def quality(
    a: Annotated[Path, typer.Argument(help="Outcomes of the control: CSV or JSON lines of item, "
                                      "correct.")],
    b: Annotated[Path, typer.Argument(help="Outcomes of the candidate, over the same items.")],
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Paired outcomes of two runs: the table, McNemar's exact p, an interval of the difference."""
    from ..models import quality as q

    found = q.paired(q.read_outcomes(a), q.read_outcomes(b))
    if json:
        o.print_json(asdict(found))
        return 0
    o.out.print(f"both right {found.both}, only A {found.only_a}, only B {found.only_b}, "
                f"both wrong {found.neither}: p = {found.p:.4g}", highlight=False)  # fmt: skip
    n = found.n
    o.out.print(f"B - A: {found.difference * n:+.0f} of {n} items, 95 % from "
                f"{found.low * n:+.0f} to {found.high * n:+.0f}", highlight=False)  # fmt: skip
    return 0
