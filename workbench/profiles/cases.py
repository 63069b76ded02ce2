"""What a profile says of each case that was profiled on purpose: first start to last end, kernels.

A case is a variant with its config on a workload, under a number that every range of its passes
carries. A pass lies in a range `call`; what runs before it in others does not count.
"""

import hashlib
import json
from collections.abc import Iterable

import numpy as np
import pandas as pd

from .attribution import Attributed
from .summary import WORK

CALL = "call"
FLOOR = 0  # the number of the empty kernel


def number(**case) -> int:
    """A number for what identifies a case: the same for the same, and small enough for JSON."""
    text = json.dumps(case, sort_keys=True, default=str)
    return 1 + int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")


def labelled(found: Attributed, cases: Iterable[dict]) -> pd.DataFrame:
    """The profile's ranges, the label of their case before the name where there are several."""
    labels = {case["case"]: case["label"] for case in cases}
    ranges = found.events.ranges
    if labels and (ranges["payload"] == FLOOR).any():
        labels[FLOOR] = "empty kernel"
    if len(labels) < 2:
        return ranges
    case = ranges["payload"].map(labels)
    told = case + ": " + ranges["name"].astype(str)
    return ranges.assign(name=told.where(case.notna(), ranges["name"].astype(str)))


def measured(found: Attributed, case: int) -> dict:
    """How a case's passes went: {"passes": how many, "span_us": of each, "middle"}.

    The middle one by its span is {"span_us", "kernels": {name: [launches, us]}, "ranges": {name:
    us}}, by the innermost ranges. A pass without a kernel says nothing, and so does a case without
    passes: its middle is None.
    """
    ranges = found.events.ranges
    calls = ranges[(ranges["name"] == CALL) & (ranges["payload"] == case)]
    passes = [p for p in (_passed(found, call) for call in calls.itertuples()) if p]
    passes.sort(key=lambda p: p["span_us"])
    return {
        "passes": len(calls),
        "span_us": [p["span_us"] for p in passes],
        "middle": passes[len(passes) // 2] if passes else None,
    }


def window(found: Attributed) -> tuple[int, int] | None:
    """From the opening of the last pass of the first case to its last kernel's end; None of none.

    In between it is seen when a pass was asked for, and when it ran.
    """
    ranges, gpu = found.events.ranges, found.events.gpu
    calls = ranges[(ranges["name"] == CALL) & ranges["payload"].gt(FLOOR)]
    for call in calls[calls["payload"] == calls["payload"].min()].iloc[::-1].itertuples():
        if len(at := _rows(found, call)):
            return int(call.start_ns), int(gpu["end_ns"].iloc[at].max())
    return None


def _rows(found: Attributed, call) -> np.ndarray:
    """Where the GPU rows stand whose calls lie in the range `call`."""
    launches = found.events.launches
    inside = (
        (launches["process"] == call.process) & (launches["thread"] == call.thread)
        & (launches["start_ns"] >= call.start_ns) & (launches["end_ns"] <= call.end_ns)
    ).to_numpy()  # fmt: skip
    at = np.flatnonzero(found.launch >= 0)
    return at[inside[found.launch[at]]]


def _passed(found: Attributed, call) -> dict | None:
    """One pass, by the calls that lie in its range."""
    at = _rows(found, call)
    rows = found.events.gpu.iloc[at]
    if not rows["kind"].isin(WORK).any():
        return None
    us = (rows["end_ns"] - rows["start_ns"]) / 1000
    names = found.events.ranges["name"].astype(str).to_numpy()[found.range[at]]
    by_kernel = us.groupby(rows["name"].astype(str).to_numpy(), sort=False)
    return {
        "span_us": float(rows["end_ns"].max() - rows["start_ns"].min()) / 1000,
        "kernels": {name: [len(x), round(float(x.sum()), 3)] for name, x in by_kernel},
        "ranges": {name: round(float(x.sum()), 3) for name, x in us.groupby(names, sort=False)},
    }
