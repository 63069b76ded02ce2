"""The best groups as a file that a server could read: which group was fastest where, how surely.

The file is written from records and holds nothing else: each place with its fastest group, the next
best one, the 95 % interval of their ratio, and the blocks behind it. JSON with a schema number; a
table of another schema is refused, since a wrong default costs more than none.
"""

import json
import math
from pathlib import Path

import pandas as pd

from .. import atomic

SCHEMA = 1
TOLD = ["heads", "tokens", "topk", "context", "law", "churn", "place", "group", "arm", "us",
        "next_group", "next_arm", "next_ratio", "next_low", "next_high", "verdict", "blocks",
        "gain", "gain_low", "gain_high", "flags"]  # fmt: skip
PLACED = ("tokens", "context", "churn")  # what a workload may differ in from the nearest place


def table(best: pd.DataFrame, device: str, clock: str) -> dict:
    """The table of `grouping.best_group` for one device and clock.

    Raises ValueError where no place of them is known.
    """
    rows = best[(best["environment.device"] == device) & (best["clock"] == clock)]
    if not len(rows):
        raise ValueError(f"no place of {device} under {clock} has times of two group sizes")
    places = [{k: _plain(v) for k, v in row.items()} for row in rows[TOLD].to_dict("records")]
    return {"schema": SCHEMA, "device": device, "clock": clock, "places": places}


def _plain(value):
    """JSON's own: what is not known is null."""
    if isinstance(value, list | tuple):
        return list(value)
    missing = value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else getattr(value, "item", lambda: value)()


def write(path: Path, told: dict) -> None:
    """Write a table, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, json.dumps(told, indent=1) + "\n")


def read(path: Path | str) -> dict:
    """A table that `write` wrote. Raises ValueError on anything else, OSError where it is absent.
    """
    try:
        told = json.loads(Path(path).read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(told, dict) or told.get("schema") != SCHEMA:
        schema = told.get("schema") if isinstance(told, dict) else None
        raise ValueError(f"{path} has schema {schema!r}, not {SCHEMA}")
    return told


def nearest(told: dict, w) -> dict | None:
    """The place of the table that is most like workload `w`; None where none has its heads.

    Only places whose interval shows the next best group to be slower answer. Heads, topk and the
    law's name must agree; of tokens, context and churn the ratio counts.
    """
    context = w.cache_rows - w.tokens
    asked = {"tokens": w.tokens, "context": context, "churn": w.churn}
    law = w.law.partition(":")[0]
    alike = [p for p in told["places"] if p["verdict"] == "SLOWER" and p["heads"] == w.heads
             and p["topk"] == w.topk and p["law"].partition(":")[0] == law]  # fmt: skip
    return min(alike, key=lambda p: _distance(p, asked), default=None)


def _distance(place: dict, asked: dict) -> float:
    """Sum of squared log ratios; a context of 0 counts as one row, an unknown churn for nothing."""
    pairs = [(place[k], asked[k]) for k in PLACED if place[k] is not None]
    least = {True: 1e-3, False: 1}  # of a share, of a count
    logs = [math.log(max(a, least[isinstance(a, float)]) / max(b, least[isinstance(a, float)]))
            for a, b in pairs]  # fmt: skip
    return sum(v * v for v in logs)
