"""What the commands of `dispatch` read and print alike."""

from pathlib import Path
from typing import Annotated

import typer

from ..fields import choose
from . import options as o

# What a call is planned and measured as where its fields do not say: an indexer names rows in no
# order, and so do the records
BASE = {"sparse_decode": {"padding": "mixed"}}

Records = Annotated[
    list[Path] | None, typer.Argument(help="Record files or folders. Default: traces/records.")
]
OfOp = Annotated[str, typer.Option("--op", help="Of which operation.")]
Clock = Annotated[str, typer.Option(help="Of which clock.")]
DeviceName = Annotated[str | None, typer.Option("--device-name", help="Of which device. Default: "
                                                "the only one.")]  # fmt: skip
Triton = Annotated[str | None, typer.Option(help="Of which version. Default: the only one.")]
OfVariants = Annotated[list[str] | None, typer.Option("--variant", help="Only this one; repeat for "
                                                      "several.")]  # fmt: skip


def measured(records, op, asked: dict[str, str | None]):
    """The table of the records of one device, Triton and clock: those asked for, or the only one.

    Raises ValueError on several of which none was asked for, and on what no record is of.
    """
    from ..evidence import newest
    from ..models.dispatch_records import table

    return table(newest(rows_of(records, op, asked)), op)


def rows_of(records, op, asked: dict[str, str | None]):
    """The records of `measured`, as `evidence.derived` has them. Raises ValueError as that does.

    Odd ones are left out, in a line on standard error, as long as others are left.
    """
    from ..evidence import derived
    from ..models.dispatch_records import SETUP
    from ..reader import load

    with o.waiting("reading records"):
        rows = load(*(records or [Path("traces/records")]))
        rows = rows[rows["op"] == choose("op in these records", op.name, rows["op"].unique())]
        rows = _sound(rows).infer_objects()  # one odd value makes objects of a column of numbers
        for name, value in asked.items():
            known = sorted(rows[SETUP[name]].unique())
            if value is None and len(known) > 1:
                option = "device-name" if name == "device" else name
                raise ValueError(f"records of {', '.join(known)}: choose with --{option}")
            value = known[0] if value is None else choose(f"{name} of {op.name}", value, known)
            rows = rows[rows[SETUP[name]] == value]
        return derived(rows)


def _sound(rows):
    """The records without those of `_faults`, which one line counts, with the first one's fault.

    Raises ValueError with that where no other record is left.
    """
    faults = _faults(rows)
    if not faults:
        return rows
    first = next(at for at in rows.index if at in faults)
    if len(faults) == len(rows):
        raise ValueError(faults[first])
    o.fail(f"left out {len(faults)} of {len(rows)} records, the first in {rows['file'][first]}: "
           f"{faults[first]}")  # fmt: skip
    return rows.drop(index=list(faults))


def _faults(rows) -> dict:
    """What is wrong, with the value, of records that do not say what tables are told apart by.

    By their number in the index of `rows`.
    """
    from ..columns import column
    from ..models.dispatch_records import SETUP

    found = {}
    for name in (*SETUP.values(), *(f"environment.{n}" for n in ("torch", "capability"))):
        for at, value in column(rows, name).items():
            if not isinstance(value, str):
                said = "missing or null" if value is None or value != value else f"{value!r:.40}"
                why = f"{name} of a record of {rows['op'][at]} is {said}, no text"
                found.setdefault(at, why)
    for name in rows.columns[rows.columns.str.match(r"(workload|config(_asked)?|environment)\.")]:
        count = name in ("environment.l2_bytes", "environment.multiprocessors")
        for at, value in rows[name].items():
            if isinstance(value, (list, str) if count else list):
                found.setdefault(at, f"{name} of a record is {value!r:.40}, no single value")
    return found


def calibrations(records, op, asked, variants):
    """(records, sweeps, calibrations) of one setup. Raises ValueError where none can be fitted."""
    from ..columns import column
    from ..evidence import ceilings_of, pooled
    from ..models import splits as s

    rows = rows_of(records, op, asked)
    found = s.sweeps(pooled(rows), op)
    known = dict.fromkeys(sweep.variant for sweep in found)
    for name in variants or ():
        choose(f"variant with a {s.COUNT} in these records", name, known)
    found = [sweep for sweep in found if sweep.variant in (variants or known)]
    copy = ceilings_of(rows, rows["environment.device"].iloc[0]).copy_gb_per_s
    counts = column(rows, "environment.multiprocessors").dropna()  # of one device
    if counts.empty:
        raise ValueError("environment.multiprocessors of a record is missing or null")
    made = s.calibrated(found, int(counts.iloc[0]), s.merge_of(rows, copy))
    if all(c.fit is None for c in made):
        raise ValueError(made[0].why)
    return rows, found, made


def grid(op, found):
    """A row for each place of a table: its fastest arm, the next one, how sure that is."""
    shared, own = told_apart(op, [e.workload for e in found.entries])
    rows = [[where, *_fastest(op, e.arms)] for where, e in zip(own, found.entries, strict=True)]
    title = [op.name, found.device, found.clock, f"Triton {found.triton}", shared]
    columns = ["workload", "fastest", "us", "next", "its time", "95 % interval", "", "blocks"]
    return o.grid(" · ".join(filter(None, title)), columns, rows, 2)


def told_apart(op, workloads) -> tuple[str, list[str]]:
    """(what these workloads share, what tells each from the others), where it is not the default.
    """
    from ..dispatch import place
    from ..evidence import told_apart as told

    shared, own = told([place(op, w) for w in workloads], op.name)
    return shared, [where or "default" for where in own]


def _fastest(op, arms) -> list[str]:
    first, *others = arms
    head = [named(op, first.variant, first.config), f"{first.us:,.1f}"]
    if not others:
        return [*head, "-", "-", "-", "", f"{first.blocks}"]
    other = others[0]
    interval = "-" if other.low is None else f"{other.low:.2f}-{other.high:.2f}"
    return [*head, named(op, other.variant, other.config), f"{other.ratio:.2f}x", interval,
            other.verdict or "", f"{min(first.blocks, other.blocks)}"]  # fmt: skip


def named(op, variant: str, config: dict) -> str:
    """A variant with those of its config fields that are not the default."""
    from ..models.dispatch_table import fields_of, label

    known = op.variants.get(variant)
    return label(variant, config, fields_of(known.config) if known else {})
