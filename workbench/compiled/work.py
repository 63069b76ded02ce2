"""What the compiling process does: names the tasks of a request, looks them up, compiles them.

A task is one arm on one workload. Requests and replies are JSON lines; `table.Compiler` writes and
reads them.
"""

import contextlib
import ctypes
import json
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from triton.compiler.errors import CompilationError

from ..arms import arms_of, workloads_of
from ..fields import choose
from ..modules import registry
from ..op import Config, Variant, Workload
from . import cache as reports
from .fitting import smaller
from .kernel import compiled, disassembler, report
from .keys import key, task_key
from .launches import Recorder, Source, Untraceable, recorded_launches
from .targets import TARGETS

FAULTS = (CompilationError, RuntimeError, ArithmeticError)  # of a compiler, told in its row
REAL_BYTES = 1 << 24  # of inputs that are drawn where a variant reads their values


def serve(requests, replies) -> None:
    """Answer every line of `requests` with one of `replies`."""
    with contextlib.suppress(OSError, AttributeError):  # end with the parent, on Linux
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    work = Work()
    print(json.dumps({}), file=replies)
    for line in requests:
        print(json.dumps(work.answer(json.loads(line))), file=replies)


class Job(NamedTuple):
    """A task, and the objects that its words stand for."""

    task: dict
    variant: Variant
    workload: Workload
    config: Config


class Work:
    """The variants of this process's package, and what was traced of them so far."""

    def __init__(self):
        self.ops: dict = {}
        self.traced: dict[str, list | str] = {}  # by task: its launches, or why there are none
        self.last_inputs: tuple = (None, None)

    @cached_property
    def recorder(self) -> Recorder:
        return Recorder()

    def answer(self, request: dict) -> dict:
        if request["do"] == "tasks":
            try:
                return {"tasks": self.tasks(request)}
            except ValueError as error:
                return {"refused": str(error)}
        where = Path(request["cache"])
        if request["do"] == "known":
            return {"rows": [self.rows(request["task"], arch, where, None)
                             for arch in request["archs"]]}  # fmt: skip
        return {"rows": self.rows(request["task"], request["arch"], where, _made)}

    def tasks(self, asked: dict) -> list[dict]:
        """The tasks of a request. Raises ValueError on names and values that do not exist.

        A `lenient` one, for another revision, leaves out ops and variants that it does not have.
        """
        self.ops, lenient = registry(tuple(asked["modules"])), asked["lenient"]
        tasks = []
        for name in asked["ops"] or self.ops:
            if lenient and name not in self.ops:
                continue
            op, names = self.ops[choose("op", name, self.ops)], asked["variants"]
            if lenient and names:
                names = [n for n in names if n in op.variants]
                if not names:
                    continue
            for w in workloads_of(op, asked["suite"], asked["workload"]):
                for arm in arms_of(op, names, asked["config"]):
                    tasks.append({
                        "op": name, "variant": arm.variant.name, "label": arm.label,
                        "changes": dict(arm.changes), "workload": asdict(w),
                        "modules": asked["modules"],
                    })  # fmt: skip
        return tasks

    def rows(self, task: dict, arch: int, where: Path, make: Callable | None) -> list[dict] | None:
        """A row a kernel of `task`; one that says why there is none. None: `make` is needed.

        A tile that asks for more shared memory than a block may have is stepped down, as a study
        does it; where none fits, the rows are those of the tile that was asked for.
        """
        first = found = self.rows_as_asked(task, arch, where, make)
        for config in smaller(self.job(task).config):
            if found is None or not (needed := _too_large(found)):
                break
            smaller_tile = task | {"changes": asdict(config)}
            found = self.rows_as_asked(smaller_tile, arch, where, make)
            if found and not _too_large(found):
                told = f"stepped down: {needed} bytes of shared memory exceed the limit"
                return [row | {"why": "; ".join(filter(None, [told, row["why"]]))}
                        for row in found]  # fmt: skip
        return found and first

    def rows_as_asked(
        self, task: dict, arch: int, where: Path, make: Callable | None
    ) -> list[dict] | None:
        """The same of the very config that `task` names."""
        job = self.job(task)
        v = job.variant
        row = {"op": task["op"], "variant": task["label"], "arch": f"sm_{arch}",
               "workload": task["workload"], "config": asdict(job.config) if job.config else {},
               "shared_limit": TARGETS[arch].shared_bytes, "stack_declared": v.stack_bytes,
               "fits": None, "why": "", "cached": True}  # fmt: skip
        archs = getattr(v, "archs", ())  # a revision may not know them
        if archs and row["arch"] not in archs:
            return [row | {"why": f"not for {row['arch']}: written for {', '.join(archs)}"}]
        if reason := v.requires(job.workload, job.config):
            return [row | {"why": reason}]
        traced = self.trace(job, arch, where)
        if isinstance(traced, str):
            return [row | {"why": traced}]
        known = [reports.get(where, name, reports.is_report) for name, _ in traced]
        if make is None and None in known:
            return None
        rows = []
        for (name, count), kept in zip(traced, known, strict=True):
            try:
                found = kept or make(self.source(job, arch, name), where, name)
            except FAULTS as error:
                told = " ".join(str(error).split())[:200]
                why = f"does not compile: {type(error).__name__}: {told}"
                return [row | {"fits": False, "why": why, "cached": False}]
            rows.append(row | found | {"launches": count, "cached": kept is not None}
                        | _judged(found, v, arch))  # fmt: skip
        return rows

    def job(self, task: dict) -> Job:
        """The objects that the words of `task` stand for."""
        self.ops = self.ops or registry(tuple(task["modules"]))
        op = self.ops[task["op"]]
        v = op.variants[task["variant"]]
        config = replace(v.config, **task["changes"]) if task["changes"] else v.config
        return Job(task, v, op.Workload(**task["workload"]), config)

    def trace(self, job: Job, arch: int, where: Path) -> list | str:
        """The names of the reports of what `job` launches, with a count each; or why none."""
        # what other code launches may depend on files that are not known here
        own = job.variant.run.__module__.startswith("workbench.") and not job.task["modules"]
        name = task_key(job.task, arch)
        kept = reports.get(where, name, reports.is_trace) if own else None
        if kept is not None:
            return kept
        traced = self.launches(job)
        if not isinstance(traced, str):
            traced = list(Counter(map(key, self.recorder.sources(traced, arch))).items())
        if own:
            _keep(where, name, traced)
        return traced

    def source(self, job: Job, arch: int, name: str) -> Source:
        """The launch of `job` whose report has this name."""
        sources = self.recorder.sources(self.launches(job), arch)
        return next(source for source in sources if key(source) == name)

    def launches(self, job: Job) -> list | str:
        """What `job` launches, or why that cannot be said."""
        place = json.dumps(job.task, sort_keys=True)
        if place not in self.traced:
            try:
                x = self.inputs(job)
                self.traced[place] = self.recorder.launches(job.variant, x, job.config)
            except Untraceable as error:
                self.traced[place] = _traced_on_values(job, str(error))
        return self.traced[place]

    def inputs(self, job: Job):
        """The inputs of a workload; all its arms share them. Raises Untraceable."""
        op, w = job.variant.op, job.workload
        if self.last_inputs[0] != (op.name, w):
            self.last_inputs = ((op.name, w), self.recorder.inputs(op, w))
        return self.last_inputs[1]


def _traced_on_values(job: Job, why: str) -> list | str:
    """The launches on inputs that hold values, where those are few; else `why` they are unknown."""
    op, w = job.variant.op, job.workload
    try:
        needed = sum(getattr(x, "nbytes", 0) for x in Recorder().inputs(op, w))
    except Untraceable:
        needed = REAL_BYTES + 1
    if needed > REAL_BYTES:
        return f"not traced: {why}; a small workload (-w) would be run for its launches"
    with recorded_launches() as made:
        job.variant(op.make_inputs(w, "cpu"), job.config)
    return made


def _made(source: Source, where: Path, name: str) -> dict:
    """Compile `source`, report on it, keep that in the cache where it can be written."""
    found = report(compiled(source, afresh=True), source.target.arch, disassembler())
    _keep(where, name, found)
    return found


def _keep(where: Path, name: str, kept) -> None:
    try:
        reports.put(where, name, kept)
    except OSError as error:
        print(f"not cached: {error}", file=sys.stderr)


def _too_large(rows: list[dict]) -> int:
    """The most shared memory that one of `rows` needs beyond its limit; 0: all fit."""
    return max((r["shared_bytes"] for r in rows if r.get("shared_bytes", 0) > r["shared_limit"]),
               default=0)  # fmt: skip


def _judged(found: dict, v: Variant, arch: int) -> dict:
    """Whether a kernel stays within what a block may ask for and what its variant declares."""
    why, limit = [], TARGETS[arch].shared_bytes
    if found["shared_bytes"] > limit:
        why.append(f"{found['kernel']} needs {found['shared_bytes']} bytes of shared memory, "
                   f"a block of sm_{arch} has {limit}")  # fmt: skip
    if found["stack_bytes"] > v.stack_bytes:
        why.append(f"{found['kernel']} takes {found['stack_bytes']} bytes of stack a thread, "
                   f"{v.stack_bytes} are declared")  # fmt: skip
    local = {name: (found["looped"] or {}).get(name, 0) for name in ("LDL", "STL")}
    if any(local.values()) and not v.stack_bytes:
        told = ", ".join(f"{n} {name}" for name, n in local.items())
        why.append(f"{found['kernel']} uses local memory in a loop: {told}")
    return {"fits": not why, "why": "; ".join(why)}
