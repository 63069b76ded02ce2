"""A result looked at again: does it follow from its records, does another one differ?"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ..op import Op
from .claim import Claim, first_fault
from .result import SCHEMA, SETUP, derive, hash_of

CLOSE = 1e-9  # relative: what logarithms of two processors may differ by


class _Case(BaseModel):
    place: str
    ratio: float
    low: float | None  # of one block there is no interval
    high: float | None


class _Crossing(BaseModel):
    between: tuple[float, float]


class _Result(BaseModel):
    """What a result must hold to be checked or compared."""

    question: str
    a: str
    b: str
    clock: str
    verdict: str
    environment: dict
    cases: list[_Case]
    crossings: list[_Crossing] = []
    records: list[str] = Field(min_length=1)


def read_result(path: Path) -> dict:
    """Read a result. Raises ValueError on what is none, FileNotFoundError where nothing is."""
    if not path.is_file():
        raise FileNotFoundError(f"no result at {path}: `workbench claim run` writes it")
    try:
        found = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is no JSON") from None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no result of a claim of schema {SCHEMA}")
    try:
        _Result.model_validate(found)
    except ValidationError as error:
        raise ValueError(f"{path} is no result of a claim: {first_fault(error)}") from None
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
        return [f"{asked - len(kept)} of {asked} records are not among those that were looked at, "
                "or were changed: name their file"]  # fmt: skip
    try:
        again = json.loads(json.dumps(derive(claim, op, kept)))
    except ValueError as error:
        return [str(error)]
    return [
        f"{where} is {here!r:.120}, the records give {there!r:.120}"
        for where, here, there in _apart(result | {"at": None}, again | {"at": None})
    ]


def _apart(one: Any, other: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(where, one's value, the other's) of each place in which two JSON values differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one | other:
            yield from _apart(one.get(key), other.get(key), f"{where} {key}".strip())
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            yield from _apart(*pair, f"{where}[{i}]")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=CLOSE):
            yield where, one, other
    elif one != other:
        yield where, one, other


def difference(one: dict, other: dict) -> list[str]:
    """How two results of a claim differ. Raises ValueError where they cannot be compared."""
    for name in ("question", "a", "b", "clock"):
        if one.get(name) != other.get(name):
            raise ValueError(f"not the same claim: {name} is {one.get(name)!r} and "
                             f"{other.get(name)!r}")  # fmt: skip
    for side, result in (("first", one), ("second", other)):
        if result["verdict"] == "INVALID":
            raise ValueError(f"the {side} result is INVALID: flagged records compare nothing")
    setups = one["environment"], other["environment"]
    apart = [f"{k}: {setups[0].get(k)} and {setups[1].get(k)}"
             for k in SETUP if setups[0].get(k) != setups[1].get(k)]  # fmt: skip
    if apart:
        raise ValueError(f"not comparable, the machines differ: {'; '.join(apart)}")
    out = []
    if one["verdict"] != other["verdict"]:
        out.append(f"verdict: {one['verdict']} and {other['verdict']}")
    crossings = one.get("crossings", []), other.get("crossings", [])
    if len(crossings[0]) != len(crossings[1]):
        out.append(f"crossings: {len(crossings[0])} and {len(crossings[1])}")
    for c, d in zip(*crossings, strict=False):
        if c["between"][1] < d["between"][0] or d["between"][1] < c["between"][0]:
            out.append(f"crossing: between {' and '.join(map(str, c['between']))}, and between "
                       f"{' and '.join(map(str, d['between']))}")  # fmt: skip
    places = {c["place"]: c for c in other["cases"]}
    for c in one["cases"]:
        d = places.get(c["place"])
        if not d or None in (c["low"], d["low"]):  # of one block there is no interval
            continue
        if c["high"] < d["low"] or d["high"] < c["low"]:
            out.append(f"{c['place']}: {c['ratio']:.3f} ({c['low']:.3f} to {c['high']:.3f}) and "
                       f"{d['ratio']:.3f} ({d['low']:.3f} to {d['high']:.3f})")  # fmt: skip
    return out
