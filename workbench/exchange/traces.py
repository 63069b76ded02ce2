"""Records as traces, and traces as runs to look at beside our own.

A trace has one number of time, `latency_ms`; what that number means stands in its `log`, as one
line of JSON behind `workbench `: clock, cache state, statistic, flags, and how many samples. Blocks
of one build are one trace, as in our tables: FlashInfer-Bench takes the least of several, which
would be the luckiest block. Failures are traces of their own. `correctness` must be there; its two
elementwise errors were never computed here and are NaN, our relative L2 stands in `extra`.
"""

import json
import math
import re
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from .. import evidence, record
from ..fields import replaced
from ..flags import merged
from ..ops.sparse_prefill.workload import Workload
from . import workloads
from .definitions import Contract
from .solutions import name_of, solution

TOLD = "workbench "  # how a log begins whose rest is JSON of ours
STATUSES = {"passed": "PASSED", "error": "RUNTIME_ERROR", "timeout": "TIMEOUT"}
FORMS = {  # what the gate says -> how an incorrect output is called
    r"\bhas shape \(": "INCORRECT_SHAPE",
    r"\bis torch\.\w+, not torch\.": "INCORRECT_DTYPE",
}
KEPT = ("op", "variant", "config", "workload", "clock", "cache", "calls_per_sample", "index_sets")
COMPILERS = r"CompilationError|CompileTimeAssertion|UnsupportedLanguageConstruct"


class Exported(NamedTuple):
    """What becomes of records."""

    traces: list[dict]
    solutions: list[dict]
    workloads: list[Workload]  # that the traces are of, each once
    left_out: list[tuple[str, str]]  # (which records, why they are no traces)


def exported(rows: list[dict], page_size: int, stored: str) -> Exported:
    """Records, as they stand in a file, as traces.

    Flags that show only when records are read together are told, too. A record that did not pass
    is no PASSED trace, and one that says nothing of the variant (unsupported, never timed, run by
    Triton's interpreter) is left out. Raises RecordError on a record that is none.
    """
    table = evidence.derived(record.table(rows)) if rows else None
    groups, left_out, asked, made = {}, [], {}, {}
    for i, row in enumerate(rows):
        w = _workload(row) if row["op"] == "sparse_prefill" else None
        if reason := _unfit(row, w, page_size):
            left_out.append((f"{row['op']} {row['variant']}", reason))
            continue
        name = workloads.contract_of(w, page_size).name
        asked[w] = None
        made.setdefault(name_of(row, name), solution(row, name))
        seen = row | {"flags": table["flags"].iloc[i], "median_us": table["median_us"].iloc[i]}
        groups.setdefault(_one(row, w, name, i), []).append((seen, w))
    traces = [_trace(parts, page_size, stored) for parts in groups.values()]
    return Exported(traces, list(made.values()), list(asked), left_out)


def _workload(row: dict) -> Workload | str:
    """The workload of a record, or why it is none."""
    try:
        return replaced(Workload(), row["workload"], "workload")
    except ValueError as error:
        return str(error)


def _unfit(row: dict, w: Workload | str | None, page_size: int) -> str | None:
    """Why a record is no trace, or None."""
    status = row["verdict"]["status"]
    if w is None:
        return f"no definition of {row['op']}"
    if isinstance(w, str):
        return w
    if reason := workloads.refusal(w, page_size):
        return reason
    if status == "unsupported":
        return f"unsupported: {row['verdict'].get('why')}"
    if row["environment"].get("interpreted"):
        return "run by Triton's interpreter"
    if status == "passed" and not row["samples_us"]:
        return "passed and not timed"
    if status != "passed" and row["samples_us"]:
        return f"has times though {status}"
    return None if status in STATUSES or status == "incorrect" else f"status {status}"


def _one(row: dict, w: Workload, name: str, number: int) -> tuple:
    """What all blocks of one trace share; a failure shares it with none."""
    build = (row["environment"].get(part) for part in ("device", "torch", "triton", "driver"))
    alone = number if row["verdict"]["status"] != "passed" else None
    return name_of(row, name), w, *build, alone


def _trace(parts: list[tuple[dict, Workload]], page_size: int, stored: str) -> dict:
    """The trace of records of one thing on one workload: blocks that passed, or one that did not.

    Its time is the median over blocks of their medians, as in `evidence.pooled`.
    """
    row, w = parts[0]
    line = workloads.line(w, page_size, stored)
    status = _status(row["verdict"])
    env = row["environment"]
    libs = {name: env[name] for name in ("torch", "triton", "cuda", "driver") if env.get(name)}
    found = {
        "status": status,
        "environment": {"hardware": env["device"], "libs": libs},
        "timestamp": max(r.get("at") or "" for r, _ in parts) or "unknown",
        "log": TOLD + json.dumps(_told([r for r, _ in parts]), sort_keys=True),
    }
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        worst = max((r["verdict"].get("error") for r, _ in parts), key=lambda e: e or 0)
        found["correctness"] = {"max_relative_error": "NaN", "max_absolute_error": "NaN",
                                "extra": {"relative_l2": worst,
                                          "budget": row["verdict"].get("budget")}}  # fmt: skip
    if status == "PASSED":
        found["performance"] = {"latency_ms": float(median(r["median_us"] for r, _ in parts)) / 1e3}
    name = name_of(row, line["definition"])
    return line | {"solution": name, "evaluation": found}


def _status(verdict: dict) -> str:
    why = verdict.get("why") or ""
    if verdict["status"] == "incorrect":
        return next((s for form, s in FORMS.items() if re.search(form, why)), "INCORRECT_NUMERICAL")
    if verdict["status"] == "error" and re.search(COMPILERS, why):
        return "COMPILE_ERROR"
    return STATUSES[verdict["status"]]


def _told(rows: list[dict]) -> dict:
    """What a log says of the records behind a trace."""
    row = rows[0]
    samples = sum(len(r["samples_us"]) for r in rows)
    kept = {name: row.get(name) for name in KEPT}
    return record.plain(kept | {
        "statistic": "median over blocks of medians" if samples else None,
        "blocks": len(rows), "samples": samples, "flags": list(merged(r["flags"] for r in rows)),
        "verdict": row["verdict"]["status"], "why": row["verdict"].get("why") or "",
        "source": row["environment"].get("source"), "commit": row["environment"].get("commit"),
    })  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Run:
    """A trace of a solution on a workload, ours or others'."""

    definition: str
    heads: int
    topk: int
    page_size: int
    axes: dict
    uuid: str  # of the workload
    author: str  # of the solution: the folder that the file is in; empty where it is in none
    solution: str
    status: str
    latency_us: float  # nan where none was taken
    statistic: str  # of the latency; empty: the trace does not say
    clock: str  # empty: the trace does not say
    cache: str
    flags: tuple[str, ...]
    max_relative_error: float  # over elements; nan where none was computed
    max_absolute_error: float
    hardware: str
    libs: dict
    at: str
    why: str  # of a failure: what our log says, or how another's ends


def run_of(trace: dict, c: Contract, author: str) -> Run:
    """A valid trace with its evaluation, on a workload of the definition `c`, as a run."""
    held, workload = trace["evaluation"], trace["workload"]
    log = held.get("log", "")
    told = told_of(log)
    last = "" if told or held["status"] == "PASSED" else "".join(log.strip().splitlines()[-1:])
    latency = (held.get("performance") or {}).get("latency_ms", math.nan)
    errors = held.get("correctness") or {}
    return Run(
        definition=trace["definition"], solution=trace.get("solution") or "", author=author,
        heads=c.heads, topk=c.topk, page_size=c.page_size,
        axes=workload["axes"], uuid=workload["uuid"], status=held["status"],
        latency_us=float(latency) * 1e3, statistic=told.get("statistic") or "",
        clock=told.get("clock") or "", cache=told.get("cache") or "",
        flags=tuple(told.get("flags") or ()),
        max_relative_error=float(errors.get("max_relative_error", math.nan)),
        max_absolute_error=float(errors.get("max_absolute_error", math.nan)),
        hardware=held["environment"]["hardware"], libs=held["environment"].get("libs", {}),
        at=held["timestamp"],
        why=told.get("why") or last[:200],
    )  # fmt: skip


def told_of(log: str) -> dict:
    """What our own log says, texts and the list of flags; empty of a log that others wrote."""
    try:
        found = json.loads(log.removeprefix(TOLD)) if log.startswith(TOLD) else {}
    except (ValueError, RecursionError):
        return {}
    known = found if isinstance(found, dict) else {}
    flags = known.pop("flags", [])
    told = {name: value for name, value in known.items() if isinstance(value, str)}
    texts = isinstance(flags, list) and all(isinstance(flag, str) for flag in flags)
    return told | ({"flags": flags} if texts and flags else {})
