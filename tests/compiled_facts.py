"""Run by test_union_plan.py without Triton's interpreter, which compiles nothing: facts as JSON."""

import json
import re
import sys

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from workbench.compiled.launches import Recorder, recorded_launches
from workbench.ops import OPS

PLAN = OPS["union_plan"]


def map_of(fields: dict) -> dict:
    """Bytes of `shared_map`'s map, and the least offset of what else lies in shared memory."""
    recorder, v = Recorder(), PLAN.variants["shared_map"]
    (launch,) = recorder.launches(v, recorder.inputs(PLAN, PLAN.Workload(**fields)))
    (source,) = recorder.sources([launch], 90)
    kernel = triton.compile(source.ast, target=source.target, options=source.options.__dict__)
    ptx = kernel.asm["ptx"]
    beside = {int(at or 0) for at in re.findall(r"\[global_smem(?:\+(\d+))?\]", ptx)}
    return {"map_bytes": 4 * launch.options["WORDS"] * launch.options["CHUNKS"],
            "beside": min(beside), "scatters": ptx.count("red.shared.or.b32")}  # fmt: skip


class Made(TorchDispatchMode):
    """Storages that are made inside the block, with their bytes."""

    def __init__(self):
        super().__init__()
        self.bytes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {_storage(t) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        made = func(*args, **kwargs or {})
        for t in tree_leaves(made):
            if isinstance(t, FakeTensor) and _storage(t) not in known:
                self.bytes[_storage(t)] = t.untyped_storage().nbytes()
        return made


def _storage(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def workspace_of(op: str, variant: str, fields: dict) -> dict:
    """Bytes of the tensors that a run makes beside its output, and what the variant states."""
    v = OPS[op].variants[variant]
    w = v.op.Workload(**fields)
    assert v.requires(w, v.config) is None
    recorder = Recorder()
    x = recorder.inputs(v.op, w)
    with recorder._placed(), recorded_launches(), recorder.mode, Made() as made:
        kept = {_storage(t) for t in v(x)}
    beside = sum(n for storage, n in made.bytes.items() if storage not in kept)
    return {"made": beside, "stated": v.workspace_bytes(w, v.config)}


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    found = {"maps": [map_of(fields) for fields in asked["maps"]],
             "workspaces": [workspace_of(*each) for each in asked["workspaces"]]}  # fmt: skip
    json.dump(found, sys.stdout)
