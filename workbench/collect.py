"""Profile passes of one workload's variants, by whichever tool, in a process of their own.

Everything goes through the gate first, in another process; a variant that fails is told and not
profiled. Kineto and CUPTI profile the process that makes the passes; Nsight Systems runs around a
command that collects with no tool of its own (profiles/nsys_run.py).
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from . import atomic, profiles
from .arms import Arm
from .bench import Checked, Report, gate_says
from .fields import choose
from .isolate import Worker
from .machine import resolve_device
from .op import Verdict, Workload
from .profiles import clean
from .profiles.cases import FLOOR, number
from .profiles.report import beside, report
from .timing import CLOCKS

TOOLS = ("kineto", "cupti", "none")
LIMIT_S = 120.0
RECORDED = ("device", "capability", "driver", "cuda", "torch", "triton", "python", "commit",
            "source")  # fmt: skip
SUFFIX = {"kineto": ".json.gz", "cupti": ".cupti.jsonl"}


class Missing(RuntimeError):
    """A tool that is not here; the message says what to install or run."""


def clock_for(name: str | None, device: str) -> str:
    """The clock whose cache state and capture the passes have. Raises ValueError."""
    name = name or ("wall_clock" if device == "cpu" else "graph_hot")
    clock = CLOCKS[choose("clock", name, CLOCKS)]
    if clock.rotates:
        raise ValueError(f"a profile pass reads one set of inputs, clock {name!r} rotates several")
    if clock.needs_gpu and device == "cpu":
        raise ValueError(f"clock {name!r} needs a GPU, device is 'cpu': use wall_clock")
    return name


def collect(
    arms: Iterable[Arm],
    w: Workload,
    *,
    tool: str,
    to: Path,
    clock: str | None = None,
    device: str = "auto",
    limit_s: float = LIMIT_S,
    modules: tuple[str, ...] = (),
    say: Report = lambda what: None,
) -> dict:
    """Profile the arms that pass the gate; return the report, also written as OP.summary.json.

    The trace stands beside it (OP.json.gz or OP.cupti.jsonl). With tool "none" the passes run bare,
    for a profiler around this process, and OP.passes.json says what each case is. "failed" of the
    report has the arms that did not pass; without any other there is no trace. Raises ValueError on
    what is refused, Missing where the tool is not here, Died where a profiled process ends early.
    """
    arms, device = list(arms), resolve_device(device)
    op, clock = arms[0].variant.op, clock_for(clock, device)
    choose("tool", tool, TOOLS)
    if tool == "cupti" and (device == "cpu" or find_spec("cupti") is None):
        raise Missing("--tool cupti needs the package cupti-python (pip install cupti-python) and "
                      "a GPU")  # fmt: skip
    to.mkdir(parents=True, exist_ok=True)
    with Worker(device, modules) as gate:
        checked = [_checked(gate, arm, w, limit_s, say) for arm in arms]
        environment = gate.start()
    passed = [c for c in checked if c.verdict.passed]
    about = {
        "tool": tool, "op": op.name, "clock": clock, "workload": asdict(w),
        "environment": {name: environment[name] for name in RECORDED},
        "cases": [_case(c, op.name, w, clock) for c in passed],
        "failed": [{"variant": c.arm.label, "status": c.verdict.status, "why": c.verdict.why}
                   for c in checked if not c.verdict.passed],
    }  # fmt: skip
    base = to / op.name
    if not passed:
        if tool == "none":  # whoever runs it from outside reads there what became of it
            atomic.write(beside(base), _text(about))
        return about
    with tempfile.TemporaryDirectory(dir=to, prefix=".profile") as folder:
        raw = Path(folder) / "trace"
        with Worker(device, modules) as worker:
            worker.call(_task(about, passed, op.name, w, clock, device, tool, raw), limit_s)
            worker.end()
        say("reading")
        return _kept(about, raw, base, tool)


def _checked(gate: Worker, arm: Arm, w: Workload, limit_s: float, say: Report) -> Checked:
    say(f"gate: {arm.label}")
    found = gate_says(gate, arm.variant.op, arm, w, limit_s)
    if found.verdict.passed and found.interpreted:
        why = "runs in Triton's interpreter here: a profile would say nothing of the kernel"
        return Checked(arm, Verdict("unsupported", why=why), found.config)
    return found


def _case(c: Checked, op: str, w: Workload, clock: str) -> dict:
    who = {"op": op, "variant": c.arm.variant.name, "config": c.config, "workload": asdict(w),
           "clock": clock}  # fmt: skip
    return {"case": number(**who), "label": c.arm.label, "variant": c.arm.variant.name,
            "config": c.config, "own_kernels": list(c.own_kernels), "flags": list(c.flags),
            "replayed": CLOCKS[clock].captures and c.arm.variant.capturable}  # fmt: skip


def _task(about, passed, op: str, w: Workload, clock: str, device: str, tool: str, raw) -> dict:
    names = [str(i) for i in range(len(passed))]
    cases = dict(zip(names, (case["case"] for case in about["cases"]), strict=True))
    replayed = [n for n, case in zip(names, about["cases"], strict=True) if case["replayed"]]
    if device != "cpu":
        cases["floor"] = FLOOR
        replayed += ["floor"] * CLOCKS[clock].captures
    arms = {n: {"variant": c.arm.variant.name, "config": c.config}
            for n, c in zip(names, passed, strict=True)}  # fmt: skip
    return {"do": "passes", "op": op, "workload": asdict(w), "clock": clock, "arms": arms,
            "cases": cases, "replayed": replayed, "tool": tool, "to": str(raw)}  # fmt: skip


def _kept(about: dict, raw: Path, base: Path, tool: str) -> dict:
    """Move a trace to where it stays, and write what it says."""
    if tool == "none":
        atomic.write(beside(base), _text(about))
        return about
    trace = base.with_name(base.name + SUFFIX[tool])
    if tool == "kineto":
        clean.clean(raw, trace, about)
    else:
        atomic.write(trace, raw.read_bytes())
        atomic.write(beside(base), _text(about))
    return summarise(trace, about)


def summarise(trace: Path, about: dict) -> dict:
    """Read a trace and write what it says beside it, as OP.summary.json; return that."""
    said = report(profiles.read(trace), about | {"trace": trace.name})
    atomic.write(trace.with_name(f"{trace.name.split('.')[0]}.summary.json"), _text(said))
    return said


def _text(value: dict) -> str:
    return json.dumps(value, indent=1) + "\n"
