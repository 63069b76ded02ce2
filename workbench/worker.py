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

from . import ranges, timing
from .compiled import DoesNotFit, compile_for, fit
from .gate import check
from .interpreter import active, launches, repair
from .machine import environment
from .modules import registry
from .op import Config, Inputs, Op, Variant, Verdict, Workload


def main(argv: list[str]) -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    faulthandler.enable()
    _die_with_parent()
    device, modules = argv[0], tuple(argv[1:])
    if active():
        repair()
    if torch.device(device).type == "cuda":
        torch.cuda.set_device(device)  # Triton launches on the current device
    server = _Server(device, registry(modules), lambda m: replies.write(json.dumps(m) + "\n"))
    server.send(asdict(environment(device)))
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

    def inputs(self, op: Op, workload: Workload) -> Inputs:
        """The inputs of a workload; all its arms share them."""
        if self.last[0] != (op.name, workload):
            self.last = (None, None)
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
            return {"statistics": op.statistics(x)}
        if task["do"] == "check":
            return self.check(op.variants[task["variant"]], workload, task["config"], x)
        return self.measure(op, x, task)

    def check(self, v: Variant, w: Workload, asked: dict, x: Inputs) -> dict:
        config, note = configured(v, asked), None
        cost = v.op.cost(v.widens(x))._asdict()  # before a wrong kernel can touch the inputs
        if v.requires(w, config) is None:
            try:
                config, note = self.fitted(v, config, x)
            except DoesNotFit as error:
                verdict = Verdict("unsupported", why=str(error))
                return self.reply(verdict, config, None, cost, False)
        with launches() as made:
            verdict = check(v, w, config, device=self.device, inputs=x)
        return self.reply(verdict, config, note, cost, bool(made))

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

    def measure(self, op: Op, x: Inputs, task: dict) -> dict:
        arms = {}
        for name, arm in task["arms"].items():
            v = op.variants[arm["variant"]]
            arms[name] = partial(v, x, configured(v, arm["config"]))
        clock = timing.CLOCKS[task["clock"]]
        samples = clock.measure(
            arms, task["repeats"], task["budget_s"], lambda name: self.send({"turn": name}),
            self.device,
        )  # fmt: skip
        return {"samples": {name: asdict(s) for name, s in samples.items()}}


def configured(v: Variant, changes: dict) -> Config:
    """The variant's default config with `changes`."""
    return replace(v.config, **changes) if changes else v.config


if __name__ == "__main__":
    main(sys.argv[1:])
