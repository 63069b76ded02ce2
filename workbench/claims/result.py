"""The result of a claim: what follows from its records, and nothing else."""

import hashlib
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import atomic, record
from ..comparison import Compared, Line, compare_arms, lines
from ..evidence import derived
from ..flags import merged, summed
from ..models.crossover import next_point, said
from ..models.ratio import as_share
from ..op import Op
from .claim import Claim

SCHEMA = 1
SETUP = ("device", "capability", "driver", "cuda", "torch", "triton")  # must agree for a diff


def derive(claim: Claim, op: Op, rows: list[dict]) -> dict:
    """The result of a claim on these rows: verdict, intervals, noise, flags, hashes of the rows.

    A flagged record makes the verdict INVALID: what it would have been stands beside it. Raises
    ValueError where the rows do not answer the claim, or come from several devices.
    """
    timed = _asked_of(claim, op, rows)
    setups = {tuple(r["environment"].get(k) for k in SETUP) for r in timed}
    if len(setups) != 1:
        apart = {k: v for k, v in zip(SETUP, map(set, zip(*setups, strict=True)), strict=True)
                 if len(v) > 1}  # fmt: skip
        said = "; ".join(f"{k} {' and '.join(sorted(map(str, v)))}" for k, v in apart.items())
        raise ValueError(f"these records come from {len(setups)} setups, a claim holds on one: "
                         f"{said}")  # fmt: skip
    if claim.axis:
        line = line_of(claim, op, timed)
        found = _of_line(claim, line)
        cases, flags = line.cases, line.flags
    else:
        cases = cases_of(claim, op, timed)
        found = {"verdict": cases[0].verdict if len(cases) == 1 else "MIXED",
                 "said": "; ".join(f"{c.place or 'default'}: {c.said}" for c in cases)}  # fmt: skip
        if len({c.verdict for c in cases}) == 1:
            found["verdict"] = cases[0].verdict
        flags = merged(c.flags for c in cases)
    if flags:
        found = {"verdict": "INVALID", "would_be": found["verdict"]} | {
            k: v for k, v in found.items() if k != "verdict"}  # fmt: skip
    return record.plain({
        "question": claim.question, **found, "a": claim.a, "b": claim.b, "clock": claim.clock,
        "cases": [_case(c) for c in cases],
        "noise": max((as_share(c.noise) for c in cases if c.noise == c.noise), default=None),
        "flags": summed(flags), "blocks": min(c.ratio.blocks for c in cases),
        "notes": _notes(claim, timed, cases, line if claim.axis else None),
        "environment": dict(zip(SETUP, setups.pop(), strict=True)),
        "records": sorted(hash_of(r) for r in timed), "schema": SCHEMA,
    })  # fmt: skip


def _notes(claim: Claim, rows: list[dict], cases, line: Line | None) -> list[str]:
    """What of the measurement falls short of what the claim asks, or was not done in one go."""
    out = []
    short = [c.place or "default" for c in cases if c.ratio.blocks < claim.blocks]
    if short:
        out.append(f"fewer than {claim.blocks} process blocks: {'; '.join(short)}")
    for key, told in (("uuid", "on {} GPUs of this kind"),
                      ("source", "by {} states of the source")):  # fmt: skip
        several = len({r["environment"].get(key) for r in rows})
        if several > 1:
            out.append("measured " + told.format(several))
    if line is not None and claim.refine and len(line.found.x) < claim.most_points:
        point = next_of(claim, line)
        if point is not None:
            out.append(f"not as fine as asked: {claim.axis}={point:.6g} is the next point")
    return out


def next_of(claim: Claim, line: Line) -> float | None:
    """The point along the axis that refinement would measure next; None when it is done."""
    whole = all(isinstance(v, int) for v in claim.values)
    point = next_point(line.found, line.found.x, claim.refine, whole=whole)
    return point if point is None or not whole else int(point)


def _asked_of(claim: Claim, op: Op, rows: list[dict]) -> list[dict]:
    """The rows with times of the claim's workloads by its clock; any value of its axis is one."""
    default = vars(op.Workload())  # records may be older than a field
    workloads = [{k: v for k, v in vars(w).items() if k != claim.axis}
                 for w in claim.workloads(op)]  # fmt: skip
    found = [
        r for r in rows
        if r["samples_us"] and r["op"] == claim.op and r["clock"] == claim.clock
        and any(all(r["workload"].get(k, default[k]) == v for k, v in w.items()) for w in workloads)
    ]  # fmt: skip
    if not found:
        raise ValueError(f"no record here has times of {claim.op} by {claim.clock} on the "
                         "workloads of the claim")  # fmt: skip
    return found


def line_of(claim: Claim, op: Op, rows: list[dict]) -> Line:
    """The claim's arms along its axis, from the rows of its studies."""
    table = derived(record.table(rows))
    found = list(lines(table, *_labels(claim, op, table), claim.axis, claim.band))
    if len(found) != 1:
        raise ValueError(f"a claim along {claim.axis} is of one line, these records hold "
                         f"{len(found)}")  # fmt: skip
    return found[0]


def cases_of(claim: Claim, op: Op, rows: list[dict]) -> list[Compared]:
    """The claim's arms on each of its workloads, from the rows of its studies."""
    table = derived(record.table(rows))
    return compare_arms(table, *_labels(claim, op, table), claim.band)


def _labels(claim: Claim, op: Op, table) -> tuple[str, str]:
    """What the table calls the claim's arms: its labels hold only what differs within it."""
    out = []
    for arm in claim.arms(op):
        mine = table["variant"].eq(arm.variant.name)
        for name, value in arm.asked.items():
            if f"config_asked.{name}" in table:  # records may be older than a field
                mine &= table[f"config_asked.{name}"].isin([value, math.nan])
        if not mine.any():
            raise ValueError(f"no record here is of {arm.label!r}")
        out.append(table["arm"][mine].iloc[0])
    return out[0], out[1]


def _of_line(claim: Claim, line: Line) -> dict[str, Any]:
    found = line.found
    verdict = "CROSSES" if found.crossings else "AMBIGUOUS" if found.unresolved else (
        "FASTER" if found.winner == "B" else "SLOWER")  # fmt: skip
    return {
        "verdict": verdict, "axis": claim.axis,
        "said": said(found, claim.a, claim.b, claim.axis),
        "crossings": [
            {"between": list(c.between), "at": c.at, "low": c.low, "high": c.high,
             "faster_beyond": claim.b if c.direction == "B" else claim.a}
            for c in found.crossings
        ],
    }  # fmt: skip


def _case(c: Compared) -> dict:
    return {"place": c.place, "a_us": c.a_us, "b_us": c.b_us, "ratio": c.ratio.value,
            "low": c.ratio.low, "high": c.ratio.high, "verdict": c.verdict}  # fmt: skip


def hash_of(row: dict) -> str:
    """The hash of a record, whatever the order of its keys in the file."""
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()[:16]


def result_path(claim_file: Path, device: str) -> Path:
    """Where the result of a claim on a device stands: beside it."""
    return claim_file.with_name(f"{claim_file.stem}.{record.slug(device)}.json")


def write_result(path: Path, result: dict) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**result, "at": datetime.now(UTC).isoformat(timespec="seconds")}, indent=1)
    atomic.write(path, text + "\n")
