"""dispatch regret: what a choice by a table, or by a fixed rule, loses over a mix of calls."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..arms import workloads_of
from ..fields import pairs
from . import options as o
from .dispatch_tables import BASE, Records, measured, told_apart
from .kernels import op_named

WORST = 5  # calls of a mix that are shown


def regret(
    file: Annotated[Path, typer.Argument(metavar="TABLE", help="A table of `dispatch`.")],
    mix: Annotated[Path, typer.Option(help="The calls, CSV or a JSON list: workload fields and a "
                                      "weight each.")],
    records: Records = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Choose without the table's entry of "
                                           "each very place, from its neighbours.")] = False,
    workload: o.WorkloadFields = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """What choosing by a table, or by the field's fixed rules, loses over a mix of calls.

    Against the fastest arm that the records have at each very place, of the table's device, Triton
    and clock. -w gives a field to calls that leave it open.
    """
    from .. import regret as r
    from ..models import dispatch_table as t

    try:
        table = t.read(file)
    except ValueError as error:
        raise ValueError(f"{file} is no dispatch table: {error}") from None
    op = op_named(table.op, module)
    base, *more = workloads_of(op, None, BASE.get(op.name, {}) | pairs(workload or []))
    if more:
        raise ValueError("-w has several values of a field: give each a row of the mix")
    calls = r.folded(r.read_mix(mix, base))
    setup = {"device": table.device, "triton": table.triton, "clock": table.clock}
    found = r.regret(op, table, measured(records, op, setup), calls, held_out)
    if json:
        o.print_json(_told(op, found))
    else:
        _print(op, found, [call.workload for call in calls])
    return 0


def _told(op, found) -> dict:
    lines = [{"name": line.name, "us": line.us, "lost": line.lost,
              "choices": [_row(c) for c in line.choices]} for line in found.lines]  # fmt: skip
    from ..models.dispatch_table import fields_of

    unmeasured = [fields_of(c.workload) | {"weight": c.weight} for c in found.unmeasured]
    return {"oracle_us": found.oracle_us, "lines": lines, "unmeasured": unmeasured}


def _row(choice) -> dict:
    return asdict(choice) | {"lost": choice.lost}


def _print(op, found, workloads: list) -> None:
    shared, own = told_apart(op, workloads)
    where = dict(zip(workloads, own, strict=True))
    table, *_ = found.lines
    rows = [["the fastest measured", f"{found.oracle_us:,.1f}", "", f"{len(table.choices)}"]]
    rows += [[line.name, f"{line.us:,.1f}", f"{line.lost:.1%}", f"{len(line.known)}"]
             if line.known else [line.name, "not measured", "", "0"]
             for line in found.lines]  # fmt: skip
    o.out.print(o.grid(shared, ["choice", "us a call", "lost", f"of {len(workloads)} calls"], rows))
    worst = sorted((c for c in table.known if c.lost > 0),
                   key=lambda c: c.weight * (c.oracle_us - c.us))[:WORST]  # fmt: skip
    if worst:
        o.out.print()
        o.out.print(o.grid("", ["worst calls", "choice", "fastest", "us", "its us", "lost"], [
            [where[c.workload], c.variant, c.oracle, f"{c.us:,.1f}", f"{c.oracle_us:,.1f}",
             f"{c.lost:.1%}"] for c in worst], 3))  # fmt: skip
    missing = [where[call.workload] for call in found.unmeasured]
    missing += [f"{c.variant} at {where[c.workload]}" for c in table.choices if c.us is None]
    for what in missing:
        o.out.print(f"no record measures {what}", markup=False, highlight=False)
