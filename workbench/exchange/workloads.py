"""Our workloads as FlashInfer-Bench's lines, with the tensors they name; and its lines as tensors.

A line says where each input comes from: `random` (a standard normal draw), a `scalar`, or a tensor
of a `safetensors` file below the dataset's folder.
"""

import json
import uuid
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import torch

from ..ops.sparse_prefill.definition import Workload, make_inputs
from . import blobs
from .definitions import INPUTS, OP_TYPE, Contract, shape
from .paged import Paged, paged
from .selection import Imported, imported

STORED = ("all", "indices")  # which tensors are in files; the others are `random`, as in captures
INDICES = "sparse_indices"
MOST = 2**31 - 1  # rows of a cache whose rows an int32 names
SPACE = uuid.UUID("6b1a0f5e-3c57-5d0c-9f3e-0b6a7d5a2c11")  # of our workloads' ids


def refusal(w: Workload, page_size: int) -> str | None:
    """Why the definition cannot say what `w` asks, or None."""
    if w.sink != "none":
        return f"sink={w.sink!r}: the definition has no attention sink"
    for name, size in (("tokens", w.tokens), ("rows", w.cache_rows)):
        if size < 1:
            return f"{name}={size}: an axis of its workloads is at least 1"
    rows = _pages(w, page_size) * page_size
    return f"rows={rows} of whole pages: an int32 names {MOST} at most" if rows > MOST else None


def _pages(w: Workload, page_size: int) -> int:
    return -(-w.cache_rows // page_size)


def contract_of(w: Workload, page_size: int) -> Contract:
    """The definition that `w` is a workload of."""
    return Contract(heads=w.heads, topk=w.topk, page_size=page_size)


def line(w: Workload, page_size: int, stored: str = "all") -> dict:
    """The workload as its line of a file; equal workloads have equal ids.

    Raises ValueError where the definition cannot say what `w` asks.
    """
    if reason := refusal(w, page_size):
        raise ValueError(reason)
    if stored not in STORED:
        raise ValueError(f"stored={stored!r} is none of {', '.join(STORED)}")
    name = contract_of(w, page_size).name
    said = json.dumps([name, stored, asdict(w)], sort_keys=True)
    known = str(uuid.uuid5(SPACE, said))
    path = f"./blob/workloads/{OP_TYPE}/{name}/{name}_{known}.safetensors"
    inputs = {
        tensor: {"type": "safetensors", "path": path, "tensor_key": tensor}
        if tensor == INDICES or stored == "all" else {"type": "random"}
        for tensor in INPUTS
    }  # fmt: skip
    inputs["sm_scale"] = {"type": "scalar", "value": w.sm_scale}
    axes = {"num_tokens": w.tokens, "num_pages": _pages(w, page_size)}
    return {"definition": name, "workload": {"uuid": known, "axes": axes, "inputs": inputs},
            "solution": None, "evaluation": None}  # fmt: skip


def write(root: Path, w: Workload, page_size: int, stored: str = "all") -> int:
    """Draw `w` and write the tensors that its line names below `root`; return their bytes.

    Our own fields of `w` stand in the file's metadata: `fields` reads them again.
    """
    inputs = line(w, page_size, stored)["workload"]["inputs"]
    drawn = paged(make_inputs(w, "cpu"), page_size)._asdict()
    kept = {name: drawn[name] for name, told in inputs.items() if told["type"] == "safetensors"}
    return blobs.write(blobs.placed(root, inputs[INDICES]["path"]), kept, json.dumps(asdict(w)))


def fields(entry: dict, root: Path) -> dict | None:
    """The fields of our workload that a line was drawn from; None of a line that others wrote."""
    told = entry["workload"]["inputs"].get(INDICES, {})
    file = blobs.placed(root, told.get("path", "."))
    said = blobs.about(file) if file.is_file() else ""
    return json.loads(said) if said else None


def read_selection(entry: dict, c: Contract, root: Path) -> Imported:
    """The rows that the tokens of a line read.

    Raises FileNotFoundError where the blob is missing, ValueError where it is not what the
    definition says.
    """
    return imported(_tensor(INDICES, entry, c, root), rows_of(entry, c))


def read(entry: dict, c: Contract, root: Path) -> Paged:
    """All inputs of a line; what is `random` there is drawn here, from its id.

    Raises FileNotFoundError where a blob is missing, ValueError where one is not what the
    definition says, where rows are out of the cache, and where the indices are random numbers.
    """
    rows = rows_of(entry, c)
    tensors = {name: _tensor(name, entry, c, root) for name in INPUTS if name != "sm_scale"}
    outside = (tensors[INDICES] < c.padding) | (tensors[INDICES] >= rows)
    if outside.any():
        lost = int(tensors[INDICES][outside][0])
        raise ValueError(f"out of range: {INDICES} name row {lost} of {rows}")
    return Paged(**tensors, sm_scale=float(entry["workload"]["inputs"]["sm_scale"]["value"]))


def rows_of(entry: dict, c: Contract) -> int:
    """Rows of a line's cache. Raises ValueError where an int32 cannot name them all."""
    pages = axes_of(entry)["num_pages"]
    if pages * c.page_size > MOST:
        raise ValueError(f"num_pages={pages}: an int32 names {MOST} rows at most")
    return pages * c.page_size


def axes_of(entry: dict) -> dict[str, int]:
    """The axes of a line of sparse attention. Raises ValueError on other axes or inputs."""
    workload = entry["workload"]
    axes, inputs = workload["axes"], workload["inputs"]
    for part, found, known in (("axes", axes, {"num_tokens", "num_pages"}),
                               ("inputs", inputs, set(INPUTS))):  # fmt: skip
        if set(found) != known:
            raise ValueError(f"workload {workload['uuid']} has the {part} "
                             f"{', '.join(found)}, not {', '.join(sorted(known))}")  # fmt: skip
    for name, told in inputs.items():
        if (told["type"] == "scalar") != (name == "sm_scale"):
            raise ValueError(f"workload {workload['uuid']}: {name} is {told['type']}")
    if inputs[INDICES]["type"] == "random":
        raise ValueError(f"workload {workload['uuid']}: {INDICES} are random numbers, no selection")
    return axes


def _tensor(name: str, entry: dict, c: Contract, root: Path) -> torch.Tensor:
    """One input of a line, of the shape and dtype that its definition says."""
    workload = entry["workload"]
    told, dtype = workload["inputs"][name], getattr(torch, INPUTS[name][1])
    wanted = shape(c, name, workload["axes"]["num_tokens"], workload["axes"]["num_pages"])
    if told["type"] == "random":
        seed = int.from_bytes(sha256(f"{workload['uuid']} {name}".encode()).digest()[:8]) >> 1
        return torch.randn(wanted, generator=torch.Generator().manual_seed(seed)).to(dtype)
    tensor = blobs.read(blobs.placed(root, told["path"]), told["tensor_key"])
    if tensor.dtype != dtype or tensor.shape != wanted:
        raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {wanted}")
    return tensor
