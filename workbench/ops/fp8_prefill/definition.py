"""Sparse prefill out of an fp8 cache: `sparse_prefill`, whose rows are bytes of a layout.

out[t, h] = sum_k softmax_k(sm_scale * q[t, h] . row k) * (row k)[:d_v] over the valid lanes of t,
where a row is its e4m3 codes times the scales of their groups, then its bf16 rotary values: exact
numbers, in float64. Lanes, empty tokens, `lse` and the sink are as in `sparse_prefill`. A second
cache with an index list of its own (DeepSeek-V4: a window of 128 and 512 compressed rows) adds
lanes to the same softmax. Seeds 002, 003; flashinfer-ai/flashinfer#4802.

The reference sees what is stored, so the budget is the one of bf16 rows: rounding q, the weights
and the answer. A code times a power of two is a bf16 number; under arbitrary scales a kernel stays
in budget that multiplies codes and applies the scales to scores and weights, and does not round
the weights on the way. One that rounds more (rows written as bf16, queries quantised) says which
question it answers instead, by `Variant.widens`: the reference rounds the same, the budget stays.
"""

import math
from typing import NamedTuple

import torch

from ... import layouts, selections
from ...layouts import LAYOUTS
from ...op import Cost, Op
from ..sparse_prefill.definition import attention, compare
from ..union_plan.definition import selection_statistics
from . import pools
from .workload import SUITES, Workload

# dimensions of each tensor of `Inputs`
RANKS = {"q": 3, "cache": 2, "indices": 2, "positions": 1, "topk_length": 1, "extra_cache": 2,
         "extra_indices": 2, "extra_topk_length": 1, "attn_sink": 1}  # fmt: skip


class Inputs(NamedTuple):
    q: torch.Tensor  # [T, H, d_qk] bf16, contiguous
    cache: torch.Tensor  # [pages, page bytes] uint8, any page stride
    page_size: int  # tokens of a page
    row_stride: int  # bytes from a token's row to the next one's
    indices: torch.Tensor  # [T, topk] int32, rows may be strided: page * page_size + place
    positions: torch.Tensor  # [T] int32, place of each query in its request
    topk_length: torch.Tensor | None  # [T] int32, clamped to [0, topk]
    extra_cache: torch.Tensor | None  # [pages, page bytes] uint8: a second cache
    extra_page_size: int
    extra_indices: torch.Tensor | None  # [T, extra_topk] int32: tokens of the second cache
    extra_topk_length: torch.Tensor | None  # [T] int32
    attn_sink: torch.Tensor | None  # [H] float32, natural-log logit
    sm_scale: float
    layout: str  # one of layouts.LAYOUTS, of both caches
    scale_format: str  # pow2_fp32: a reader may take the exponents of the scales alone
    rounded_rows: bool = False  # the answer sought is that of rows rounded to bf16


class Output(NamedTuple):
    out: torch.Tensor  # [T, H, d_v] bf16
    lse: torch.Tensor  # [T, H] float32, base 2, without the sink


class Source(NamedTuple):
    """One of the caches of `Inputs`, and the lanes that name its tokens."""

    cache: torch.Tensor
    page_size: int
    row_stride: int
    indices: torch.Tensor
    topk_length: torch.Tensor | None

    @property
    def rows(self) -> int:
        return len(self.cache) * self.page_size


def sources(x: Inputs) -> tuple[Source, ...]:
    """The caches of `x`: the main one, then the extra one where there is one."""
    main = Source(x.cache, x.page_size, x.row_stride, x.indices, x.topk_length)
    if x.extra_cache is None:
        return (main,)
    lanes = (x.extra_indices, x.extra_topk_length)
    return main, Source(x.extra_cache, x.extra_page_size, x.row_stride, *lanes)


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the tensors of `w`: equal workloads give equal numbers on every device."""
    gen = torch.Generator().manual_seed(w.seed)
    layout = LAYOUTS[w.layout]
    places = selections.positions(
        w.tokens, w.cache_rows, w.first_position, w.position_stride, w.requests
    )
    q = torch.randn(w.tokens, w.heads, layout.d_qk, generator=gen).bfloat16()
    main, extra = pools.drawn(w, places, gen, device), pools.Pool(None, None, None)
    if w.extra_topk:
        extra = pools.drawn(w.extra(), w.extra_positions(places), gen, device)
    sink = None
    if w.sink == "random":
        sink = 2 * torch.randn(w.heads, generator=gen)
    elif w.sink != "none":
        sink = torch.full((w.heads,), float(w.sink))
    drawn = (q, main.cache, main.indices, places, main.topk_length, *extra, sink)
    q, cache, indices, places, length, *extra, sink = (
        t if t is None else t.to(device) for t in drawn
    )
    return Inputs(
        q, cache, w.page_size, w.row_stride or layout.row_bytes, indices, places, length,
        extra[0], w.extra_page_size, extra[1], extra[2],
        sink, w.sm_scale, w.layout, w.scale_format,
    )  # fmt: skip


def validate(x: Inputs) -> None:
    """Raise ValueError on a shape, dtype or stride that would be read as something else."""
    _validate_kinds(x)
    layout, (tokens, heads) = LAYOUTS[x.layout], x.q.shape[:2]
    if x.scale_format not in layout.formats:
        raise ValueError(f"scale_format={x.scale_format!r} is none of {layout.name}'s: "
                         f"{', '.join(layout.formats)}")  # fmt: skip
    expected = [("q", torch.bfloat16, (tokens, heads, layout.d_qk))]
    expected += [("positions", torch.int32, (tokens,)), ("attn_sink", torch.float32, (heads,))]
    for prefix in ("", "extra_"):
        indices = getattr(x, prefix + "indices")
        width = indices.shape[-1] if indices is not None else 0
        expected += [(f"{prefix}indices", torch.int32, (tokens, width)),
                     (f"{prefix}topk_length", torch.int32, (tokens,))]  # fmt: skip
    for name, dtype, shape in expected:
        tensor = getattr(x, name)
        if tensor is None:
            continue
        if tensor.dtype != dtype or tensor.shape != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {dtype} {shape}")
        if tensor.numel() and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} has a last stride of {tensor.stride(-1)}, not 1")
    if x.q.numel() and not x.q.is_contiguous():
        raise ValueError(f"q has strides {x.q.stride()}: only a contiguous query is read")
    if (x.extra_cache is None) != (x.extra_indices is None):
        raise ValueError("extra_cache and extra_indices belong together: one of them is missing")
    for name, source in zip(("cache", "extra_cache"), sources(x), strict=False):
        _validate_cache(name, source, layout)


def _validate_kinds(x: Inputs) -> None:
    """Raise ValueError where a field is no tensor of its rank, or no number that a kernel takes."""
    if x.layout not in LAYOUTS:
        raise ValueError(f"layout={x.layout!r} is none of {', '.join(LAYOUTS)}")
    for name, rank in RANKS.items():
        held = getattr(x, name)
        if held is None and name not in ("q", "cache", "indices"):
            continue
        if not isinstance(held, torch.Tensor) or held.ndim != rank:
            shape = f" {tuple(held.shape)}" if isinstance(held, torch.Tensor) else ""
            raise ValueError(f"{name} is {type(held).__name__}{shape}, not a tensor of {rank} "
                             "dimensions")  # fmt: skip
    for name in ("page_size", "extra_page_size", "row_stride"):
        if not isinstance(getattr(x, name), int) or getattr(x, name) < 1:
            raise ValueError(f"{name}={getattr(x, name)!r} is no whole number above 0")
    if not isinstance(x.sm_scale, int | float) or not math.isfinite(x.sm_scale):
        raise ValueError(f"sm_scale={x.sm_scale!r} is no finite number")


def _validate_cache(name: str, source: Source, layout) -> None:
    cache, size = source.cache, layouts.page_bytes(layout, source.page_size, source.row_stride)
    padded = layouts.page_stride(layout, source.page_size, True, source.row_stride)
    if cache.dtype != torch.uint8 or not size <= cache.shape[1] <= padded:
        raise ValueError(f"{name} is {cache.dtype} {tuple(cache.shape)}, not uint8 [pages, {size} "
                         f"to {padded}]: pages of {source.page_size} tokens")  # fmt: skip
    word = 2 if layout.footer_bytes else 4  # bytes of what is read at once: bf16, float32
    steps = (cache.stride(0), source.row_stride, cache.data_ptr())
    if cache.stride(1) != 1 or any(step % word for step in steps):
        raise ValueError(f"{name} has strides {cache.stride()} and rows {source.row_stride} bytes "
                         f"apart: not side by side, or not whole words of {word}")  # fmt: skip


def stored(x: Inputs, source: Source, tokens: torch.Tensor) -> layouts.Tokens:
    """What a cache holds of `tokens` [...]: codes, scales, rotary values."""
    layout = LAYOUTS[x.layout]
    views = layouts.places(layout, source.cache, source.page_size, source.row_stride)
    page, place = tokens.long() // source.page_size, tokens.long() % source.page_size
    return layouts.as_tokens(layout, layouts.Places(*(view[page, place] for view in views)))


def gathered(x: Inputs, source: Source, tokens: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The rows [..., d_qk] of `tokens` [...] of a cache in `dtype`, gathered before widened."""
    return layouts.dequantise(stored(x, source, tokens), dtype)


def valid_lanes(source: Source) -> torch.Tensor:
    """Which lanes of a cache count [T, topk] bool."""
    return selections.valid_lanes(source.indices, source.rows, source.topk_length)


def reference(x: Inputs) -> Output:
    """The definition in float64; rows are gathered before they are widened."""
    layout = LAYOUTS[x.layout]
    caches = [(source, valid_lanes(source)) for source in sources(x)]

    def of_cache(source: Source, lanes: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        if not source.rows:
            return x.q.new_zeros(*lanes.shape, layout.d_qk, dtype=torch.float64)
        return gathered(x, source, lanes.where(valid, 0), torch.float64)

    def rows(part: slice) -> torch.Tensor:
        found = torch.cat([of_cache(s, s.indices[part], valid[part]) for s, valid in caches], 1)
        return found.float().bfloat16().double() if x.rounded_rows else found

    valid = torch.cat([valid for _, valid in caches], 1)
    return Output(*attention(x.q, valid, rows, layout.d_v, x.sm_scale, x.attn_sink))


def _read(source: Source) -> torch.Tensor:
    return pools.read_rows(source.cache, source.page_size, source.indices, source.topk_length)


def cost(x: Inputs) -> Cost:
    """Read each selected row once however many tokens share it; read q, indices, write out, lse."""
    layout, (tokens, heads, _), lanes = LAYOUTS[x.layout], x.q.shape, 0
    moved = tokens * heads * ((layout.d_qk + layout.d_v) * 2 + 4)
    for source in sources(x):
        moved += int(_read(source).sum()) * layout.token_bytes + 4 * source.indices.numel()
        lanes += int(valid_lanes(source).sum())
    return Cost(moved, 2 * heads * lanes * (layout.d_qk + layout.d_v))


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Another selection and other queries on the caches of `first`, as the next call would have.

    Rows that no selection has read so far hold poison: they get the fresh numbers.
    """
    for held, new in zip(sources(first), sources(fresh), strict=True):
        pools.merged(held.cache, new.cache, first.layout, held.page_size, held.row_stride)
    return fresh._replace(cache=first.cache, extra_cache=first.extra_cache)


def shared_bytes(sets) -> int:
    """Rows of the caches that several sets read."""
    again = 0
    for of_sets in zip(*map(sources, sets), strict=True):  # the main caches, then the extra ones
        seen = [_read(source) for source in of_sets]
        again += sum(int(s.sum()) for s in seen) - int(torch.stack(seen).any(0).sum())
    return again * LAYOUTS[sets[0].layout].token_bytes


def doubts(x: Inputs) -> list[str]:
    """What of the selections makes a time say nothing, cache by cache."""
    found = []
    for name, source in zip(("", "extra cache: "), sources(x), strict=False):
        told = selections.doubts(source.indices, source.rows, source.topk_length)
        found += [name + sentence for sentence in told]
    return found


def statistics(x: Inputs) -> dict:
    main, *extra = (selection_statistics(s.indices, s.rows, s.topk_length) for s in sources(x))
    return main | {f"extra_{name}": value for found in extra for name, value in found.items()}


fp8_prefill = Op(
    name="fp8_prefill",
    Workload=Workload,
    Output=Output,
    dtypes={"out": "bfloat16", "lse": "float32"},
    lse_base=2,
    suites=SUITES,
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    rotated=rotated,
    shared_bytes=shared_bytes,
    doubts=doubts,
)
