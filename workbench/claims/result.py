"""The result of a claim: derived from records, derived again by whoever doubts it."""

import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import record
from ..arms import arm_named
from ..comparison import Compared, Line, compare_arms, lines
from ..evidence import derived
from ..flags import summed
from ..models.crossover import said
from ..op import Op
from .claim import Claim

SCHEMA = 1
SETUP = ("device", "capability", "driver", "cuda", "torch", "triton")  # must agree for a diff


def derive(claim: Claim, op: Op, rows: list[dict]) -> dict:
    """The result of a claim on these rows: verdict, intervals, noise, flags, hashes of the rows.

    A flagged record makes the verdict INVALID: what it would have been stands beside it. Raises
    ValueError where the rows do not answer the claim, or come from several devices.
    """
    timed = [r for r in rows if r["samples_us"] and r["op"] == claim.op
             and r["clock"] == claim.clock]  # fmt: skip
    if not timed:
        raise ValueError(f"no record here has times of {claim.op} by {claim.clock}")
    setups = {tuple(r["environment"].get(k) for k in SETUP) for r in timed}
    if len(setups) != 1:
        raise ValueError(f"these records come from {len(setups)} setups: a claim holds on one")
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
        flags = tuple(dict.fromkeys(f for c in cases for f in c.flags))
    if flags:
        found = {"verdict": "INVALID", "would_be": found["verdict"]} | {
            k: v for k, v in found.items() if k != "verdict"}  # fmt: skip
    return {
        "question": claim.question, **found, "a": claim.a, "b": claim.b, "clock": claim.clock,
        "cases": [_case(c) for c in cases],
        "noise": max((c.noise for c in cases if c.noise == c.noise), default=None),
        "flags": summed(flags), "blocks": min(c.ratio.blocks for c in cases),
        "environment": dict(zip(SETUP, setups.pop(), strict=True)),
        "records": sorted(hash_of(r) for r in timed), "schema": SCHEMA,
    }  # fmt: skip


def line_of(claim: Claim, op: Op, rows: list[dict]) -> Line:
    """The claim's arms along its axis, from the rows of its studies."""
    table = derived(record.table(rows))
    (line,) = lines(table, *_labels(claim, op, table), claim.axis, claim.band)
    return line


def cases_of(claim: Claim, op: Op, rows: list[dict]) -> list[Compared]:
    """The claim's arms on each of its workloads, from the rows of its studies."""
    table = derived(record.table(rows))
    return compare_arms(table, *_labels(claim, op, table), claim.band)


def _labels(claim: Claim, op: Op, table) -> tuple[str, str]:
    """What the table calls the claim's arms: its labels hold only what differs within it."""
    out = []
    for text in (claim.a, claim.b):
        arm = arm_named(op, text)
        mine = table["variant"].eq(arm.variant.name)
        for name, value in arm.changes:
            mine &= table[f"config_asked.{name}"].eq(value)
        if not mine.any():
            raise ValueError(f"no record here is of {text!r}")
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
    partial = path.with_name(f".{path.name}.partial")
    text = json.dumps({**result, "at": datetime.now(UTC).isoformat(timespec="seconds")}, indent=1)
    try:
        partial.write_text(text + "\n")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def read_result(path: Path) -> dict:
    """Read a result. Raises ValueError on what is none, FileNotFoundError where nothing is."""
    if not path.is_file():
        raise FileNotFoundError(f"no result at {path}: `workbench claim run` writes it")
    try:
        found = json.loads(path.read_text())
    except ValueError:
        raise ValueError(f"{path} is no JSON") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or "records" not in found:
        raise ValueError(f"{path} is no result of a claim of schema {SCHEMA}")
    return found


def named(result: dict, rows: list[dict]) -> list[dict]:
    """The rows that a result names, each once."""
    wanted = set(result["records"])
    found = {key: row for row in rows if (key := hash_of(row)) in wanted}
    return list(found.values())


def check(claim: Claim, op: Op, result: dict, rows: list[dict]) -> list[str]:
    """What of `result` does not follow from `rows`: an empty list where it holds.

    Records that the result does not name are left aside; one that it names and that is not there,
    or was changed, is a fault.
    """
    kept, asked = named(result, rows), len(result["records"])
    if len(kept) != asked:
        return [f"{asked - len(kept)} of {asked} records are not there or were changed"]
    again = json.loads(json.dumps(derive(claim, op, kept)))
    return [
        f"{name} is {result.get(name)!r:.120}, the records give {value!r:.120}"
        for name, value in again.items()
        if result.get(name) != value
    ]


def difference(one: dict, other: dict) -> list[str]:
    """How two results of a claim differ. Raises ValueError where they cannot be compared."""
    for name in ("question", "a", "b", "clock"):
        if one.get(name) != other.get(name):
            raise ValueError(f"not the same claim: {name} is {one.get(name)!r} and "
                             f"{other.get(name)!r}")  # fmt: skip
    setups = one["environment"], other["environment"]
    apart = [f"{k}: {setups[0].get(k)} and {setups[1].get(k)}"
             for k in SETUP if setups[0].get(k) != setups[1].get(k)]  # fmt: skip
    if apart:
        raise ValueError(f"not comparable, the machines differ: {'; '.join(apart)}")
    out = []
    if one["verdict"] != other["verdict"]:
        out.append(f"verdict: {one['verdict']} and {other['verdict']}")
    places = {c["place"]: c for c in other["cases"]}
    for c in one["cases"]:
        d = places.get(c["place"])
        if d and (c["high"] < d["low"] or d["high"] < c["low"]):
            out.append(f"{c['place']}: {c['ratio']:.3f} ({c['low']:.3f} to {c['high']:.3f}) and "
                       f"{d['ratio']:.3f} ({d['low']:.3f} to {d['high']:.3f})")  # fmt: skip
    return out
