"""What models and servers selected: captures, and what their numbers count.

A capture is one layer's choice in one step (a forward call, or several that follow one another): a
`Selection`, the place of each query token, and how many lanes were masked. `Header.scope` says what
an index counts where it was taken; in a `Selection` it counts rows of the whole cache:

* request-local: rows from the first row of the token's request. The requests' rows are laid one
  behind the other. All statistics and checks hold. `transformers` and vLLM's top-k buffer hold
  these; SGLang's RAGGED is this plus an offset, which its writer takes off.
* flat: slots of a pool (SGLang's PAGED). Which rows are the same is exact, so unions, Jaccard,
  churn and reuse are, and pages are those that are read. A slot says nothing of its place in a
  request, so every slot counts as visible: `positions` of the Selection are those of the last slot,
  what is not causal is not seen, and "if independent" means: over the whole pool.
* page: pages of `page_size` tokens of the token's request; a row of the Selection is a page, and a
  query sees the pages up to its own. Statistics count pages, and pages of pages mean nothing.

With a `compress_ratio` of m a row stands for m tokens, as in the C4 layers of DeepSeek V4: row i is
pooled from tokens m i .. m i + m - 1 (and, with a second set of weights, from the m before them),
and exists once the last of these is there. The query at position p sees (p + 1) // m rows, so its
place in the Selection is (p + 1) // m - 1: -1 where it sees none. Rows per page are page_size // m.

Positions are an input everywhere: nothing is inferred from the number of a token (a rank of a
context-parallel group holds every cp-th). `validity.accepted` refuses the dummies of a warm-up;
reading a file does not, so that it can be looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from .requests import Request, Selection, ends

SCOPES = ("request-local", "flat", "page")  # what an index counts
PROVENANCES = ("live", "replay", "synthetic")  # a running model, a log played again, a law
WEIGHTS = ("trained", "random-weights")


@dataclass(frozen=True, kw_only=True)
class Header:
    """What holds for every layer and step of a file. Raises ValueError on a value out of range."""

    model: str  # as the architecture is called: glm_moe_dsa
    scope: str  # one of SCOPES
    provenance: str  # one of PROVENANCES
    weights: str  # one of WEIGHTS
    source: str  # what the input was, in words
    made_by: dict[str, str] = field(default_factory=dict)  # versions and settings
    config: dict[str, int] = field(default_factory=dict)  # the model's sizes
    page_size: int = 0  # tokens of a cache page; 0: the cache is not paged
    compress_ratio: int = 1  # tokens that a row stands for
    shared: dict[int, int] = field(default_factory=dict)  # layer -> the one whose choice it reuses

    def __post_init__(self):
        for name, known in (("scope", SCOPES), ("provenance", PROVENANCES), ("weights", WEIGHTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(known)}")
        for name, kind in (("model", str), ("source", str), ("page_size", int),
                           ("compress_ratio", int), ("made_by", dict), ("config", dict),
                           ("shared", dict)):  # fmt: skip
            if not isinstance(getattr(self, name), kind):
                raise ValueError(f"{name}={getattr(self, name)!r} is not of type {kind.__name__}")
        if self.page_size < 0 or self.compress_ratio < 1:
            raise ValueError(f"page_size={self.page_size} or compress_ratio={self.compress_ratio} "
                             "is too small")  # fmt: skip
        if self.scope == "page" and not self.page_size:
            raise ValueError("scope=page needs a page_size")


@dataclass(frozen=True, kw_only=True, eq=False)
class Capture:
    """One layer's choice in one step."""

    selection: Selection  # rows of the whole cache
    places: torch.Tensor  # [tokens] int32, of each query in its request, counted in tokens
    masked: torch.Tensor  # [tokens] int32, lanes that named a row the query cannot see: now -1
    layer: int
    step: int = 0


def capture(
    header: Header,
    layer: int,
    step: int,
    indices: torch.Tensor,
    places: torch.Tensor,
    starts: Sequence[int],
    rows: Sequence[int] | int | None = None,
    masked: torch.Tensor | None = None,
) -> Capture:
    """A capture of indices [tokens, topk] that count as `header.scope` says, on any device.

    places [tokens]: of each query in its request, in tokens. `starts`: the first token of each
    request. `rows`: those of each request's cache (None: up to the last that is seen), of a flat
    capture those of the whole cache. Lanes that name a row of the cache after the query's position
    are set to -1 and counted, on top of `masked` [tokens] that were before; numbers outside of the
    cache stay, for `validity.refusals` to name. Raises ValueError where sizes do not fit.
    """
    indices, places = (t.detach().cpu().int() for t in (indices, places))
    tokens = len(indices)
    if indices.ndim != 2 or places.shape != (tokens,):
        raise ValueError(f"indices of shape {list(indices.shape)} and positions of shape "
                         f"{list(places.shape)} are not [tokens, topk] and [tokens]")  # fmt: skip
    spans = ends(starts, tokens)
    if header.scope == "flat":
        if not isinstance(rows, int):
            raise ValueError(f"rows={rows}: a flat capture says how many rows the cache has")
        requests = tuple(Request(first, 0, rows) for first, _ in spans)
    else:
        requests = _laid_out(header, places, spans, rows)
    found = torch.zeros_like(places) if masked is None else masked.detach().cpu().int()
    if header.scope != "flat":
        own = of_tokens(requests, tokens, "rows")[:, None]
        late = (indices > visible(header, places, 0)[:, None]) & (indices < own)
        indices, found = indices.masked_fill(late, -1), found + late.sum(1, dtype=torch.int32)
    chosen = selection(header, indices, places, requests)
    return Capture(selection=chosen, places=places, masked=found, layer=layer, step=step)


def _laid_out(header: Header, places, spans, rows) -> tuple[Request, ...]:
    """Requests whose rows lie one behind the other. Raises ValueError on too few rows."""
    seen = visible(header, places, 0) + 1
    most = [int(seen[first:end].max()) if end > first else 0 for first, end in spans]
    rows = most if rows is None else list(rows)
    if len(rows) != len(spans):
        raise ValueError(f"rows of {len(rows)} requests for {len(spans)} of them")
    found, before = [], 0
    for (first, _), own, least in zip(spans, rows, most, strict=True):
        if own < least:
            raise ValueError(f"rows={own} of a request whose queries see {least}")
        found.append(Request(first, before, own))
        before += own
    return tuple(found)


def visible(header: Header, places: torch.Tensor, rows: int) -> torch.Tensor:
    """The last row that each query sees, counted as the scope counts [tokens] int32; -1: none."""
    if header.scope == "flat":
        return torch.full_like(places, rows - 1)
    if header.scope == "page":
        return places // header.page_size
    return (places + 1) // header.compress_ratio - 1


def of_tokens(requests: Sequence[Request], tokens: int, name: str) -> torch.Tensor:
    """A field of each token's request [tokens] int32."""
    spans = ends([r.token for r in requests], tokens)
    values = torch.tensor([getattr(r, name) for r in requests], dtype=torch.int32)
    return values.repeat_interleave(torch.tensor([end - first for first, end in spans]))


def selection(header: Header, indices, places, requests: tuple[Request, ...]) -> Selection:
    """Indices that count as the scope says, as rows of the whole cache; nothing is masked."""
    rows = max((r.row + r.rows for r in requests), default=0)
    base = of_tokens(requests, len(indices), "row")[:, None]
    return Selection(torch.where(indices >= 0, indices + base, indices),
                     visible(header, places, rows), rows, requests)  # fmt: skip


def local(s: Selection) -> torch.Tensor:
    """Indices of a selection, counted from the first row of each token's request; flat: as is."""
    base = of_tokens(s.requests, len(s.indices), "row")[:, None]
    return torch.where(s.indices >= 0, s.indices - base, s.indices)


def kept(c: Capture, tokens: slice) -> Capture:
    """`c` with some tokens of each of its requests: slice(-1024, None) keeps the last 1,024."""
    s = c.selection
    spans = ends([r.token for r in s.requests], len(s.indices))
    parts = [range(first, end)[tokens] for first, end in spans]
    chosen = torch.tensor([t for part in parts for t in part], dtype=torch.int64)
    requests, first = [], 0
    for request, part in zip(s.requests, parts, strict=True):
        requests.append(request._replace(token=first))
        first += len(part)
    fewer = s._replace(indices=s.indices[chosen], positions=s.positions[chosen],
                       requests=tuple(requests))  # fmt: skip
    return replace(c, selection=fewer, places=c.places[chosen], masked=c.masked[chosen])
