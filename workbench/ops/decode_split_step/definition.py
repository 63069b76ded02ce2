"""A whole decode step of page splits: two caches a layer, all layers, one CUDA graph.

What a server pays in a step is not one split but `layers` of them, twice: for the sliding window's
cache and for the layer's extra one. All layers share one destination a cache (a destination each
would be as large as the pools), so every split must be read before the next layer's overwrites it.
The reading stands in the contract for that reason: the rows that attention would read, of every
layer. A variant without a split gives the time of the reading alone, and what another one takes
beyond that is its split. Seeds 000 (sgl-project/sglang#32320) and 003.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...layouts import footer_584
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes
from ..page_split import coverage
from ..page_split.definition import PAGE, SENTINEL, scratch, token_numbers
from ..page_split.definition import Workload as SplitWorkload

TOKEN = footer_584.TOKEN_BYTES
READER = coverage.Reader("a reader of 64-token pages, and of 2-token ones as extra cache",
                         extra=frozenset({PAGE, 2}))  # fmt: skip
WRITES = ("destination", "mask", "stamps", "extra_destination", "extra_mask", "extra_stamps",
          "rows", "extra_rows")  # fmt: skip
EXTRA_SEED = 1 << 20  # added to the seed: the extra cache has other bytes and other places


@dataclass(frozen=True, kw_only=True)
class Workload:
    layers: int = 43  # of DeepSeek-V4-Flash
    pages: int = 1024  # of each layer's window pool
    page_size: int = 256  # tokens of such a page, a multiple of 64
    extra_pages: int = 256  # of each layer's extra pool
    extra_page_size: int = 128  # 64 (C4A), 2 (C128A), 128 (ratio 2)
    batch: int = 8  # requests of the decode step
    window: int = 128  # tokens that each request reads of its window
    extra_topk: int = 512  # tokens that each request reads of the extra cache, in each layer others
    extra_context: int = 4096  # tokens that a request has there, in pages of its own
    invalid: float = 0.0  # share of index lanes that name no token
    seed: int = 0

    def __post_init__(self):
        for name in ("layers", "pages", "page_size", "extra_pages", "extra_page_size", "batch",
                     "window", "extra_topk", "extra_context", "seed"):  # fmt: skip
            least = 0 if name in ("batch", "seed") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is below {least}")
        if not 0.0 <= self.invalid <= 1.0:
            raise ValueError(f"invalid={self.invalid} is outside [0, 1]")
        coverage.route(READER, self.page_size)
        coverage.route(READER, self.extra_page_size, extra=True)
        if self.extra_topk > self.extra_context:
            raise ValueError(f"extra_topk={self.extra_topk} distinct tokens are more than "
                             f"extra_context={self.extra_context}")  # fmt: skip


class Inputs(NamedTuple):
    source: torch.Tensor  # [layers, pages, >= page_bytes(page_size)] uint8
    page_size: int
    indices: torch.Tensor  # [batch, window] int32: tokens of the window, the same in every layer
    extra_source: torch.Tensor  # [layers, extra_pages, >= page_bytes(extra_page_size)] uint8
    extra_page_size: int
    extra_indices: torch.Tensor  # [layers, batch, extra_topk] int32
    # What one cache of a server holds (page_split.buffers), shared by all layers; written
    destination: torch.Tensor
    mask: torch.Tensor
    stamps: torch.Tensor
    extra_destination: torch.Tensor
    extra_mask: torch.Tensor
    extra_stamps: torch.Tensor
    rows: torch.Tensor  # [layers, batch, window, 584] uint8, written
    extra_rows: torch.Tensor  # [layers, batch, extra_topk, 584] uint8, written


class Output(NamedTuple):
    rows: torch.Tensor  # [layers, batch, window, 584] uint8: 576 data and 8 scale bytes, or zeros
    extra_rows: torch.Tensor  # [layers, batch, extra_topk, 584] uint8


def _window(w: Workload) -> torch.Tensor:
    """Token numbers of each request's window: those that `page_split` draws."""
    same = {n: getattr(w, n) for n in ("pages", "page_size", "batch", "window", "invalid", "seed")}
    return token_numbers(SplitWorkload(**same))


def _extra(w: Workload) -> torch.Tensor:
    """Distinct tokens of each request's own context, drawn anew in every layer."""
    gen = torch.Generator().manual_seed(w.seed + EXTRA_SEED)
    span = -(-w.extra_context // w.extra_page_size)  # pages of a request
    homes = torch.randperm(max(w.extra_pages, w.batch * span), generator=gen) % w.extra_pages
    homes = homes[: w.batch * span].view(w.batch, span)
    places = torch.rand(w.layers, w.batch, w.extra_context, generator=gen).argsort(-1)
    places = places[..., : w.extra_topk]
    pages = homes.expand(w.layers, -1, -1).gather(2, places // w.extra_page_size)
    drawn = pages * w.extra_page_size + places % w.extra_page_size
    drawn[torch.rand(drawn.shape, generator=gen) < w.invalid] = -1
    return drawn.int()


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw both pools of every layer and the indices; all that is written holds the sentinel."""
    stride, extra_stride = map(footer_584.page_stride, (w.page_size, w.extra_page_size))
    byte = {"dtype": torch.uint8, "device": device}
    return Inputs(
        random_bytes((w.layers, w.pages, stride), w.seed, device),
        w.page_size,
        _window(w).to(device),
        random_bytes((w.layers, w.extra_pages, extra_stride), w.seed + EXTRA_SEED, device),
        w.extra_page_size,
        _extra(w).to(device),
        *scratch(w.pages, w.page_size, device),
        *scratch(w.extra_pages, w.extra_page_size, device),
        torch.full((w.layers, w.batch, w.window, TOKEN), SENTINEL, **byte),
        torch.full((w.layers, w.batch, w.extra_topk, TOKEN), SENTINEL, **byte),
    )


def validate(x: Inputs) -> None:
    """Raise ValueError where pools, indices and rows do not belong together.

    What a single split demands of its tensors is checked where it runs.
    """
    layers = len(x.source)
    for name, pool, size in (("source", x.source, x.page_size),
                             ("extra_source", x.extra_source, x.extra_page_size)):  # fmt: skip
        if pool.dtype != torch.uint8 or pool.ndim != 3 or len(pool) != layers:
            raise ValueError(f"{name} is {pool.dtype} {tuple(pool.shape)}, not uint8 "
                             f"[{layers} layers, pages, bytes]")  # fmt: skip
        if pool.shape[2] < footer_584.page_bytes(size):
            raise ValueError(f"{name} has pages of {pool.shape[2]} bytes, {size} tokens take "
                             f"{footer_584.page_bytes(size)}")  # fmt: skip
    for name, indices, want in (("indices", x.indices, 2), ("extra_indices", x.extra_indices, 3)):
        if indices.dtype != torch.int32 or indices.ndim != want:
            raise ValueError(f"{name} are {indices.dtype} of {indices.ndim} dimensions, not int32 "
                             f"of {want}")  # fmt: skip
    for name, rows, shape in (
        ("rows", x.rows, (layers, *x.indices.shape, TOKEN)),
        ("extra_rows", x.extra_rows, (*x.extra_indices.shape, TOKEN)),
    ):
        if rows.dtype != torch.uint8 or tuple(rows.shape) != shape or len(rows) != layers:
            raise ValueError(f"{name} is {rows.dtype} {tuple(rows.shape)}, not uint8 {shape} of "
                             f"{layers} layers")  # fmt: skip


def _read(pool: torch.Tensor, page_size: int, indices: torch.Tensor) -> torch.Tensor:
    """The definition of a row: its data and its scales, from where the pool has them."""
    inside = (indices >= 0) & (indices < len(pool) * page_size)
    token = indices.long().clamp(0, len(pool) * page_size - 1)
    page, place = token // page_size, token % page_size
    data = place[..., None] * footer_584.ROW_BYTES + torch.arange(footer_584.ROW_BYTES,
                                                                  device=pool.device)  # fmt: skip
    scales = page_size * footer_584.ROW_BYTES + place[..., None] * footer_584.SCALE_BYTES
    scales = scales + torch.arange(footer_584.SCALE_BYTES, device=pool.device)
    return pool[page[..., None], torch.cat([data, scales], -1)] * inside[..., None]


def reference(x: Inputs) -> Output:
    """Each layer's rows, read from its own pools."""
    extra = zip(x.extra_source, x.extra_indices, strict=True)
    return Output(
        torch.stack([_read(pool, x.page_size, x.indices) for pool in x.source]),
        torch.stack([_read(pool, x.extra_page_size, tokens) for pool, tokens in extra]),
    )


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit, in every layer, and in the memory that was given."""
    for name, got, want in zip(Output._fields, actual, expected, strict=True):
        if got.data_ptr() != getattr(x, name).data_ptr():
            return Verdict("incorrect", why=f"{name} is not the memory that was given")
        if not same_bits(got, want):
            wrong = (got != want).any(-1)
            layer, request, lane = (int(i) for i in wrong.nonzero()[0])
            why = f"layer {layer}, request {request}, lane {lane} of {name} has other bytes"
            return Verdict("incorrect", why=f"{why}; {int(wrong.sum())} rows differ")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read every index, and each row that a layer names once; write every lane: no split's part."""
    layers, tokens = len(x.source), x.source.shape[1] * x.page_size
    extra_tokens = x.extra_source.shape[1] * x.extra_page_size
    read = layers * _rows_named(x.indices, tokens)
    read += sum(_rows_named(lanes, extra_tokens) for lanes in x.extra_indices)
    lanes = layers * x.indices.numel() + x.extra_indices.numel()
    return Cost((read + lanes) * TOKEN + 4 * (x.indices.numel() + x.extra_indices.numel()), 0)


def _rows_named(indices: torch.Tensor, tokens: int) -> int:
    return len(indices[(indices >= 0) & (indices < tokens)].unique())


def statistics(x: Inputs) -> dict:
    """Pages that a layer touches: what a split must copy there."""
    tokens = x.indices[(x.indices >= 0) & (x.indices < x.source.shape[1] * x.page_size)]
    extra = [t[t >= 0] // x.extra_page_size for t in x.extra_indices]
    touched = sum(len(t.unique()) for t in extra) / len(extra)
    return {"layers": len(x.source), "touched_pages": len((tokens // x.page_size).unique()),
            "extra_touched_pages": touched}  # fmt: skip


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Other indices on the pools and buffers of `first`, as the next decode step has."""
    kept = {name: getattr(first, name) for name in ("source", "extra_source", *WRITES)}
    return fresh._replace(**kept)


_tiny = Workload(layers=2, pages=4, extra_pages=5, batch=2, window=20, extra_topk=9,
                 extra_context=300)  # fmt: skip
_edges = (
    _tiny,
    replace(_tiny, layers=3, extra_page_size=64),  # C4A: read as it lies
    replace(_tiny, extra_page_size=2, extra_context=10, extra_pages=10),  # C128A
    replace(_tiny, page_size=64),
    replace(_tiny, page_size=128, layers=1),
    replace(_tiny, invalid=0.5),
    replace(_tiny, invalid=1.0),
    replace(_tiny, batch=0),
    replace(_tiny, pages=1, extra_pages=1),  # every request in the same pages
)

decode_split_step = Op(
    name="decode_split_step",
    Workload=Workload,
    Output=Output,
    dtypes={"rows": "uint8", "extra_rows": "uint8"},
    suites={
        "edges": _edges,
        "steps": (
            Workload(),
            Workload(batch=64, extra_pages=2048),
            Workload(pages=2048),
        ),
        "steps_small": (Workload(layers=4, pages=64, extra_pages=64, batch=2),),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    rotated=rotated,
    writes=WRITES,
)
