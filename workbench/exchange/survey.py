"""What a folder or file of FlashInfer-Bench's holds: read, checked, never run.

A broken line or tensor is told with its place and does not hide the rest. Definitions of other
operations are counted, not judged.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

from ..selections import union_ratio, valid_lanes
from . import schema, workloads
from .definitions import Contract, contract, named
from .traces import Run, run_of

FOLDERS = ("definitions", "workloads", "solutions", "traces")
GROUPS = (2, 4, 8)  # neighbouring tokens whose union is told


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A workload of sparse attention, and what its indices are like."""

    definition: str
    uuid: str
    tokens: int
    rows: int  # of the cache: pages * page_size
    topk: int
    place: str  # file and line
    valid_rows_per_token: float | None = None  # None: not read
    union_ratio: dict[int, float] | None = None  # None: not read, or refused
    refusals: tuple[str, ...] = ()  # why its indices are no capture
    notes: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()  # what nothing here can tell of its indices
    missing: str = ""  # which blob is not there
    ours: dict | None = None  # fields of our own workload, where we wrote it


@dataclass(frozen=True, kw_only=True)
class Survey:
    """All that was found."""

    contracts: dict[str, Contract]  # definitions that are `sparse_prefill`
    others: dict[str, str]  # definition -> why it is not
    workloads: tuple[Drawn, ...]
    runs: tuple[Run, ...]
    solutions: int
    elsewhere: int  # workloads and runs of the others
    faults: tuple[str, ...]  # what could not be read, with its file and line

    @property
    def sound(self) -> bool:
        return not self.faults and not any(w.refusals for w in self.workloads)


class Entry(NamedTuple):
    """A line of a file: a valid trace, with or without an evaluation."""

    trace: dict
    author: str
    place: str


def survey(path: Path, groups: Sequence[int] = GROUPS) -> Survey:
    """Read `path`: a folder with definitions, workloads or traces, or one file of such a folder.

    Raises FileNotFoundError where there is nothing, ValueError where it is no such folder or file.
    """
    root, files = _opened(Path(path))
    faults: list[str] = []
    documents, solutions = _documents(root, files, faults)
    contracts, others = _sorted(documents)
    entries = list(_entries(root, files, faults))
    for name in dict.fromkeys(e.trace["definition"] for e in entries):
        if name not in contracts and name not in others:
            known = named(name)
            if known:
                contracts[name] = known
            else:
                others[name] = "no such definition here"
    drawn, runs = [], []
    mine = [e for e in entries if e.trace["definition"] in contracts]
    for entry in mine:
        c = contracts[entry.trace["definition"]]
        try:
            if entry.trace.get("evaluation") is not None:
                runs.append(run_of(entry.trace, c, entry.author))
            else:
                drawn.append(_drawn(entry, c, root, groups))
        except ValueError as error:
            faults.append(f"{entry.place}: {_short(error)}")
    return Survey(contracts=contracts, others=others, workloads=tuple(drawn), runs=tuple(runs),
                  solutions=solutions, elsewhere=len(entries) - len(mine),
                  faults=tuple(faults))  # fmt: skip


def _opened(path: Path) -> tuple[Path, list[Path]]:
    """(the folder that blob paths start from, the files to read).

    Of one file it is the nearest folder above that holds blobs or definitions, and those
    definitions are read, too.
    """
    if path.is_dir():
        folders = [path / name for name in FOLDERS if (path / name).is_dir()]
        if not folders:
            raise ValueError(f"{path} holds none of {', '.join(FOLDERS)}")
        files = [f for folder in folders for f in sorted(folder.rglob("*")) if f.is_file()]
        return path, [f for f in files if f.suffix in (".json", ".jsonl")]
    if not path.is_file():
        raise FileNotFoundError(f"no file or folder at {path}")
    if path.suffix not in (".json", ".jsonl"):
        raise ValueError(f"{path} is neither a folder, nor .json, nor .jsonl")
    above = path.absolute().parents
    near = (p for p in above if (p / "blob").is_dir() or (p / "definitions").is_dir())
    root = next(near, above[0])
    beside = sorted((root / "definitions").rglob("*.json")) if path.suffix == ".jsonl" else []
    return root, [*beside, path]


def _documents(root: Path, files: list[Path], faults: list[str]) -> tuple[list[dict], int]:
    """(the valid definitions, the number of valid solutions); of other documents, the fault."""
    definitions, solutions = {}, 0
    for file in files:
        if file.suffix != ".json":
            continue
        try:
            value = json.loads(file.read_bytes())
            is_solution = isinstance(value, dict) and "sources" in value
            fault = schema.solution(value) if is_solution else schema.definition(value)
            if not fault and not is_solution and value["name"] in definitions:
                fault = f"a second definition of the name {value['name']!r}"
            if fault:
                raise ValueError(fault)
        except (ValueError, RecursionError) as error:
            faults.append(f"{_place(root, file)}: {_short(error)}")
            continue
        solutions += is_solution
        if not is_solution:
            definitions[value["name"]] = value
    return list(definitions.values()), solutions


def _sorted(documents: list[dict]) -> tuple[dict[str, Contract], dict[str, str]]:
    """(what the definitions of `sparse_prefill` fix, why the others are not of it)."""
    contracts, others = {}, {}
    for document in documents:
        try:
            contracts[document["name"]] = contract(document)
        except ValueError as error:
            others[document["name"]] = str(error)
    return contracts, others


def _entries(root: Path, files: list[Path], faults: list[str]) -> Iterator[Entry]:
    """Every line that is a trace; of each other line, its fault."""
    for file in files:
        if file.suffix != ".jsonl":
            continue
        folders = file.absolute().parts
        at = folders.index("traces") if "traces" in folders else len(folders)
        author = folders[at + 1] if len(folders) > at + 3 else ""  # traces/AUTHOR/OP_TYPE/FILE
        for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
            place = f"{_place(root, file)}:{number}"
            if line.strip():
                try:
                    yield Entry(_trace(line), author, place)
                except (ValueError, RecursionError) as error:
                    faults.append(f"{place}: {_short(error)}")


def _trace(line: bytes) -> dict:
    entry = json.loads(line)
    if fault := schema.trace(entry, "line"):
        raise ValueError(fault)
    if (entry.get("solution") is None) != (entry.get("evaluation") is None):
        raise ValueError(f"solution {entry.get('solution')!r} and evaluation: one of them is null")
    return entry


def _drawn(entry: Entry, c: Contract, root: Path, groups: Sequence[int]) -> Drawn:
    """What the line of a workload says. Raises ValueError where its tensors are not as defined."""
    trace = entry.trace
    rows, tokens = workloads.rows_of(trace, c), workloads.axes_of(trace)["num_tokens"]
    said = {"definition": trace["definition"], "uuid": trace["workload"]["uuid"], "topk": c.topk,
            "tokens": tokens, "rows": rows, "place": entry.place}  # fmt: skip
    try:
        found = workloads.read_selection(trace, c, root)
    except FileNotFoundError as error:
        return Drawn(**said, missing=str(error))
    valid = valid_lanes(found.selection.indices, rows, None)
    lanes, size = _few(found.selection.indices, valid, rows)
    ratios = {g: union_ratio(lanes, size, g) for g in groups if not found.refusals}
    return Drawn(**said, valid_rows_per_token=int(valid.sum()) / tokens if tokens else None,
                 union_ratio=ratios or None, refusals=found.refusals, notes=found.notes,
                 unchecked=found.unchecked, ours=workloads.fields(trace, root))  # fmt: skip


def _few(indices: torch.Tensor, valid: torch.Tensor, rows: int) -> tuple[torch.Tensor, int]:
    """(lanes, rows) with the same unions: a pool of millions costs what is named of it."""
    if rows <= indices.numel():
        return indices, rows
    named_rows, numbers = indices.unique(return_inverse=True)
    return torch.where(valid, numbers, -1).int(), len(named_rows)


def _place(root: Path, file: Path) -> str:
    inside, root = file.absolute(), root.absolute()
    return str(inside.relative_to(root) if inside.is_relative_to(root) else file)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
