"""More points where a crossing is still wide, measured like those that are there."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from . import record, study
from .arms import Arm, arms_of
from .comparison import arm_in, compare_arms, lines
from .evidence import derived
from .models.crossover import next_point
from .modules import registry
from .op import Op

MOST = 24  # points that are added in one go


def refined(
    paths: list[Path], names: tuple[str, str], axis: str, clock: str | None, resolution: float,
    report: Callable[[str], None],
) -> int:  # fmt: skip
    """Add points of arms `names` to the one file of `paths` until each crossing is narrow.

    Everything but the axis is as in the file's records of its first line, on this machine. Returns
    how many points were added. Raises ValueError where there are several files or lines, or the
    axis is no workload field.
    """
    found = record.files(*paths)
    if len(found) != 1:
        raise ValueError(f"--refine adds to one file of records, here are {len(found)}")
    path = found[0]
    op = registry()[record.read(path)[0]["op"]]
    known = [f.name for f in fields(op.Workload)]
    if axis not in known:
        raise ValueError(f"--refine moves a workload field, {axis!r} is none of {op.name}: "
                         f"{', '.join(known)}")  # fmt: skip
    added = 0
    while added < MOST:
        rows = [r for r in record.read(path) if r["op"] == op.name and clock in (None, r["clock"])]
        table = derived(record.table(rows))
        several = list(lines(table, *names, axis))
        if len(several) != 1:
            raise ValueError(f"--refine follows one line, these records hold {len(several)}")
        line = several[0]
        typed = type(getattr(op.Workload(), axis) or 0)
        point = next_point(line.found, line.found.x, resolution, whole=typed is int)
        if point is None:
            break
        report(f"{axis}={point:g}")
        like = _like(rows, table, compare_arms(table, *names)[0])
        w = op.Workload(**like["workload"] | {axis: typed(point)})
        arms = [_arm(op, table, arm_in(table, name)) for name in names]
        blocks = max(c.ratio.blocks for c in line.cases)
        list(study.run(arms, [w], clocks=[line.clock], blocks=blocks, to=path))
        added += 1
    return added


def _like(rows: list[dict], table, case) -> dict:
    at = table.index[(table["place"] == case.place) & (table["clock"] == case.clock)][0]
    return rows[at]


def _arm(op: Op, table, label: str) -> Arm:
    """The arm of the records that the table calls `label`, with the config they asked for."""
    row = table[table["arm"] == label].iloc[0]
    config = op.variants[row["variant"]].config
    names = [f.name for f in fields(config)] if config is not None else []
    asked = {n: row[f"config_asked.{n}"] for n in names}
    (arm,) = arms_of(op, [row["variant"]], asked)
    return arm
