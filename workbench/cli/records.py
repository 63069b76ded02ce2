"""show, figures: what is done with records."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from . import options as o


def register(app: typer.Typer) -> None:
    app.command("show")(o.told(show))
    app.command("figures")(o.told(figures))


def summary(table):
    """A rich table for each op: a row for each case and arm, with its speed-up over the first arm.

    What all rows of an op share stands in its title.
    """
    from ..evidence import pooled

    table = pooled(table)
    return Group(*(_of_op(op, rows) for op, rows in table.groupby("op", sort=False)))


def _of_op(op: str, table):
    from ..evidence import CASE, told_apart

    fields = [c for c in table.columns if c.startswith("workload.")]
    fields = [c for c in fields if table[c].nunique() > 1 and table[c].dtype.kind in "if"]
    table = table.sort_values(fields, kind="stable") if fields else table
    shared, own = told_apart(list(table["place"]), op)
    base = table[table["median_us"].notna()].groupby(CASE, dropna=False)["median_us"].first()
    several = table["clock"].nunique() > 1, table["environment.device"].nunique() > 1
    rows, reasons = [], {}
    for (_, r), place in zip(table.iterrows(), own, strict=True):
        head = [r["arm"], place or "default",
                *[r["clock"]] * several[0], *[r["environment.device"]] * several[1]]  # fmt: skip
        if r["median_us"] != r["median_us"]:
            mark = reasons.setdefault(r["verdict.why"] or "", len(reasons) + 1)
            rows.append([*head, f"{r['verdict.status']} [{mark}]", *[""] * 5])
            continue
        share = r["roofline_share"]
        floor = f"{share:.0%} {r['roofline_limit'].replace('_', ' ')}" if share == share else ""
        rows.append([
            *head, f"{r['median_us']:,.1f}", f"{r['low_us']:,.1f}-{r['high_us']:,.1f}",
            int(r["blocks"]), f"{base[tuple(r[c] for c in CASE)] / r['median_us']:.2f}x", floor,
            ", ".join(dict.fromkeys(f.split(":")[0] for f in r["flags"])),
        ])  # fmt: skip
    columns = ["arm", "workload", *["clock"] * several[0], *["device"] * several[1], "median us",
               "5-95 %", "blocks", "speed-up", "of floor", ""]  # fmt: skip
    title = [op, *table["environment.device"].unique()[: 1 - several[1]],
             *table["clock"].unique()[: 1 - several[0]], shared]  # fmt: skip
    grid = o.grid(" · ".join(filter(None, title)), columns, rows, right=columns.index("median us"))
    told = (Text(f"[{mark}] {why}", "dim") for why, mark in reasons.items())
    return Group(grid, *told, "")


def show(
    file: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    op: Annotated[str | None, typer.Option(help="Only this op.")] = None,
    json: o.AsJson = False,
) -> int:
    """Print records: status, median, spread, speed-up over the first arm of the same workload."""
    from ..evidence import load
    from ..fields import choose

    table = load(*file)
    if op is not None:
        table = table[table["op"] == choose("op in these records", op, table["op"].unique())]
    if json:
        print(table.to_json(orient="records", indent=1))
    else:
        o.out.print(summary(table))
    return 0


def figures(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders. Default: those of "
                                          "traces/records/DEVICE, and the claims.")
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    json: o.AsJson = False,
) -> int:
    """Draw every figure that the records allow, one set a device and clock.

    Without files, those of claims, of compiled kernels and of rounding, too.
    """
    from .. import figures as f
    from ..evidence import load
    from ..record import found

    files = records or sorted(found("traces/records").glob("*/*.jsonl"))
    with o.waiting("drawing"):
        made = f.draw_all(load(*files), to)
        if not records:
            made += f.draw_computed(to) + _claims(to)
    if json:
        o.print_json([str(path) for path in made])
    else:
        for path in made:
            o.out.print(str(path), highlight=False)
    if not made:
        raise ValueError("these records hold nothing that a figure shows")
    return 0


def _claims(to: Path) -> list[Path]:
    """A figure of each result of a claim, from the very records that it names."""
    from .. import claims, record
    from .. import figures as f
    from ..modules import registry

    made = []
    for path in sorted(record.found("claims").glob("*.*.json")):
        name, device = path.name.removesuffix(".json").split(".", 1)
        claim = claims.read_claim(path.with_name(f"{name}.yaml"))
        folder = record.found(Path("traces/records") / device)
        rows = claims.named(claims.read_result(path), record.rows(folder))
        op = registry()[claim.op]
        figure = (f.ratio_line(claims.line_of(claim, op, rows), claim.question) if claim.axis
                  else f.forest(claims.cases_of(claim, op, rows), claim.question))  # fmt: skip
        made.append(f.save(figure, f"claim_{name}_{device}", to))
    return made
