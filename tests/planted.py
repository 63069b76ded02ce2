"""Traces with known answers, as torch.profiler would write them for a union's passes on a GPU."""

import json
from dataclasses import asdict
from pathlib import Path

from workbench.ops import OPS
from workbench.profiles import clean

OP = OPS["sparse_prefill"]
WORKLOAD = OP.Workload(tokens=8192, heads=8)
DEVICE = "NVIDIA H200"
CASE = 41
PLAN = [("_clean_kernel", 20.0), ("radix_sort", 400.0), ("_plan_kernel", 158.0)]
SECRET = "hunter2"


def trace(path: Path, *, kernel="_union_kernel", span_us=2150.0, own=("_union_kernel",),
          driver=10) -> Path:  # fmt: skip
    """Write a cleaned trace of 5 passes, each `span_us` from first start to last end."""
    events, at = [], 1_000_000_000.0

    def event(cat, name, ts, dur, pid=10, tid=10, **args):
        events.append({"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts,
                       "dur": dur, "args": args})  # fmt: skip

    def replayed(ts, starts, kernels):
        correlation = len(events) + 1
        event("cuda_runtime", "cudaGraphLaunch", ts, 8.0, driver, driver, correlation=correlation)
        for name, us in kernels:
            event("kernel", name, starts, us, 0, 7, device=0, stream=7, correlation=correlation)
            starts += us + 1.0
        return starts

    for _ in range(5):
        event("user_annotation", f"call case={CASE}", at, 60.0)
        event("user_annotation", f"plan case={CASE}", at + 2, 20.0)
        ends = replayed(at + 4, at + 200, PLAN)
        event("user_annotation", f"kernel case={CASE}", at + 24, 20.0)
        replayed(at + 26, ends, [(kernel, at + 200 + span_us - ends)])
        at += span_us + 400
    event("python_function", f"/home/{SECRET}/train.py(3): main", at, 5.0)
    raw = path.with_name("raw.json")
    raw.write_text(json.dumps({
        "schemaVersion": 1, "host_name": SECRET, "traceName": f"/home/{SECRET}/trace.json",
        "env": {"TOKEN": SECRET}, "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 10, "tid": 0, "args": {"name": SECRET}},
            *events],
    }))  # fmt: skip
    clean.clean(raw, path, about(own))
    return path


def about(own=("_union_kernel",)) -> dict:
    config = asdict(OP.variants["union"].config)
    case = {"case": CASE, "label": "union", "variant": "union", "config": config,
            "own_kernels": list(own), "flags": [], "replayed": True}  # fmt: skip
    return {"tool": "kineto", "op": OP.name, "clock": "graph_hot", "workload": asdict(WORKLOAD),
            "environment": {"device": DEVICE}, "cases": [case], "failed": []}  # fmt: skip
