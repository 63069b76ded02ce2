"""More points where a crossing is still wide, measured like those that are there."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from . import record, study
from .arms import Arm, arms_of
from .comparison import Line, arm_in, lines
from .evidence import derived
from .fields import choose
from .machine import environment, resolve_device
from .models.crossover import next_point
from .modules import registry
from .op import Op

MOST = 24  # points that are added in one go


def refined(
    paths: list[Path], names: tuple[str, str], axis: str, clock: str | None, resolution: float,
    report: Callable[[str], None], modules: tuple[str, ...] = (),
) -> int:  # fmt: skip
    """Add points of arms `names` to the one file of `paths` until each crossing is narrow.

    Everything but the axis is as in the file's records of its first line, on this machine. Returns
    how many points were added. Raises ValueError where there are several files or lines, the axis
    is no workload field, or the records are of another device.
    """
    found = record.files(*paths)
    if len(found) != 1:
        raise ValueError(f"--refine adds to one file of records, here are {len(found)}")
    path = found[0]
    kept = record.read(path)
    ops, known = registry(modules), dict.fromkeys(r["op"] for r in kept)
    if len(known) != 1:
        raise ValueError(f"--refine measures one op, {path} holds {', '.join(known) or 'none'}")
    op = ops[choose("op", *known, ops)]
    if clock is not None:
        choose("clock in these records", clock, dict.fromkeys(r["clock"] for r in kept))
    known = [f.name for f in fields(op.Workload)]
    if axis not in known:
        raise ValueError(f"--refine moves a workload field, {axis!r} is none of {op.name}: "
                         f"{', '.join(known)}")  # fmt: skip
    here = environment(resolve_device("auto")).device
    typed = type(getattr(op.Workload(), axis) or 0)
    taken: list[float] = []
    while len(taken) < MOST:
        rows = [r for r in record.read(path) if clock in (None, r["clock"])]
        table = derived(record.table(rows))
        line = _one_line(table, names, axis, here)
        point = next_point(line.found, taken, resolution, whole=typed is int)
        if point is None:
            break
        report(f"{axis}={point:g}")
        at = table["place"].eq(line.cases[0].place) & table["clock"].eq(line.clock)
        like = rows[table.index[at][0]]
        w = op.Workload(**like["workload"] | {axis: typed(point)})
        arms = [_arm(op, rows[table.index[table["arm"] == arm_in(table, n)][0]]) for n in names]
        blocks = max(c.ratio.blocks for c in line.cases)
        list(study.run(arms, [w], clocks=[line.clock], blocks=blocks, modules=modules,
                       to=path))  # fmt: skip
        taken.append(point)
    return len(taken)


def _one_line(table, names: tuple[str, str], axis: str, here: str) -> Line:
    found = list(lines(table, *names, axis))
    if len(found) != 1:
        raise ValueError(f"--refine follows one line, these records hold {len(found)}")
    if found[0].device != here:
        raise ValueError(f"--refine measures here, on {here}: these records are of "
                         f"{found[0].device}")  # fmt: skip
    return found[0]


def _arm(op: Op, row: dict) -> Arm:
    """The arm of a record, with the config that it asked for."""
    config = op.variants[choose(f"variant of {op.name}", row["variant"], op.variants)].config
    names = [f.name for f in fields(config)] if config is not None else []
    asked = {n: v for n, v in row["config_asked"].items() if n in names}
    (arm,) = arms_of(op, [row["variant"]], asked)
    return arm
