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
    be written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock")), path.open("a+b") as file:
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
        found += sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    return found


def read(path: Path) -> list[dict]:
    """All complete records of one file; a torn last line is left out with a warning.

    Raises RecordError on a broken line elsewhere, or a record of another schema.
    """
    rows = []
    lines = Path(path).read_text().split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):  # no newline behind it: its writer was killed
                warnings.warn(f"{path}:{number}: left out a torn last line", stacklevel=2)
                break
            raise RecordError(f"{path}:{number}: not a record: {line[:60]!r}") from None
        schema = row.get("schema") if isinstance(row, dict) else None
        if schema != SCHEMA:
            raise RecordError(f"{path}:{number}: a record of schema {schema}, "
                              f"this workbench reads schema {SCHEMA}")  # fmt: skip
        rows.append(row)
    return rows


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
            values.setdefault((row["op"], row["variant"], name), set()).add(value)
    names = []
    for row in rows:
        differs = [
            f"{name}={value}"
            for name, value in row["config_asked"].items()
            if len(values[row["op"], row["variant"], name]) > 1
        ]
        names.append(row["variant"] + (f" {', '.join(differs)}" if differs else ""))
    return names
