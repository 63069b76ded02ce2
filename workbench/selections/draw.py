"""From the numbers of a workload to an index tensor, with the hostile lanes a contract allows."""

import numpy as np
import torch

from .uniform import uniform
from .walk import walk

LAWS = ("uniform", "walk")
PADDINGS = ("tail", "head", "mixed")  # where invalid lanes stand
LENGTHS = ("none", "counted", "ragged")  # topk_length: absent, the valid count, anything
WILD = (-2147483648, -123456, -1, 114514, 1919810, 2147480000, 2147483647)


def check(w) -> None:
    """Raise ValueError where the selection fields of workload `w` are out of range."""
    if w.tokens < 0 or w.topk < 1 or w.cache_rows < 0:
        raise ValueError(f"tokens={w.tokens}, topk={w.topk} or rows={w.cache_rows} is too small")
    if w.seed < 0:
        raise ValueError(f"seed={w.seed} is below 0")
    for name, known in (("law", LAWS), ("padding", PADDINGS), ("length", LENGTHS)):
        if getattr(w, name) not in known:
            raise ValueError(f"{name}={getattr(w, name)!r} is none of {', '.join(known)}")
    for name in ("churn", "holes"):
        if not 0.0 <= getattr(w, name) <= 1.0:
            raise ValueError(f"{name}={getattr(w, name)} is outside [0, 1]")


def positions(tokens: int, rows: int, first: int | None = None, stride: int = 1) -> torch.Tensor:
    """Place of each query in its request [tokens] int32: by default the last rows of the cache.

    `stride` above 1 is a context-parallel rank that holds every stride-th token.
    """
    if first is None:
        first = max(0, rows - tokens * stride)
    return torch.arange(tokens, dtype=torch.int32) * stride + first


def draw(w, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (indices [tokens, topk] int32, topk_length [tokens] int32 or None) for workload `w`.

    Reads the fields law, churn, topk, cache_rows, padding, holes, wild, length and seed of `w`.
    Equal fields give equal tensors: everything is drawn on the CPU.
    """
    rng = np.random.default_rng(w.seed)
    if w.law == "walk":
        indices = walk(places, w.cache_rows, w.topk, rng, w.churn)
    else:
        indices = uniform(places, w.cache_rows, w.topk, rng)
    if w.holes:
        indices[torch.from_numpy(rng.random(indices.shape) < w.holes)] = -1
    if w.padding == "head":
        indices = indices.flip(1)
    elif w.padding == "mixed":
        order = torch.from_numpy(rng.random(indices.shape, dtype=np.float32)).argsort(1)
        indices = indices.gather(1, order)
    length = None
    if w.length == "counted":
        lane = torch.arange(1, w.topk + 1, dtype=torch.int32)
        length = torch.where(indices >= 0, lane, 0).amax(1).to(torch.int32)
    elif w.length == "ragged":
        length = torch.from_numpy(rng.integers(-2, w.topk + 3, w.tokens, dtype=np.int32))
    if w.wild:
        out = torch.tensor([v for v in WILD if not 0 <= v < w.cache_rows] + [w.cache_rows])
        lost = indices < 0
        indices[lost] = out[torch.from_numpy(rng.integers(0, len(out), int(lost.sum())))].int()
    return indices.contiguous(), length
