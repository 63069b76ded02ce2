"""A profile as plain numbers: what `profile import` prints, and what a summary file holds."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from .attribution import Attributed, attribute, totals
from .cases import FLOOR, labelled, measured
from .clean import ABOUT
from .events import Events
from .kineto import GZIP
from .read import read
from .summary import busy, by_range

FORMAT = "workbench profile"
SCHEMA = 1


def report(events: Events, about: dict | None = None) -> dict:
    """Time by range, the three totals of each kind, devices and notes; and of each case its passes.

    `about` is what a collected profile says of itself (op, device, clock, cases, ...); it comes
    back with what was seen of each case.
    """
    cases = (about or {}).get("cases", [])
    found = attribute(events)
    said = dict(about or {})
    if cases:
        said["cases"] = [case | measured(found, case["case"]) for case in cases]
        said["floor"] = measured(found, FLOOR)["middle"]
    return {
        "format": FORMAT, "schema": SCHEMA, **said, "source": events.source,
        "graph_trace": events.graph_trace, "totals": _rows(totals(found)),
        "ranges": _rows(ranges(found, cases)), "devices": _rows(busy(events)),
        "notes": list(found.notes),
    }  # fmt: skip


def ranges(found: Attributed, cases: Iterable[dict] = ()) -> pd.DataFrame:
    """`by_range` with `cpu_ns`, how long the ranges of each row lasted on the host.

    Where there are several `cases`, their labels stand before the names.
    """
    all_ranges = labelled(found, cases)
    table = by_range(replace(found, events=replace(found.events, ranges=all_ranges)))
    lasted = (all_ranges["end_ns"] - all_ranges["start_ns"]).groupby(
        [all_ranges["process"], all_ranges["name"]], observed=True
    )
    cpu = lasted.sum().rename("cpu_ns").reset_index()
    keys = ["process", "name"]
    table = table.astype({"name": str}).merge(cpu.astype({"name": str}), on=keys, how="left")
    return table.sort_values(["inclusive_ns", "cpu_ns"], ascending=False, kind="stable",
                             ignore_index=True)  # fmt: skip


def _rows(table: pd.DataFrame) -> list[dict]:
    """Rows of plain numbers; what is not known is None."""
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return [{k: v.item() if hasattr(v, "item") else v for k, v in row.items()} for row in rows]


def beside(path: Path) -> Path:
    """Where it stands what the trace at `path` holds, if not in the trace itself."""
    return path.with_name(f"{path.name.split('.')[0]}.passes.json")


def about(path: Path, absent: dict | None = None) -> dict:
    """What a collected trace, or the file beside it, says of itself; `absent` where nothing does.

    Raises ValueError where nothing does and `absent` is None.
    """
    content = path.read_bytes()
    if content.startswith(GZIP):
        said = json.loads(gzip.decompress(content)).get(ABOUT)
    elif beside(path).is_file():
        said = json.loads(beside(path).read_bytes())
    else:
        said = None
    if isinstance(said, dict) and "cases" in said:
        return said
    if absent is None:
        raise ValueError(f"{path} does not say which cases it profiled, and there is no "
                         f"{beside(path).name} beside it")  # fmt: skip
    return absent


def summary(path: Path) -> dict:
    """The report of a trace or of a summary file, with its cases. Raises ValueError."""
    try:
        said = json.loads(path.read_bytes())
    except ValueError:  # also bytes that are no text
        said = None
    if isinstance(said, dict) and said.get("format") == FORMAT:
        if said.get("schema") != SCHEMA:
            raise ValueError(f"{path}: a summary of schema {said.get('schema')}, known is {SCHEMA}")
        if not said.get("cases"):
            raise ValueError(f"{path} has no cases: profile an operation")
        return said
    return report(read(path), about(path))
