"""Rows that a model or a server selected, from a file of captures, in place of a drawn law.

`captured:file=traces/selections/glm_moe_dsa.safetensors:layer=3` gives the last tokens of layer 3.
The path is read from where the command runs; it cannot hold ':' (which ends a parameter) or ','
(which ends a value in lists). Nothing is drawn: the seed decides nothing, and all requests of a
batch read the same captured one.
"""

from dataclasses import dataclass

import torch

from . import capture_files
from .captures import local
from .requests import Request
from .validity import accepted


@dataclass(frozen=True, kw_only=True)
class Captured:
    file: str = ""  # of captures; it has no default
    layer: int = 0
    step: int = 0
    request: int = 0  # of the captured batch

    def __post_init__(self):
        if self.layer < 0 or self.step < 0 or self.request < 0:
            raise ValueError(f"layer={self.layer}, step={self.step} or request={self.request} "
                             "is below 0")  # fmt: skip


def captured(positions: torch.Tensor, rows: int, topk: int, rng, law: Captured) -> torch.Tensor:
    """Return indices [tokens, topk] int32: those of the LAST tokens of a captured request.

    Valid lanes come first, in the file's order, then -1. A cache may have more rows than the
    captured one, and a token more slots. Raises ValueError, naming the file, where it has fewer,
    where the capture has fewer tokens, where a query stands before the one that was captured (it
    would read rows that it cannot see), and where `validity.accepted` refuses the capture.
    """
    where, tokens = f"layer {law.layer} of {law.file}", len(positions)
    own, lanes, seen = _request(law, where)
    if tokens > len(lanes):
        raise ValueError(f"tokens={tokens} of the {len(lanes)} in {where}")
    if topk < lanes.shape[1]:
        raise ValueError(f"topk={topk} is below the {lanes.shape[1]} of {where}")
    if rows < own.rows:
        raise ValueError(f"rows={rows} is below the {own.rows} of {where}")
    lanes, seen = lanes[len(lanes) - tokens :], seen[len(seen) - tokens :]
    before = int((seen - positions).max()) if tokens else 0
    if before > 0:
        raise ValueError(f"the queries stand up to {before} rows before those of {where}: "
                         f"first_position={int(positions[0]) + before} or more rows")  # fmt: skip
    absent = (lanes < 0).int()
    lanes = lanes.gather(1, absent.argsort(dim=1, stable=True))
    found = torch.full((tokens, topk), -1, dtype=torch.int32)
    found[:, : lanes.shape[1]] = lanes
    return found


def _request(law: Captured, where: str) -> tuple[Request, torch.Tensor, torch.Tensor]:
    """(the captured request, its lanes [tokens, topk], the last row that each token sees)."""
    _, c = capture_files.find(law.file, law.layer, law.step)
    try:
        accepted(c.selection)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    requests = c.selection.requests
    if law.request >= len(requests):
        raise ValueError(f"request={law.request} of the {len(requests)} in {where}")
    bounds = [*(r.token for r in requests), len(c.places)]
    mine = slice(bounds[law.request], bounds[law.request + 1])
    return requests[law.request], local(c.selection)[mine], c.selection.positions[mine]
