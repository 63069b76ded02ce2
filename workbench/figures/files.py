"""From a table of records to files: every figure that it allows."""

import json
import os
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..models.quantised_error import study
from ..models.step import FLOOR
from ..record import found, slug
from .axes import STYLE
from .decode import decode_latency, has_line
from .decode_crossover import crossovers, decode_crossover
from .fp8 import along_tokens, fp8_prefill
from .groups import best_groups, group_gain
from .orientations import orientations
from .overlap import union_ratio
from .rounding import rounding
from .splits import decode_splits, has_picks
from .steps import step_cost
from .times import ladder, latency, page_split_cost, page_split_share, paged_read_cost

# kind: (figure, the op whose records it draws, whether it has what it needs, of any or all rows)
KINDS = {
    "latency": (latency, "sparse_prefill", lambda t: t["op"].notna()),
    "ladder": (ladder, "sparse_prefill", lambda t: t["op"].notna()),
    "page_split_cost": (page_split_cost, "page_split", lambda t: t["workload.touch"] != "share"),
    "page_split_share": (page_split_share, "page_split", lambda t: t["workload.touch"] == "share"),
    "paged_read_cost": (paged_read_cost, "paged_read", lambda t: t["op"].notna()),
    "step_cost": (step_cost, "decode_split_step", lambda t: t["arm"] == FLOOR),
    "fp8_prefill": (fp8_prefill, "fp8_prefill", lambda t: t.index.isin(along_tokens(t).index)),
    "decode_latency": (decode_latency, "sparse_decode", has_line),
    "decode_crossover": (decode_crossover, "sparse_decode", lambda t: bool(crossovers(t))),
    "decode_splits": (decode_splits, "sparse_decode", has_picks),
    "group_gain": (group_gain, "sparse_prefill", lambda t: best_groups(t)["group"].notna()),
}
SHARING = ("sparse_prefill", "union_plan")  # ops in which tokens share a gather
COMPILED = "traces/compiled/fp8_prefill.json"  # what `compile --json` printed


def draw_all(table: pd.DataFrame, to: Path) -> list[Path]:
    """Every figure that the records allow, a set for each device and clock; the paths written."""
    made = []
    timed_rows = table[table["median_us"].notna()]
    for (device, clock), rows in timed_rows.groupby(["environment.device", "clock"]):
        for kind, (figure, op, needed) in KINDS.items():
            mine = rows[rows["op"] == op]
            if len(mine) and np.any(needed(mine)):
                made.append(save(figure(mine), f"{kind}_{slug(device)}_{clock}", to))
    shared = table[table["op"].isin(SHARING)]
    if any(c.startswith("statistics.union_ratio.") and shared[c].notna().any() for c in table):
        made.append(save(union_ratio(shared), "union_ratio", to))
    return made


def draw_computed(to: Path) -> list[Path]:
    """Figures that need no record: fp8 prefill as compiled for each architecture, its rounding."""
    rows = json.loads(found(COMPILED).read_text())
    archs = dict.fromkeys(r["arch"] for r in rows if r.get("mma"))
    made = [save(orientations(rows, arch), f"orientations_{arch}", to) for arch in archs]
    return [*made, save(rounding(study()), "rounding", to)]


def save(figure: Figure, name: str, to: Path = Path("figures")) -> Path:
    """Write `to`/`name`.svg, whole or not at all; equal data gives an equal file."""
    to = Path(to)
    to.mkdir(parents=True, exist_ok=True)
    path, partial = to / f"{name}.svg", to / f".{name}.partial.svg"
    try:
        with matplotlib.rc_context(STYLE):
            figure.savefig(partial, metadata={"Date": None})
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
