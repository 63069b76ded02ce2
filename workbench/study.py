"""The data flow in one place: workload, variant, gate, clock, record. A failure is a record too."""

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import record
from .arms import Arm
from .bench import Bench, Checked, Report, gate_says
from .fields import choose
from .isolate import Worker
from .machine import Environment, resolve_device
from .op import Op, Workload
from .record import Measurement
from .timing import CLOCKS, Clock

LIMIT_S = 120.0  # for each step of a variant: one check, or one sample with its compilation
BUDGET_S = 2.0  # of samples for each arm; a slow arm gets fewer samples, but at least 5
PRECISION = 0.002  # of a median, at which an arm has samples enough
BLOCKS = 5  # processes of a comparison that may be published


def check(
    arms: Iterable[Arm],
    workloads: Iterable[Workload],
    *,
    device: str = "auto",
    limit_s: float = LIMIT_S,
    modules: tuple[str, ...] = (),
    report: Report = lambda what: None,
) -> Iterator[tuple[Workload, Checked]]:
    """Send every arm through the gate on every workload, in a child process with a time limit."""
    arms = list(arms)
    op = _one_op(arms)
    with Worker(resolve_device(device), modules) as worker:
        for w in workloads:
            for arm in arms:
                report(arm.label)
                yield w, gate_says(worker, op, arm, w, limit_s)


def run(
    arms: Iterable[Arm],
    workloads: Iterable[Workload],
    *,
    clocks: Iterable[str],
    device: str = "auto",
    blocks: int = 1,
    repeats: int | None = None,
    budget_s: float = BUDGET_S,
    precision: float = PRECISION,
    limit_s: float = LIMIT_S,
    modules: tuple[str, ...] = (),
    to: Path | None = None,
    report: Report = lambda what: None,
) -> Iterator[Measurement]:
    """Measure every arm of one op on every workload; yield each record, appended to `to` if given.

    Only arms that passed the gate on a workload are timed on it, by each clock. A block is a fresh
    process that takes turns between all arms, the first one twice (A/A) and an empty kernel; what
    passed the gate in the first block is known in the others by the digest of its answer. A failure
    is recorded once, by the first block that meets it. Raises ValueError on a clock or device that
    cannot be had, before anything runs, and OSError where `to` cannot be written.
    """
    arms, workloads = list(arms), list(workloads)
    op = _one_op(arms)
    device = resolve_device(device)
    clocks = [_clock(name, device) for name in clocks]
    if blocks < 1:
        raise ValueError(f"blocks={blocks} is below 1")
    if to is not None:
        record.append(to)  # a file that cannot be written is found before anything runs
    plan = {"repeats": repeats, "budget_s": budget_s, "precision": precision}
    study, gated, told = uuid.uuid4().hex[:12], {}, {}
    for block in range(blocks):
        with Worker(device, modules) as worker:
            bench = Bench(worker, op, clocks, plan, limit_s, report)
            environment = Environment(**worker.start())
            for w in workloads:
                for m in bench.measure(arms, w, gated, told, block):
                    m = Measurement(**m, study=study, block=block, environment=environment)
                    if to is not None:
                        record.append(to, m)
                    yield m


def _clock(name: str, device: str) -> Clock:
    clock = CLOCKS[choose("clock", name, CLOCKS)]
    if clock.needs_gpu and device == "cpu":
        raise ValueError(f"clock {name!r} needs a GPU, device is 'cpu': use wall_clock")
    return clock


def _one_op(arms: list[Arm]) -> Op:
    ops = {arm.variant.op.name: arm.variant.op for arm in arms}
    if len(ops) != 1:
        raise ValueError(f"a study has the variants of one op, not of {len(ops)}: {list(ops)}")
    return next(iter(ops.values()))
