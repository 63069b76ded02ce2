"""A profile beside the timed record of the same case: do they tell of the same kernels and time?

Around an empty kernel a clock shows more than a profiler does; that much is taken off the clock's
time first. Beyond noise is a difference above what `flags.allowed_us` grants and above what two
runs of one arm differed by (A/A).
"""

import math
from collections.abc import Callable
from dataclasses import asdict
from statistics import median

from ..flags import allowed_us


def reconcile(summary: dict, records: list[dict], workload_type: Callable | None) -> list[dict]:
    """A row for each case of a summary; `agrees` is None where nothing could be compared.

    `records` are as they stand in files; older ones lack fields that `workload_type` gives their
    default. Raises ValueError where no record is of any case.
    """
    rows = [_row(case, summary, records, workload_type) for case in summary["cases"]]
    if all(row["blocks"] == 0 for row in rows):
        said = ", ".join(case["label"] for case in summary["cases"])
        device = summary["environment"]["device"]
        raise ValueError(f"no timed record of {summary['op']} {said} with this workload by "
                         f"{summary['clock']} on {device}")  # fmt: skip
    return rows


def _row(case: dict, summary: dict, records: list[dict], workload_type) -> dict:
    place = [r for r in records if _same_place(r, summary, workload_type)]
    mine = [r for r in place if r["variant"] == case["variant"] and r["config"] == case["config"]]
    middle = case["middle"]
    row = {
        "label": case["label"], "blocks": len(mine), "record_us": None, "span_us": None,
        "difference": None, "allowed_us": None, "noise": _noise(place), "kernels": {},
        "ranges": {}, "agrees": None, "said": "",
    }  # fmt: skip
    if middle is None:
        return row | {"said": "the profile has no kernels of it"}
    row |= {name: middle[name] for name in ("span_us", "kernels", "ranges")}
    own = case["own_kernels"]
    fell_back = bool(own) and not any(name in middle["kernels"] for name in own)
    lost = f"another kernel ran: none of {', '.join(own)}" if fell_back else ""
    if not mine:
        return row | {"agrees": False if fell_back else None, "said": lost or "no record of it"}
    row["record_us"] = median(median(r["samples_us"]) for r in mine)
    if not case["replayed"]:
        eager = "launched by the host: its kernels are compared, its time is not"
        return row | {"agrees": not fell_back, "said": lost or eager}
    return row | _times(row, summary.get("floor"), mine, lost)


def _times(row: dict, floor: dict | None, mine: list[dict], lost: str) -> dict:
    span, count = row["span_us"], sum(n for n, _ in row["kernels"].values())
    floors = [r["floor_us"] for r in mine if r.get("floor_us") is not None]
    over = max(0.0, median(floors) - floor["span_us"]) if floors and floor else 0.0
    clock = row["record_us"] - over
    noise = row["noise"] or 0.0
    allowed = max(allowed_us(span, count), math.expm1(noise) * span)
    close = abs(clock - span) <= allowed
    told = "agree" if close else f"differ by more than {allowed:,.1f} us"
    return {"record_us": clock, "difference": span / clock - 1, "allowed_us": allowed,
            "agrees": close and not lost, "said": lost or told}  # fmt: skip


def _same_place(r: dict, summary: dict, workload_type) -> bool:
    """Whether a record was timed on the summary's device, workload and clock."""
    if (r["op"], r["clock"]) != (summary["op"], summary["clock"]) or not r["samples_us"]:
        return False
    if r["environment"]["device"] != summary["environment"]["device"]:
        return False
    try:
        said = asdict(workload_type(**r["workload"])) if workload_type else r["workload"]
    except (TypeError, ValueError):  # of a version whose fields are not known
        return False
    return said == summary["workload"]


def _noise(records: list[dict]) -> float | None:
    """The largest log ratio between an arm and its twin, over blocks."""
    pairs = [(median(r["twin_us"]), median(r["samples_us"])) for r in records if r.get("twin_us")]
    return max((abs(math.log(a / b)) for a, b in pairs), default=None)
