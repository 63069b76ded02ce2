"""From the numbers of a workload to an index tensor, with the hostile lanes a contract allows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from .laws import REGISTRY, Walk, parsed
from .presets import PRESETS
from .requests import Request, Selection, even_requests, in_order, split

PADDINGS = ("tail", "head", "mixed")  # where invalid lanes stand
LENGTHS = ("none", "counted", "ragged")  # topk_length: absent, the valid count, anything
WILD = (-2147483648, -123456, -1, 114514, 1919810, 2147480000, 2147483647)


def check(w) -> None:
    """Raise ValueError where the selection fields of workload `w` are out of range."""
    if w.tokens < 0 or w.topk < 1 or w.cache_rows < 0:
        raise ValueError(f"tokens={w.tokens}, topk={w.topk} or rows={w.cache_rows} is too small")
    if w.seed < 0:
        raise ValueError(f"seed={w.seed} is below 0")
    if w.requests < 1:
        raise ValueError(f"requests={w.requests} is below 1")
    for name, known in (("padding", PADDINGS), ("length", LENGTHS)):
        if getattr(w, name) not in known:
            raise ValueError(f"{name}={getattr(w, name)!r} is none of {', '.join(known)}")
    for name in ("churn", "holes"):
        if not 0.0 <= getattr(w, name) <= 1.0:
            raise ValueError(f"{name}={getattr(w, name)} is outside [0, 1]")
    try:
        parsed(w.law)
    except ValueError as error:
        raise ValueError(f"law={w.law!r}: {error}") from None
    preset = PRESETS.get(w.law.split(":")[0])
    if preset and preset.requests != w.requests:
        raise ValueError(f"law={w.law!r} is of a batch of requests={preset.requests}, "
                         f"not of {w.requests}")  # fmt: skip


def redrawn(w, ahead: int):
    """Workload `w` with other numbers: its seed, moved by `ahead`.

    A captured selection knows no seed. A walk stands in for it, so that who remembers the first
    answer meets other rows.
    """
    laws = {name: getattr(w, name, "") for name in ("law", "extra_law")}
    walks = {name: "walk" for name, law in laws.items() if law and REGISTRY[parsed(law)[0]].needs}
    return replace(w, seed=w.seed + ahead, **walks)


def positions(
    tokens: int, rows: int, first: int | None = None, stride: int = 1, requests: int = 1
) -> torch.Tensor:
    """Place of each query in its request [tokens] int32: by default the last rows of its cache.

    `stride` above 1 is a context-parallel rank that holds every stride-th token. Several requests
    share tokens and rows evenly, as `even_requests` says.
    """
    shares = zip(split(tokens, requests), split(rows, requests), strict=True)
    return torch.cat([_places(count, of, first, stride) for count, of in shares])


def _places(tokens: int, rows: int, first: int | None, stride: int) -> torch.Tensor:
    if first is None:
        first = max(0, rows - tokens * stride)
    return torch.arange(tokens, dtype=torch.int32) * stride + first


def selection(
    law: str, sizes: Sequence[tuple[int, int]], topk: int, seed: int = 0, churn: float = 0.10
) -> Selection:
    """A batch of requests of (tokens, cache rows) each, whose queries are the last of their rows.

    A prefill of 4,096 tokens and a decode step at a context of 9,000 is [(4096, 4096), (1, 9000)].
    `churn` is that of a `walk` that does not say its own. Raises ValueError on an unknown law.
    """
    requests = in_order(sizes)
    places = torch.cat([torch.zeros(0, dtype=torch.int32)] +
                       [_places(count, rows, None, 1) for count, rows in sizes])  # fmt: skip
    indices = _lanes(law, churn, places, requests, topk, seed, np.random.default_rng(seed))
    return Selection(indices, places, sum(rows for _, rows in sizes), requests)


def _lanes(law, churn, places, requests: Sequence[Request], topk, seed, rng) -> torch.Tensor:
    """Rows of the whole cache [tokens, topk]; the law sees each request's own, from 0 on."""
    name, parameters = parsed(law)
    if name == "walk" and law == "walk":
        parameters = Walk(churn=churn)
    drawn = REGISTRY[name].draw
    if len(requests) == 1:  # with the workload's own numbers, as records know it
        return drawn(places, requests[0].rows, topk, rng, parameters)
    parts = []
    for i, (request, after) in enumerate(zip(requests, [*requests[1:], None], strict=True)):
        mine = places[request.token : after.token if after else len(places)]
        own = np.random.default_rng((seed, i))
        local = drawn(mine, request.rows, topk, own, parameters)
        parts.append(torch.where(local >= 0, local + request.row, -1))
    return torch.cat([torch.zeros(0, topk, dtype=torch.int32), *parts])


def draw(w, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return (indices [tokens, topk] int32, topk_length [tokens] int32 or None) for workload `w`.

    Reads the fields law, churn, topk, cache_rows, requests, padding, holes, wild, length and seed
    of `w`. Equal fields give equal tensors: everything is drawn on the CPU.
    """
    rng = np.random.default_rng(w.seed)
    requests = even_requests(w.tokens, w.cache_rows, w.requests)
    indices = _lanes(w.law, w.churn, places, requests, w.topk, w.seed, rng)
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
