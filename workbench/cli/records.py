"""show, figures: what is done with records."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o


def register(app: typer.Typer) -> None:
    app.command("show")(o.told(show))
    app.command("figures")(o.told(figures))


def summary(table):
    """A rich table: a row for each case and arm, with its speed-up over the case's first arm."""
    from ..evidence import CASE, pooled

    table = pooled(table)
    timed = table["median_us"].notna()
    base = table[timed].groupby(CASE, dropna=False)["median_us"].first()
    rows = []
    for _, r in table.iterrows():
        if r["median_us"] != r["median_us"]:
            why = (r["verdict.why"] or "")[:70]
            rows.append([r["op"], r["arm"], r["place"] or "default", r["verdict.status"],
                         *"-------", why])  # fmt: skip
            continue
        share = r["roofline_share"]
        floor = f"{share:.0%} {r['roofline_limit'].replace('_', ' ')}" if share == share else "-"
        rows.append([
            r["op"], r["arm"], r["place"] or "default", r["clock"], f"{r['median_us']:,.1f}",
            f"{r['low_us']:,.1f}-{r['high_us']:,.1f}", int(r["samples"]), int(r["blocks"]),
            f"{base[tuple(r[c] for c in CASE)] / r['median_us']:.2f}x", f"{r['gb_per_s']:,.1f}",
            floor, ", ".join(dict.fromkeys(f.split(":")[0] for f in r["flags"])),
        ])  # fmt: skip
    columns = ["op", "arm", "workload", "clock", "median us", "5-95 %", "n", "blocks", "speed-up",
               "GB/s", "of floor", ""]  # fmt: skip
    title = " / ".join(sorted(table["environment.device"].unique()))
    return o.grid(title, columns, rows, right=4)


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
    """Draw every figure that the records allow, one set a device and clock; and every claim's."""
    from .. import figures as f
    from ..evidence import load

    files = records or sorted(Path("traces/records").glob("*/*.jsonl"))
    with o.waiting("drawing"):
        made = f.draw_all(load(*files), to)
        if not records:
            made += _claims(to)
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
    for path in sorted(Path("claims").glob("*.*.json")):
        name, device = path.name.removesuffix(".json").split(".", 1)
        claim = claims.read_claim(path.with_name(f"{name}.yaml"))
        folder = Path("traces/records") / device
        rows = claims.named(claims.read_result(path), record.rows(folder))
        op = registry()[claim.op]
        figure = (f.ratio_line(claims.line_of(claim, op, rows), claim.question) if claim.axis
                  else f.forest(claims.cases_of(claim, op, rows), claim.question))  # fmt: skip
        made.append(f.save(figure, f"claim_{name}_{device}", to))
    return made
