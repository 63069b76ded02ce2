"""Measurements on disk: append-only JSON lines, every raw sample, one schema."""

import json
import math
import os
import warnings
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from .machine import Environment
from .op import Verdict

SCHEMA = 1
LOCK_S = 60.0  # no record takes long to write: a lock held longer is a stuck process's
_KINDS = {"op": str, "variant": str, "config": dict, "config_asked": dict, "workload": dict,
          "verdict": dict, "clock": str, "cache": str, "samples_us": list, "flags": list,
          "environment": dict}  # fmt: skip
RECORD_BEGINS = b'{"op":'
CHECKOUT = Path(__file__).parents[1]


class RecordError(ValueError):
    """A record file that cannot be read, with its name and line."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One variant on one workload: its verdict, and its samples where it passed."""

    op: str
    variant: str
    config: dict  # that ran
    config_asked: dict  # differs where a tile was stepped down
    workload: dict
    verdict: Verdict
    cost: dict | None  # the floor of the question it answers: bytes, flops; None: no inputs
    statistics: dict | None  # of the inputs: overlap, touched pages
    clock: str  # that was asked for; samples are empty where nothing was timed
    cache: str  # state of the caches before a sample: "cold", "hot", or empty
    calls_per_sample: int  # a sample is the mean of this many calls back to back; 0 without samples
    samples_us: list[float]  # microseconds a call, in the order they were taken
    flags: list[str]  # what a reader should know before believing the samples
    environment: Environment
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA

    def __post_init__(self):
        if self.samples_us and not self.verdict.passed:
            raise ValueError(f"{self.variant} has times but did not pass: {self.verdict.why}")


def plain(value: Any) -> Any:
    """Numbers that JSON cannot hold become null: absent is absent."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_row(m: Measurement) -> dict:
    """The record as it stands in a file."""
    return plain(asdict(m))


def append(path: Path, *measurements: Measurement) -> None:
    """Add records to `path`, each in one write, under a lock; a torn last line is cut off first.

    A line without its newline is what a killed writer leaves. Raises OSError where the file cannot
    be written, RecordError where it holds something else than records of this schema.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise RecordError(f"{path} is no regular file")
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S)
    with path.open("a+b") as file, lock:  # opened first: a lock waits where a file is refused
        if not measurements:
            read(path)  # the first look at a file, before a study: is it one of ours?
        _mend(path, file)
        for m in measurements:
            file.write(json.dumps(as_row(m), separators=(",", ":")).encode() + b"\n")
            file.flush()
        os.fsync(file.fileno())


def _mend(path: Path, file) -> None:
    size = file.seek(0, os.SEEK_END)
    if not size:
        return
    file.seek(size - 1)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    content = file.read()
    torn = content[content.rfind(b"\n") + 1 :]
    try:
        json.loads(torn)
        file.write(b"\n")  # whole, only its newline is missing
    except ValueError:
        if not torn.startswith(RECORD_BEGINS[: len(torn)]):
            raise RecordError(f"{path}: its last line is no record: {torn[:60]!r}") from None
        warnings.warn(f"{path}: cut off a torn last line of {len(torn)} bytes", stacklevel=3)
        file.truncate(size - len(torn))


def files(*paths: Path | str) -> list[Path]:
    """The record files among `paths`: files as they are, folders searched for *.jsonl.

    A relative path that is not below the current folder is looked for in the checkout, so that a
    notebook finds committed records wherever it runs. Raises FileNotFoundError where there is none.
    """
    found = []
    for path in map(Path, paths):
        if not path.exists():
            if not (CHECKOUT / path).exists():
                raise FileNotFoundError(f"no record file or folder at {path}")
            path = CHECKOUT / path
        if not path.is_dir() and not path.is_file():
            raise RecordError(f"{path} is neither a file nor a folder")
        found += sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    return found


def read(path: Path) -> list[dict]:
    """All complete records of one file; a torn last line is left out with a warning.

    Raises RecordError on a broken line elsewhere, a record of another schema, or one that lacks a
    field.
    """
    rows = []
    lines = Path(path).read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines) and line.startswith(RECORD_BEGINS[: len(line)]):
                # no newline behind it: its writer was killed
                warnings.warn(f"{path}:{number}: left out a torn last line", stacklevel=2)
                break
            raise RecordError(f"{path}:{number}: not a record: {line[:60]!r}") from None
        if reason := _fault(row):
            raise RecordError(f"{path}:{number}: {reason}")
        rows.append(row)
    return rows


def _fault(row: Any) -> str | None:
    """Why a line of JSON is no record of this schema, or None."""
    schema = row.get("schema") if isinstance(row, dict) else None
    if schema != SCHEMA:
        return f"a record of schema {schema}, this workbench reads schema {SCHEMA}"
    for name, kind in _KINDS.items():
        if not isinstance(row.get(name), kind):
            return f"its {name} is {row.get(name)!r:.40}, not of type {kind.__name__}"
    if not all(isinstance(us, int | float) for us in row["samples_us"]):
        return "its samples_us are not all numbers"
    if not isinstance(row["verdict"].get("status"), str):
        return "its verdict has no status"
    return None


def load(*paths: Path | str):
    """All records of files and folders as one `table`. Raises RecordError where there are none."""
    rows = [row | {"file": path.name} for path in files(*paths) for row in read(path)]
    if not rows:
        raise RecordError(f"no records in {', '.join(map(str, paths)) or 'no files'}")
    return table(rows)


def table(rows: list[dict]):
    """Records as a pandas DataFrame, one row each; every derived column is computed here.

    Nested fields become columns such as `workload.tokens`. Added: median_us, low_us and high_us
    (5th and 95th percentile of the samples), gb_per_s (least bytes over median), arm (the variant
    and those of its config fields that differ within the table).
    """
    import numpy as np
    import pandas as pd

    found = pd.json_normalize(rows, sep=".")
    for name, q in (("low_us", 5), ("median_us", 50), ("high_us", 95)):
        found[name] = [np.percentile(s, q) if s else np.nan for s in found["samples_us"]]
    least = found.get("cost.bytes", np.nan)
    found["gb_per_s"] = least / found["median_us"] / 1e3
    found["arm"] = _arms(rows)
    return found


def _arms(rows: list[dict]) -> list[str]:
    """Name a record by its variant and the config fields in which that variant's records differ."""
    values: dict[tuple, set] = {}
    for row in rows:
        for name, value in row["config_asked"].items():
            values.setdefault((row["op"], row["variant"], name), set()).add(str(value))
    names = []
    for row in rows:
        differs = [
            f"{name}={value}"
            for name, value in row["config_asked"].items()
            if len(values[row["op"], row["variant"], name]) > 1
        ]
        names.append(row["variant"] + (f" {', '.join(differs)}" if differs else ""))
    return names
