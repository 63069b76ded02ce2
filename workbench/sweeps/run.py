"""Run the points of a sweep one after another; a point that finished before is not run again."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .notebook import NotebookFailed, execute, parameters
from .sweep import Sweep, point_id

JOURNAL = "points.journal"  # a line when a point starts and one when it ends


@dataclass(frozen=True)
class Point:
    """What became of one point."""

    id: str
    parameters: dict[str, Any]
    status: str  # "finished", "failed" or "kept" (it had finished before)
    notebook: Path  # the executed one
    why: str = ""


def finished(folder: Path) -> set[str]:
    """Ids of points whose last line in the journal says finished; a torn line says nothing."""
    path = folder / JOURNAL
    last = {}
    for line in path.read_bytes().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and {"id", "status"} <= row.keys():
            last[row["id"]] = row["status"]
    return {name for name, status in last.items() if status == "finished"}


def _note(folder: Path, **row) -> None:
    path = folder / JOURNAL
    torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size
    with path.open("a") as file:
        file.write(("\n" if torn else "") + json.dumps(row | {"at": datetime.now(UTC).isoformat()}))
        file.write("\n")


def run_sweep(sweep: Sweep, to: Path, say=lambda what: None) -> Iterator[Point]:
    """Run every point into `to`/<id>.ipynb; yield each as it ends. A failed one stops no other.

    A notebook's parameters `to` and `figures_to`, where it has them, become `to`/records.jsonl and
    `to`/figures, unless the sweep says otherwise. Raises ValueError before the
    first point on parameters that the notebook does not take, OSError where `to` cannot be written.
    """
    declared = parameters(sweep.notebook)
    places = {"to": str(to / "records.jsonl"), "figures_to": str(to / "figures")}
    points = [
        {k: v for k, v in places.items() if k in declared} | point for point in sweep.points()
    ]
    to.mkdir(parents=True, exist_ok=True)
    done = finished(to)
    for point in points:
        name = point_id(sweep.notebook, point)
        out = to / f"{name}.ipynb"
        say(f"{sweep.notebook.stem} {name[-10:]}")
        if name in done and out.exists():
            yield Point(name, point, "kept", out)
            continue
        _note(to, id=name, status="started", parameters=point)
        try:
            execute(sweep.notebook, out, point)
        except NotebookFailed as error:
            _note(to, id=name, status="failed", why=str(error))
            yield Point(name, point, "failed", out, str(error))
            continue
        _note(to, id=name, status="finished")
        yield Point(name, point, "finished", out)
