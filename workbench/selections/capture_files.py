"""Files of captures: safetensors that any reader of safetensors opens, and a header in JSON.

The file's metadata has one key, "workbench.capture": JSON with the fields of `captures.Header` and

    "format": 1
    "captures": [{"layer": 3, "step": 0, "topk": 2048, "rows": 8192,
                  "requests": [[0, 0, 8192]]}, ...]    first token, first row, rows of each

Each of the captures has tensors whose names begin with "layer.3.step.0.":

    positions   int32 [tokens]         place of each query token in its request, counted in tokens
    masked      int32 [tokens]         lanes that named a row the query cannot see; they are -1 now
    indices     int32 [tokens, topk]   rows as the scope counts them, in the order of the lanes;
                                       -1: no row
    or bits     uint8 [tokens, bytes]  bit r % 8 of byte r // 8 is set where the token selected row
                                       r, as the scope counts; the order of its lanes is not kept

`bits` hold what a cache of S rows needs, S / 8 bytes a token, in place of 4 bytes a lane. Read
back, their rows ascend. A layer that reuses another's choice has no tensors: `shared` names the
layer that chose. Readers refuse a format that they do not know.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from .. import atomic
from . import bits
from .captures import Capture, Header, kept, local, selection
from .requests import Request, ends

SUFFIX = ".safetensors"
KEY = "workbench.capture"
FORMAT = 1


class CaptureFile(NamedTuple):
    header: Header
    captures: tuple[Capture, ...]  # in the order of steps, then of layers


def write(
    path: Path | str,
    header: Header,
    captures,
    tokens: slice = slice(None),
    ordered: bool = True,
) -> None:
    """Write captures to `path`, whole or not at all.

    `tokens` of each request are written: slice(-1024, None) are the last 1,024. `ordered=False`
    says that the order of lanes carries no meaning; `bits` are then written where they are smaller
    and lose nothing but it. Raises ValueError without captures and on a layer and step given twice.
    """
    from safetensors.torch import save

    path, tensors, told = Path(path), {}, []
    for c in sorted(captures, key=lambda c: (c.step, c.layer)):
        c, name = kept(c, tokens), _name(c.layer, c.step)
        if f"{name}positions" in tensors:
            raise ValueError(f"layer {c.layer} is given twice in step {c.step}")
        s = c.selection
        tensors |= {f"{name}positions": c.places, f"{name}masked": c.masked}
        tensors |= {name + kind: t for kind, t in _lanes(c, ordered).items()}
        told.append({"layer": c.layer, "step": c.step, "topk": s.indices.shape[1], "rows": s.rows,
                     "requests": [list(r) for r in s.requests]})  # fmt: skip
    if not told:
        raise ValueError(f"nothing was captured: {path} is not written")
    text = json.dumps({"format": FORMAT, **asdict(header), "captures": told}, sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, save({k: t.contiguous() for k, t in tensors.items()}, {KEY: text}))


def _name(layer: int, step: int) -> str:
    return f"layer.{layer}.step.{step}."


def _lanes(c: Capture, ordered: bool) -> dict[str, torch.Tensor]:
    """{"indices": ...} or {"bits": ...} of a capture."""
    s = c.selection
    lanes = local(s)
    rows = max((r.rows for r in s.requests), default=0)
    if not ordered and -(-rows // 8) < 4 * lanes.shape[1]:
        packed = bits.packed(lanes.numpy(), rows)
        if (bits.counts(packed) == (lanes != -1).sum(1).numpy()).all():  # each row once, all inside
            as_bytes = packed.view(np.uint8)[:, : -(-rows // 8)]
            return {"bits": torch.from_numpy(np.ascontiguousarray(as_bytes))}
    return {"indices": lanes}


def read(path: Path | str) -> CaptureFile:
    """Read a file of captures. Raises ValueError, in one line that names the file, where it is
    truncated, of another format, or says something else than it holds; OSError where it is absent.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path} is a folder")
    try:
        with safe_open(path, "pt") as held:
            text = (held.metadata() or {}).get(KEY)
            tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file: {error}") from None
    try:
        return _parsed(text, tensors)
    except KeyError as error:
        raise ValueError(f"{path} has no {error.args[0]}") from None
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def _parsed(text: str | None, tensors: dict[str, torch.Tensor]) -> CaptureFile:
    if text is None:
        raise ValueError(f"no capture: its metadata has no {KEY}")
    told = json.loads(text)
    if not isinstance(told, dict) or told.pop("format", None) != FORMAT:
        raise ValueError(f"not of format {FORMAT} of captures, the one known here")
    listed = told.pop("captures")
    header = Header(**told)
    shared = {int(layer): int(source) for layer, source in header.shared.items()}
    header = replace(header, shared=shared)
    return CaptureFile(header, tuple(_capture(header, one, tensors) for one in listed))


def _capture(header: Header, told: dict, tensors: dict[str, torch.Tensor]) -> Capture:
    layer, step, topk, rows = (int(told[k]) for k in ("layer", "step", "topk", "rows"))
    requests = tuple(Request(*(int(n) for n in r)) for r in told["requests"])
    if any(n < 0 for request in requests for n in request):
        raise ValueError(f"requests={told['requests']} have a number below 0")
    name = _name(layer, step)
    tokens = len(tensors[f"{name}positions"])
    ends([r.token for r in requests], tokens)
    if max((r.row + r.rows for r in requests), default=0) != rows:
        raise ValueError(f"{name}requests do not end at the cache's rows={rows}")
    places, masked = (_tensor(tensors, name + kind, torch.int32, (tokens,))
                      for kind in ("positions", "masked"))  # fmt: skip
    if f"{name}bits" in tensors:
        width = -(-max(r.rows for r in requests) // 8)
        packed = _tensor(tensors, f"{name}bits", torch.uint8, (tokens, width))
        indices = _unpacked(f"{name}bits", packed.numpy(), topk)
    else:
        indices = _tensor(tensors, f"{name}indices", torch.int32, (tokens, topk))
    return Capture(selection=selection(header, indices, places, requests), places=places,
                   masked=masked, layer=layer, step=step)  # fmt: skip


def _tensor(tensors, name: str, dtype: torch.dtype, shape: tuple) -> torch.Tensor:
    found = tensors[name]
    if found.dtype != dtype or found.shape != shape:
        raise ValueError(f"{name} is {found.dtype} {list(found.shape)}, "
                         f"not {dtype} {list(shape)}")  # fmt: skip
    return found


def _unpacked(name: str, packed: np.ndarray, topk: int) -> torch.Tensor:
    """Indices [tokens, topk] int32 of bits [tokens, bytes], ascending, then -1."""
    table = np.unpackbits(packed, axis=1, bitorder="little")
    counts = table.sum(1, dtype=np.int64)
    if counts.max(initial=0) > topk:
        raise ValueError(f"{name} hold {counts.max()} rows of a token whose topk is {topk}")
    token, row = table.nonzero()
    indices = np.full((len(packed), topk), -1, np.int32)
    indices[token, np.arange(len(row)) - np.repeat(counts.cumsum() - counts, counts)] = row
    return torch.from_numpy(indices)


def find(path: Path | str, layer: int, step: int = 0) -> tuple[Header, Capture]:
    """One layer's capture of a file; of a layer that reuses another's choice, that one's.

    Raises ValueError, naming the file and what is there, where the layer or step is not.
    """
    header, captures = read(path)
    source = header.shared.get(layer, layer)
    for c in captures:
        if (c.layer, c.step) == (source, step):
            return header, c
    layers = ", ".join(map(str, sorted({*(c.layer for c in captures), *header.shared})))
    last = max((c.step for c in captures), default=0)
    raise ValueError(f"{path} has no layer {layer} of step {step}: it has layers {layers} of steps "
                     f"up to {last}")  # fmt: skip
