"""A folder of FlashInfer-Bench's layout, written whole or not at all.

* definitions/dsa_paged/NAME.json
* workloads/dsa_paged/NAME.jsonl, a line each
* blob/workloads/dsa_paged/NAME/NAME_ID.safetensors, the tensors of a workload
* solutions/AUTHOR/dsa_paged/NAME/SOLUTION.json
* traces/AUTHOR/dsa_paged/NAME.jsonl, a line for each solution and workload
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..ops.sparse_prefill.workload import Workload
from . import workloads
from .definitions import OP_TYPE, document
from .solutions import AUTHOR
from .traces import Exported, exported


@dataclass(frozen=True)
class Written:
    """What an export holds."""

    definitions: tuple[str, ...]
    workloads: int
    bytes: int  # of their tensors
    solutions: int
    traces: int
    without_inputs: int  # workloads of traces whose tensors are not in the folder
    left_out: tuple[tuple[str, str, int], ...]  # (what, why, how many)


def recorded(rows: list[dict]) -> list[Workload]:
    """The workloads of `sparse_prefill` that records are of, each once, in their order."""
    return exported(rows, page_size=1, stored="indices").workloads


def export(
    to: Path,
    rows: list[dict],
    asked: Sequence[Workload] = (),
    page_size: int = 1,
    stored: str = "all",
    report: Callable[[], None] = lambda: None,
) -> Written:
    """Write records `rows` as traces, and the workloads `asked` with their tensors, into `to`.

    `report` is called after each workload. Raises ValueError where `to` holds files already, where
    nothing can be exported, and on a page below one row; RecordError on a record that is none.
    """
    to = Path(to).absolute()
    if to.exists() and not (to.is_dir() and not any(to.iterdir())):
        raise ValueError(f"{to} is there already: an export goes into a folder of its own")
    if page_size < 1:
        raise ValueError(f"page_size={page_size} is below 1")
    if stored not in workloads.STORED:
        raise ValueError(f"inputs={stored!r} is none of {', '.join(workloads.STORED)}")
    found = exported(rows, page_size, stored)
    reasons = {w: workloads.refusal(w, page_size) for w in asked}
    written = [w for w, reason in reasons.items() if not reason]
    lost = [("workload", reason) for reason in reasons.values() if reason]
    counted = Counter((*found.left_out, *lost))
    left_out = tuple((what, why, number) for (what, why), number in counted.items())
    if not found.traces and not written:
        told = (
            "; ".join(f"{what}: {why}" for what, why, _ in left_out[:3]) or "no records, no suite"
        )
        raise ValueError(f"nothing to export: {told}")
    size = _whole(to, found, written, page_size, stored, report)
    names = {workloads.contract_of(w, page_size).name for w in (*written, *found.workloads)}
    without = len(set(found.workloads) - set(written))
    return Written(tuple(sorted(names)), len(written), size, len(found.solutions),
                   len(found.traces), without, left_out)  # fmt: skip


def _whole(to: Path, found: Exported, written, page_size: int, stored: str, report) -> int:
    """Write all files beside `to`, then put them there; return the bytes of the tensors."""
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f".{to.name}.{os.getpid()}.partial")
    try:
        size = 0
        for w in written:
            size += workloads.write(partial, w, page_size, stored)
            report()
        lines = [workloads.line(w, page_size, stored) for w in written]
        _lines(partial / "workloads" / OP_TYPE, lines)
        _lines(partial / "traces" / AUTHOR / OP_TYPE, found.traces)
        for w in dict.fromkeys((*written, *found.workloads)):
            definition = document(workloads.contract_of(w, page_size))
            _json(partial / "definitions" / OP_TYPE / f"{definition['name']}.json", definition)
        for solution in found.solutions:
            folder = partial / "solutions" / AUTHOR / OP_TYPE / solution["definition"]
            _json(folder / f"{solution['name']}.json", solution)
        os.replace(partial, to)  # an empty folder is replaced, a full one is not
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return size


def _lines(folder: Path, traces: list[dict]) -> None:
    """One file for each definition, a trace a line."""
    by_definition: dict[str, list[str]] = {}
    for trace in traces:
        by_definition.setdefault(trace["definition"], []).append(json.dumps(trace))
    for name, lines in by_definition.items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _json(file: Path, value: dict) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
