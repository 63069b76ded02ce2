"""Measurements on disk: append-only JSON lines, every raw sample, one schema."""

import json
import math
import os
import warnings
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from .machine import Environment
from .op import Verdict

SCHEMA = 3
READABLE = (1, 2, 3)
# The schema that a field came with: 1 knew no blocks, no A/A pair, no readings of the device, no
# ledger, and 2 did not tell the base of an lse
SINCE = dict.fromkeys(("ledger", "twin_us", "floor_us", "index_sets", "reuse_bytes", "profile",
                       "state", "study", "block"), 2) | {"lse_base": 3}  # fmt: skip
LOCK_S = 60.0  # no record takes long to write: a lock held longer is a stuck process's
_KINDS = {"op": str, "variant": str, "config": dict, "config_asked": dict, "workload": dict,
          "verdict": dict, "clock": str, "cache": str, "samples_us": list, "flags": list,
          "environment": dict}  # fmt: skip
_NUMBER = int | float
# null, or absent in an older schema
_OR_NULL = {"cost": dict, "statistics": dict, "ledger": dict, "profile": dict, "state": dict,
            "twin_us": list, "calls_per_sample": _NUMBER, "floor_us": _NUMBER,
            "index_sets": _NUMBER, "reuse_bytes": _NUMBER, "block": _NUMBER, "study": str,
            "at": str, "lse_base": _NUMBER}  # fmt: skip
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
    ledger: dict | None  # counts of the work that the variant does: rows, lanes, pages
    clock: str  # that was asked for; samples are empty where nothing was timed
    cache: str  # state of the caches before a sample: "cold", "hot", "rotating" or empty
    calls_per_sample: int  # a sample is the mean of this many calls back to back; 0 without samples
    samples_us: list[float]  # microseconds a call, in the order they were taken
    twin_us: list[float]  # of the study's first arm: the same arm once more in its turns (A/A)
    floor_us: float | None  # median of an empty kernel in the same turns
    index_sets: int  # sets of inputs that the calls went through; 1: each call read the same
    reuse_bytes: int | None  # distinct bytes touched from one use of a set to its next
    profile: dict | None  # one call under a profiler: span_us, kernels {name: [launches, us]}
    state: dict | None  # the GPU before, during and after: clocks, power, heat, throttling
    flags: list[str]  # what a reader should know before believing the samples
    study: str  # the run that made it; arms of one study and block took turns
    block: int  # number of the fresh process within its study
    environment: Environment
    lse_base: int | None = None  # as the op has it; None also in records of older schemas
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    schema: int = SCHEMA

    def __post_init__(self):
        if self.samples_us and not self.verdict.passed:
            raise ValueError(f"{self.variant} has times but did not pass: {self.verdict.why}")


FIELDS = tuple(f.name for f in fields(Measurement))
SAMPLES = ("samples_us", "twin_us")


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
    """`append_rows` for measurements; without any, only look whether `path` can be written."""
    append_rows(path, [as_row(m) for m in measurements])


def append_rows(path: Path, rows: list[dict]) -> None:
    """Add rows to `path`, each in one write, under a lock; a torn last line is cut off first.

    A line without its newline is what a killed writer leaves. Raises OSError where the file cannot
    be written, RecordError where it holds something else than records of this schema.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        raise RecordError(f"{path} is no regular file")
    lock = FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S)
    with path.open("a+b") as file, lock:  # opened first: a lock waits where a file is refused
        if not rows:
            read(path)  # the first look at a file, before a study: is it one of ours?
        _mend(path, file)
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
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


def found(path: Path | str) -> Path:
    """`path`, or its place in the checkout where it is there and not below the current folder.

    So a notebook finds what is committed wherever it runs.
    """
    path = Path(path)
    return path if path.exists() or not (CHECKOUT / path).exists() else CHECKOUT / path


def files(*paths: Path | str) -> list[Path]:
    """The record files among `paths`, each as `found`: files as they are, folders with *.jsonl.

    Each stands there once: two of each of its blocks would make every interval too narrow.

    Raises FileNotFoundError where there is none, RecordError on what is neither.
    """
    out = []
    for path in map(found, paths):
        if not path.exists():
            raise FileNotFoundError(f"no record file or folder at {path}")
        if not path.is_dir() and not path.is_file():
            raise RecordError(f"{path} is neither a file nor a folder")
        out += sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    return list({path.resolve(): path for path in reversed(out)}.values())[::-1]


def slug(device: str) -> str:
    """A device name as part of a file name."""
    return "_".join("".join(c if c.isalnum() else " " for c in device.lower()).split())


def rows(*paths: Path | str) -> list[dict]:
    """All records of files and folders, as they stand there. Raises RecordError."""
    return [row for path in files(*paths) for row in read(path)]


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
    if schema not in READABLE:
        return f"a record of schema {schema}, this workbench reads schemas {READABLE}"
    for name in (*_KINDS, *_OR_NULL):
        if reason := misfit(name, row.get(name)):
            return reason
    return None


def misfit(name: str, value: Any) -> str | None:
    """Why `value` cannot be the field `name` of a record, or None."""
    kind = _KINDS.get(name) or _OR_NULL.get(name, object)
    if value is None and name not in _KINDS:
        return None
    if not isinstance(value, kind):
        return f"its {name} is {value!r:.40}, not of type {getattr(kind, '__name__', kind)}"
    if name in SAMPLES and not all(isinstance(us, _NUMBER) for us in value):
        return f"its {name} are not all numbers"
    if name == "flags" and not all(isinstance(flag, str) for flag in value):
        return "its flags are not all text"
    if name == "cost":
        for part in ("bytes", "flops"):
            number = value.get(part)
            if isinstance(number, bool) or not isinstance(number, _NUMBER | None):
                return f"its cost.{part} is {number!r:.40}, no number"
    if name == "verdict" and not isinstance(value.get("status"), str):
        return "its verdict has no status"
    return None


def load(*paths: Path | str):
    """All records of files and folders as one `table`. Raises RecordError where there are none."""
    rows = [row | {"file": path.name} for path in files(*paths) for row in read(path)]
    if not rows:
        raise RecordError(f"no records in {', '.join(map(str, paths)) or 'no files'}")
    return table(rows)


def table(rows: list[dict]):
    """Records as a pandas DataFrame, one row each, with the columns that `columns.table` adds."""
    from .columns import of_rows, table

    return table(*of_rows(rows, FIELDS))
