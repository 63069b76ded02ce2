"""The process that runs variants: reads tasks, answers with verdicts and samples.

`python -m workbench.worker DEVICE [MODULE.py ...]`; started by `isolate.Worker` alone. Standard
output carries the protocol; whatever a kernel prints goes to standard error.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import sys
from dataclasses import asdict, fields, replace
from functools import partial

import torch
import triton

from . import ranges, timing
from .answers import Answers
from .compiled import DoesNotFit, compile_for, fit
from .digest import answer_digest
from .flags import TURNOVER
from .gate import check
from .interpreter import active, launches, repair
from .machine import environment, source_digest
from .models.ledger import ledger
from .modules import registry
from .monitor import Monitor
from .op import Config, Inputs, Op, Output, Variant, Verdict, Workload
from .timing import passes
from .timing.kineto import profiled

MAX_SETS = 128


def main(argv: list[str]) -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable()
    _die_with_parent()
    device, modules = argv[0], tuple(argv[1:])
    if active():
        repair()
    if torch.device(device).type == "cuda":
        # Triton launches on the current device; a device without a number is the first
        torch.cuda.set_device(torch.device(device).index or 0)
    server = _Server(device, registry(modules), lambda m: replies.write(json.dumps(m) + "\n"))
    # an edited module is another build: its times must not be pooled with those before the edit
    server.send(asdict(replace(environment(device), source=source_digest(modules))))
    for line in sys.stdin:
        server.send(server.answer(json.loads(line)))


def _die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends, however busy or stuck a kernel is."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class _Server:
    def __init__(self, device: str, ops: dict[str, Op], send):
        self.device, self.ops, self.send = device, ops, send
        self.last: tuple = (None, None)  # ((op, workload), its inputs)
        self.answers = Answers()
        self.rotating: tuple = (None, ())  # ((op, workload), its sets of inputs)

    def inputs(self, op: Op, workload: Workload) -> Inputs:
        """The inputs of a workload; all its arms share them."""
        if self.last[0] != (op.name, workload):
            self.last, self.rotating, self.answers = (None, None), (None, ()), Answers()
            if torch.device(self.device).type == "cuda":
                torch.cuda.empty_cache()
            with ranges.span("inputs"):
                self.last = ((op.name, workload), op.make_inputs(workload, self.device))
        return self.last[1]

    def answer(self, task: dict) -> dict:
        op = self.ops[task["op"]]
        workload = op.Workload(**task["workload"])
        x = self.inputs(op, workload)
        if task["do"] == "describe":
            return {"statistics": op.statistics(x), "doubts": op.doubts(x)}
        if task["do"] == "check":
            return self.check(op.variants[task["variant"]], workload, task, x)
        if task["do"] == "rotate":
            return self.rotate(op.variants[task["variant"]], workload, task["config"])
        if task["do"] == "profile":
            return self.profile(op, workload, task)
        if task["do"] == "passes":
            return self.passes(op, workload, task)
        return self.measure(op, workload, task)

    def check(self, v: Variant, w: Workload, task: dict, x: Inputs) -> dict:
        """The gate; where `task` holds the digest of an answer that passed it before, a look."""
        config, note = v.settled(w, configured(v, task["config"])), None
        cost = v.op.cost(v.widens(x))._asdict()  # before a wrong kernel can touch the inputs
        if v.requires(w, config) is None:
            try:
                config, note = self.fitted(v, config, x)
            except DoesNotFit as error:
                verdict = Verdict("unsupported", why=str(error))
                return self.reply(verdict, config, None, cost, False)
        known, found = task.get("digest"), None
        if known and known == (found := answer_digest(v, x, config)):
            return self.reply(Verdict("passed"), config, note, cost, False) | {"digest": found}
        with launches() as made:
            verdict = check(v, w, config, device=self.device, inputs=x, answers=self.answers)
        reply = self.reply(verdict, config, note, cost, bool(made))
        if verdict.passed and v.repeatable:
            reply["digest"] = found or answer_digest(v, x, config)
        if verdict.passed:
            wave = environment(self.device).multiprocessors
            reply["own_kernels"] = own_kernels(v)
            tile = v.tile(w, config)
            reply["ledger"] = ledger(v.op.name, v.widens(x), tile, wave or None)
        return reply

    def reply(self, verdict: Verdict, config: Config, note, cost: dict, interpreted: bool) -> dict:
        used = asdict(config) if config is not None else {}
        return {"verdict": asdict(verdict), "config": used, "note": note, "cost": cost,
                "interpreted": interpreted}  # fmt: skip

    def fitted(self, v: Variant, config: Config, x: Inputs) -> tuple[Config, str | None]:
        """Step a tile down that does not fit this device's shared memory. Raises DoesNotFit."""
        names = {f.name for f in fields(config)} if config is not None else set()
        if torch.device(self.device).type == "cpu" or not {"block_k", "num_stages"} <= names:
            return config, None
        properties = torch.cuda.get_device_properties(self.device)
        # the launcher's own tensor operations do run: they get copies
        copies = {n: t.clone() for n, t in x._asdict().items() if isinstance(t, torch.Tensor)}
        x = x._replace(**copies)

        def shared_bytes(c: Config) -> int:
            kernels = compile_for(v, x, c, arch=10 * properties.major + properties.minor)
            return max((k.shared_bytes for k in kernels), default=0)

        return fit(config, shared_bytes, properties.shared_memory_per_block_optin)

    def sets(self, op: Op, w: Workload) -> tuple[Inputs, ...]:
        """Inputs of `w` and of the seeds after it, so many that they turn the L2 over."""
        key = (op.name, w)
        if self.rotating[0] != key:
            self.rotating = (None, ())
            first = self.inputs(op, w)
            l2 = environment(self.device).l2_bytes
            made = [first]
            while len(made) < (count := index_sets(distinct_bytes(op, made) // len(made), l2)):
                for i in range(len(made), count):
                    fresh = op.make_inputs(replace(w, seed=w.seed + i), self.device)
                    made.append(op.rotated(first, fresh))
            self.rotating = (key, tuple(made))
        return self.rotating[1]

    def rotate(self, v: Variant, w: Workload, asked: dict) -> dict:
        """The gate's verdict on every further set of inputs that a rotating clock will use."""
        config = configured(v, asked)
        for i, x in enumerate(self.sets(v.op, w)[1:], 1):
            verdict = check(v, replace(w, seed=w.seed + i), config, device=self.device, inputs=x,
                            once=True)  # fmt: skip
            if not verdict.passed:
                return {"verdict": asdict(replace(verdict, why=f"set {i}: {verdict.why}"))}
        return {"verdict": asdict(Verdict("passed"))}

    def calls(self, op: Op, w: Workload, task: dict) -> dict[str, timing.Call]:
        """The arms of a task as calls, the first one once more (A/A), and an empty kernel."""
        clock = timing.CLOCKS[task["clock"]]
        sets = self.sets(op, w) if clock.rotates else (self.inputs(op, w),)
        touched, calls = distinct_bytes(op, sets) // len(sets), {}
        for name, arm in task["arms"].items():
            v = op.variants[arm["variant"]]
            run = partial(_run, v, configured(v, arm["config"]))
            calls[name] = timing.Call(run, sets, touched)
        calls["twin"] = next(iter(calls.values()))
        calls["floor"] = timing.empty(self.device, len(sets))
        return calls

    def measure(self, op: Op, w: Workload, task: dict) -> dict:
        """Samples of all calls in turns, and readings of the device around them."""
        clock, calls = timing.CLOCKS[task["clock"]], self.calls(op, w, task)
        self.answers = Answers()  # gigabytes, where heads are many
        monitor = Monitor(self.device)
        monitor.look()
        taken = timing.measure(clock, calls, timing.Plan(**task["plan"]), self.device,
                               lambda name: self.send({"turn": name}), monitor.look)  # fmt: skip
        monitor.look()
        samples = {name: asdict(s) for name, s in taken.items()}
        return {"samples": samples, "state": monitor.state()}

    def profile(self, op: Op, w: Workload, task: dict) -> dict:
        """One profiled call of each arm and of the empty kernel."""
        clock, calls = timing.CLOCKS[task["clock"]], self.calls(op, w, task)
        del calls["twin"]
        seen = {}
        for name, call in calls.items():
            self.send({"turn": name})
            found = profiled(call, clock, self.device)
            seen[name] = asdict(found) if found else None
        return {"profiles": seen}

    def passes(self, op: Op, w: Workload, task: dict) -> dict:
        """Profile passes of each arm and, on a GPU, of the empty kernel, under `task["tool"]`."""
        clock, calls = timing.CLOCKS[task["clock"]], self.calls(op, w, task)
        del calls["twin"]
        if "floor" not in task["cases"]:
            del calls["floor"]
        session = passes.SESSIONS[task["tool"]](self.device, task["to"])
        passes.run(calls, task["cases"], set(task["replayed"]), clock, self.device, session,
                   lambda name: self.send({"turn": name}))  # fmt: skip
        return {}


def _run(v: Variant, config: Config, x: Inputs) -> Output:
    return v(x, config)


def distinct_bytes(op: Op, sets) -> int:
    """Bytes that calls on all of `sets` touch at least, each once."""
    return sum(op.cost(x).bytes for x in sets) - op.shared_bytes(sets)


def index_sets(set_bytes: int, l2_bytes: int) -> int:
    """How many sets of inputs, of so many distinct bytes each, read twice the L2 before a repeat.

    At least 2, at most 128: many sets of few bytes cost memory and time on the gate.
    """
    turned = 1 + -(-TURNOVER * l2_bytes // set_bytes) if set_bytes else 2
    return max(2, min(MAX_SETS, turned))


def own_kernels(v: Variant) -> list[str]:
    """Names of the kernels that the variant's own file has or takes from its steps."""
    module = sys.modules.get(v.run.__module__)
    return [f.__name__ for f in vars(module).values() if isinstance(f, triton.JITFunction)
            and f.__name__.endswith("_kernel")]  # fmt: skip


def configured(v: Variant, changes: dict) -> Config:
    """The variant's default config with `changes`."""
    return replace(v.config, **changes) if changes else v.config


if __name__ == "__main__":
    main(sys.argv[1:])
