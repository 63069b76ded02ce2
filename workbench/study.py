"""The data flow in one place: workload, variant, gate, clock, record. A failure is a record too."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from . import record
from .fields import choose, expanded, replaced
from .isolate import Died, Worker
from .machine import Environment, resolve_device
from .op import Op, Variant, Verdict, Workload
from .record import Measurement
from .timing import CLOCKS, Clock

LIMIT_S = 120.0  # for each step of a variant: one check, or one sample with its compilation
BUDGET_S = 2.0  # of samples for each arm; a slow arm gets fewer samples, but at least 5
Report = Callable[[str], None]


@dataclass(frozen=True)
class Arm:
    """A variant with the config fields that a caller asks to differ from its default."""

    variant: Variant
    changes: tuple[tuple[str, object], ...] = ()

    @property
    def label(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.changes)
        return self.variant.name + (f" {said}" if said else "")

    @property
    def asked(self) -> dict:
        config = self.variant.config
        return (asdict(config) if config is not None else {}) | dict(self.changes)


def arms_of(op: Op, names: Iterable[str] = (), changes: dict | None = None) -> list[Arm]:
    """The arms of a study: variants by name (all where none is named), times the config changes.

    A value of `changes` may be a list or "2,4": one arm each. A variant whose config lacks a field
    runs without it. Raises ValueError on an unknown variant, a field that none has, a bad value.
    """
    names = list(names)
    kind = f"variant of {op.name}"
    chosen = [op.variants[choose(kind, name, op.variants)] for name in names or op.variants]
    fields_of = {v.name: [f.name for f in fields(v.config)] if v.config else [] for v in chosen}
    known = sorted({f for found in fields_of.values() for f in found})
    for name in changes or {}:
        choose("config field", name, known)
    arms = []
    for v in chosen:
        own = {k: x for k, x in (changes or {}).items() if k in fields_of[v.name]}
        for values in expanded(own):
            typed = asdict(replaced(v.config, values, f"config of {v.name}")) if values else {}
            arms.append(Arm(v, tuple((k, typed[k]) for k in values)))
    return list(dict.fromkeys(arms))


def workloads_of(op: Op, suite: str | None = None, changes: dict | None = None) -> list[Workload]:
    """The workloads of a suite, or the op's default one, with fields changed.

    A value of `changes` may be a list or "2048,4096": one workload each, repeats left out. Raises
    ValueError on an unknown suite or field, and on a value that the workload refuses.
    """
    base = (op.Workload(),) if suite is None else op.suites[choose("suite", suite, op.suites)]
    grid = expanded(changes or {})
    return list(dict.fromkeys(replaced(w, values, "workload") for values in grid for w in base))


@dataclass(frozen=True)
class Checked:
    """What the gate said of an arm, and the config that it ran."""

    arm: Arm
    verdict: Verdict
    config: dict
    flags: tuple[str, ...] = ()
    cost: dict | None = None  # of the question the variant answers; None where no inputs were made
    interpreted: bool = False  # its kernels ran in Triton's interpreter


def _check(worker: Worker, op: Op, arm: Arm, w: Workload, limit_s: float) -> Checked:
    task = {"do": "check", "op": op.name, "workload": asdict(w), "variant": arm.variant.name,
            "config": dict(arm.changes)}  # fmt: skip
    try:
        reply = worker.call(task, limit_s)
    except Died as death:
        status = "timeout" if death.timeout else "error"
        return Checked(arm, Verdict(status, why=str(death)), arm.asked)
    verdict = Verdict(**reply["verdict"])
    if verdict.status in ("incorrect", "error"):
        worker.stop()  # what a wrong kernel did to its process ends with it
    flags = (reply["note"],) if reply["note"] else ()
    return Checked(arm, verdict, reply["config"], flags, reply["cost"], reply["interpreted"])


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
                yield w, _check(worker, op, arm, w, limit_s)


def run(
    arms: Iterable[Arm],
    workloads: Iterable[Workload],
    *,
    clocks: Iterable[str],
    device: str = "auto",
    repeats: int | None = None,
    budget_s: float = BUDGET_S,
    limit_s: float = LIMIT_S,
    modules: tuple[str, ...] = (),
    to: Path | None = None,
    report: Report = lambda what: None,
) -> Iterator[Measurement]:
    """Measure every arm of one op on every workload; yield each record, appended to `to` if given.

    Only arms that passed the gate on a workload are timed on it, by each clock, all in one process
    that takes turns. Raises ValueError on a clock or device that cannot be had, before anything
    runs, and OSError where `to` cannot be written.
    """
    arms = list(arms)
    op = _one_op(arms)
    device = resolve_device(device)
    clocks = [_clock(name, device) for name in clocks]
    if to is not None:
        record.append(to)  # a file that cannot be written is found before anything runs
    with Worker(device, modules) as worker:
        environment = Environment(**worker.start())
        for w in workloads:
            report("inputs")
            statistics = _statistics(worker, op, w, limit_s)
            report("gate")
            asked = [Checked(arm, Verdict("passed"), arm.asked) for arm in arms]
            checked = [_unfit(c, clocks) or _check(worker, op, c.arm, w, limit_s) for c in asked]
            for clock in clocks:
                report(clock.name)
                timed = _time(worker, op, w, checked, clock, repeats, budget_s, limit_s)
                for found, taken in timed:
                    m = _record(op, w, found, taken, statistics, clock, environment)
                    if to is not None:
                        record.append(to, m)
                    yield m


def _clock(name: str, device: str) -> Clock:
    clock = CLOCKS[choose("clock", name, CLOCKS)]
    if clock.needs_gpu and device == "cpu":
        raise ValueError(f"clock {name!r} times a CUDA graph, device is 'cpu': use wall_clock")
    return clock


def _one_op(arms: list[Arm]) -> Op:
    ops = {arm.variant.op.name: arm.variant.op for arm in arms}
    if len(ops) != 1:
        raise ValueError(f"a study has the variants of one op, not of {len(ops)}: {list(ops)}")
    return next(iter(ops.values()))


def _statistics(worker: Worker, op: Op, w: Workload, limit_s: float) -> dict | None:
    """What the inputs say of themselves; None where they cannot even be made."""
    task = {"do": "describe", "op": op.name, "workload": asdict(w)}
    try:
        return worker.call(task, limit_s)["statistics"]
    except Died:
        return None


def _time(worker, op, w, checked: list[Checked], clock: Clock, repeats, budget_s, limit_s):
    """Return [(Checked, samples or None)]; an arm that dies while timed is left out and told."""
    found = [_unfit(c, [clock]) or c for c in checked]
    left = {str(i): c for i, c in enumerate(found) if c.verdict.passed}
    samples: dict[str, dict] = {}
    while left and not samples:
        task = {"do": "measure", "op": op.name, "workload": asdict(w), "clock": clock.name,
                "repeats": repeats or clock.repeats, "budget_s": budget_s,
                "arms": {i: {"variant": c.arm.variant.name, "config": c.config}
                         for i, c in left.items()}}  # fmt: skip
        try:
            samples = worker.call(task, limit_s)["samples"]
        except Died as death:
            # without a turn no arm had begun: what failed, the inputs or the clock, failed for all
            for at in [death.turn] if death.turn in left else list(left):
                status = "timeout" if death.timeout else "error"
                verdict = Verdict(status, why=f"while it was timed: {death}")
                found[int(at)] = replace(left.pop(at), verdict=verdict)
    return [(c, samples.get(str(i))) for i, c in enumerate(found)]


def _unfit(found: Checked, clocks: list[Clock]) -> Checked | None:
    """`found` as unsupported where none of `clocks` can time it, else None."""
    if not found.verdict.passed:
        return None
    why = None
    if all(clock.needs_gpu for clock in clocks) and not found.arm.variant.capturable:
        why = f"reads the device on the host, {clocks[0].name} needs a CUDA graph"
    elif found.interpreted:
        why = "passed the gate in Triton's interpreter, whose time says nothing of the kernel"
    return replace(found, verdict=Verdict("unsupported", why=why)) if why else None


def _record(op, w, found: Checked, taken: dict | None, statistics, clock: Clock, environment):
    return Measurement(
        op=op.name,
        variant=found.arm.variant.name,
        config=found.config,
        config_asked=found.arm.asked,
        workload=asdict(w),
        verdict=found.verdict,
        cost=found.cost,
        statistics=statistics,
        clock=clock.name,
        cache=clock.cache,
        calls_per_sample=taken["calls"] if taken else 0,
        samples_us=taken["samples_us"] if taken else [],
        flags=list(found.flags),
        environment=environment,
    )
