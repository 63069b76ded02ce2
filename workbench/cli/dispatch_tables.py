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


def measured(records, op, asked: dict[str, str | None]):
    """The table of the records of one device, Triton and clock: those asked for, or the only one.

    Raises ValueError on several of which none was asked for, and on what no record is of.
    """
    from ..evidence import newest
    from ..models.dispatch_records import table

    return table(newest(rows_of(records, op, asked)), op)


def rows_of(records, op, asked: dict[str, str | None]):
    """The records of `measured`, as `evidence.derived` has them. Raises ValueError as that does."""
    from ..evidence import derived
    from ..models.dispatch_records import SETUP
    from ..reader import load

    with o.waiting("reading records"):
        rows = load(*(records or [Path("traces/records")]))
        rows = rows[rows["op"] == choose("op in these records", op.name, rows["op"].unique())]
        for name, value in asked.items():
            known = sorted(rows[SETUP[name]].unique())
            if value is None and len(known) > 1:
                option = "device-name" if name == "device" else name
                raise ValueError(f"records of {', '.join(known)}: choose with --{option}")
            value = known[0] if value is None else choose(f"{name} of {op.name}", value, known)
            rows = rows[rows[SETUP[name]] == value]
        return derived(rows)


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
    head = [label(op, first.variant, first.config), f"{first.us:,.1f}"]
    if not others:
        return [*head, "-", "-", "-", "", f"{first.blocks}"]
    other = others[0]
    interval = "-" if other.low is None else f"{other.low:.2f}-{other.high:.2f}"
    return [*head, label(op, other.variant, other.config), f"{other.ratio:.2f}x", interval,
            other.verdict or "", f"{min(first.blocks, other.blocks)}"]  # fmt: skip


def label(op, variant: str, config: dict) -> str:
    """A variant with those of its config fields that are not the default."""
    known = op.variants.get(variant)
    default = fields_of(known.config) if known else {}
    return " ".join([variant, *(f"{k}={v}" for k, v in config.items() if default.get(k) != v)])


def fields_of(config) -> dict:
    """A config as a dict: that of a variant without one is empty."""
    return {} if config is None else dict(vars(config))
