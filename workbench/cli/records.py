"""show, figures: what is done with records."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o


def register(app: typer.Typer) -> None:
    app.command("show")(o.told(show))
    app.command("figures")(o.told(figures))


def telling(table) -> list[str]:
    """Workload fields in which the records of one op differ, or which are not the op's default."""
    from ..ops import OPS

    op = OPS.get(table["op"].iloc[0])
    default = vars(op.Workload()) if op else {}
    names = [c for c in table.columns if c.startswith("workload.")]
    names = [c for c in names if not table[c].isna().all()]
    return [
        c
        for c in names
        if table[c].map(str).nunique() > 1
        or table[c].iloc[0] != default.get(c.removeprefix("workload."))
    ]


def summary(table):
    """A rich table: a row a record, with its speed-up over the first timed arm of its workload."""
    rows = [row for _, part in table.groupby("op", sort=False) for row in _rows(part)]
    columns = ["op", "arm", "workload", "clock", "median us", "5-95 %", "n", "speed-up", "GB/s", ""]
    title = " / ".join(sorted(table["environment.device"].unique()))
    return o.grid(title, columns, rows, right=4)


def _rows(table) -> list[list[str]]:
    axes = telling(table)
    same = [*(c for c in table.columns if c.startswith("workload.")), "clock", "environment.device"]
    keys = table[same].apply(lambda row: " ".join(map(str, row)), axis=1)
    base = table[table["median_us"].notna()].groupby(keys)["median_us"].first()
    rows = []
    for (_, r), key in zip(table.iterrows(), keys, strict=True):
        place = " ".join(f"{c.removeprefix('workload.')}={_number(r[c])}" for c in axes)
        if r["median_us"] != r["median_us"]:
            why = (r["verdict.why"] or "")[:70]
            rows.append([r["op"], r["arm"], place, r["verdict.status"], *"-----", why])
            continue
        rows.append([
            r["op"], r["arm"], place, r["clock"], f"{r['median_us']:,.1f}",
            f"{r['low_us']:,.1f}-{r['high_us']:,.1f}", len(r["samples_us"]),
            f"{base[key] / r['median_us']:.2f}x", f"{r['gb_per_s']:,.1f}", " ".join(r["flags"]),
        ])  # fmt: skip
    return rows


def _number(value) -> str:
    """A workload field as it was given: pandas makes a float of a column with gaps."""
    if value is None or value != value:
        return "none"
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


def show(
    file: Annotated[list[Path], typer.Argument(help="Record files, or folders of them.")],
    op: Annotated[str | None, typer.Option(help="Only this op.")] = None,
    json: o.AsJson = False,
) -> int:
    """Print records: status, median, spread, speed-up over the first arm of the same workload."""
    from .. import record
    from ..fields import choose

    table = record.load(*file)
    if op is not None:
        table = table[table["op"] == choose("op in these records", op, table["op"].unique())]
    if json:
        print(table.drop(columns="samples_us").to_json(orient="records", indent=1))
    else:
        o.out.print(summary(table))
    return 0


def figures(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders. Default: traces/records.")
    ] = None,
    to: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path("figures"),
    json: o.AsJson = False,
) -> int:
    """Draw every figure that the records allow, one set a device and clock."""
    from .. import figures as f
    from .. import record

    with o.waiting("drawing"):
        made = f.draw_all(record.load(*(records or [Path("traces/records")])), to)
    if json:
        o.print_json([str(path) for path in made])
    else:
        for path in made:
            o.out.print(str(path), highlight=False)
    if not made:
        raise ValueError("these records hold nothing that a figure shows")
    return 0
