"""Sparse decode out of an fp8 cache: the attention of one step of several requests.

The answer is that of `fp8_prefill`: the same lanes, rows, sink and base-2 `lse`, of `inline_656`
and `footer_584`, the latter with a second cache, too. What differs is how much there is of it: few
tokens, so that a token's rows are shared out among programs whose parts are then merged. And `lse`
goes where the caller wants it: `out_lse` may be a view of a wider tensor, and what stands between
its rows is not ours (flashinfer-ai/flashinfer#4802: a decode kernel wrote there, in silence).
Heads are 1 to 128, topk is any number from 1 on, T = 0 gives empty outputs. Seed 002.
"""

from typing import NamedTuple

import torch

from ...compare import same_bits
from ...layouts import LAYOUTS as ALL_LAYOUTS
from ...op import Op, Verdict
from ..fp8_prefill import definition as prefill
from ..sparse_prefill.definition import compare as compared
from .workload import LAYOUTS, MOST_HEADS, SUITES, Workload

WORD = 8  # bytes of a token's scales in a footer, read at once


class Memory(NamedTuple):
    """What a server keeps for its calls, in place of what each of them would allocate.

    It asks nothing and answers nothing, so it is one field that is no tensor: the gate compares,
    guards and renews tensors, and makes its own calls without. The answers of who holds one pass
    the gate as a variant's do (tests/test_runner.py).
    """

    out: torch.Tensor  # [T, H, d_v] bf16, contiguous: the answer is written here
    parts: torch.Tensor  # [n] float32, for what splits leave: `Variant.workspace_bytes` of them
    counters: torch.Tensor  # [n >= T * H] int32: 0 before a call, and after it


class Inputs(NamedTuple):
    """The fields of `fp8_prefill` by the same names: its functions take them. And two of ours."""

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
    layout: str  # one of LAYOUTS, of both caches
    scale_format: str  # pow2_fp32: a reader may take the exponents of the scales alone
    rounded_rows: bool  # the answer sought is that of rows rounded to bf16
    out_lse: torch.Tensor  # [T, H] float32, rows may be strided: `lse` is written here
    memory: Memory | None = None  # none: a run allocates what it needs


class Output(NamedTuple):
    out: torch.Tensor  # [T, H, 512] bf16
    lse: torch.Tensor  # [T, H] float32, base 2, without the sink: `out_lse` itself


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the tensors of `w`: equal workloads give equal numbers on every device."""
    x = prefill.make_inputs(w.prefill(), device)
    out_lse = torch.full((w.tokens, w.heads + w.gap), torch.nan, device=device)[:, : w.heads]
    x = x._replace(indices=_apart(x.indices, w.gap), extra_indices=_apart(x.extra_indices, w.gap))
    return Inputs(*x, out_lse)


def _apart(lanes: torch.Tensor | None, gap: int) -> torch.Tensor | None:
    """`lanes` [T, topk] as a view of a tensor with `gap` more numbers in a row: rows of another."""
    return lanes if lanes is None or not gap else torch.nn.functional.pad(lanes, (0, gap))[:, :-gap]


def validate(x: Inputs) -> None:
    """Raise ValueError on a shape, dtype or stride that would be read as something else."""
    prefill.validate(x)
    tokens, heads = x.q.shape[:2]
    if x.layout not in LAYOUTS:
        raise ValueError(f"layout={x.layout!r} is none of {', '.join(LAYOUTS)}")
    if not x.indices.shape[1]:
        raise ValueError(f"indices is {tuple(x.indices.shape)}: a token has no lane")
    if not 1 <= heads <= MOST_HEADS:
        raise ValueError(f"q has {heads} heads, not 1 to {MOST_HEADS}")
    lse = x.out_lse
    if lse.dtype != torch.float32 or lse.shape != (tokens, heads):
        raise ValueError(f"out_lse is {lse.dtype} {tuple(lse.shape)}, not torch.float32 "
                         f"{(tokens, heads)}")  # fmt: skip
    if (heads > 1 and lse.stride(1) != 1) or (tokens > 1 and lse.stride(0) < heads):
        raise ValueError(f"out_lse has strides {lse.stride()}: its rows overlap or are no rows")
    if ALL_LAYOUTS[x.layout].footer_bytes:
        for name, cache in (("cache", x.cache), ("extra_cache", x.extra_cache)):
            if cache is not None and (cache.stride(0) % WORD or cache.data_ptr() % WORD):
                raise ValueError(f"{name} has pages {cache.stride(0)} bytes apart from address "
                                 f"{cache.data_ptr()} on: not whole words of {WORD}")  # fmt: skip
    out, shape = x.memory and x.memory.out, (tokens, heads, ALL_LAYOUTS[x.layout].d_v)
    if out is not None and (out.dtype != torch.bfloat16 or out.shape != shape
                            or not out.is_contiguous()):  # fmt: skip
        raise ValueError(f"out is {out.dtype} {tuple(out.shape)} with strides {out.stride()}, not "
                         f"a contiguous torch.bfloat16 {shape}")  # fmt: skip


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """As sparse prefill has it; and `lse` is where the caller wants it."""
    if not same_bits(actual.lse, x.out_lse):
        return Verdict("incorrect", why="out_lse does not hold the lse that was returned")
    return compared(x, actual, expected)


sparse_decode = Op(
    name="sparse_decode",
    Workload=Workload,
    Output=Output,
    dtypes={"out": "bfloat16", "lse": "float32"},
    lse_base=2,
    suites=SUITES,
    make_inputs=make_inputs,
    validate=validate,
    reference=prefill.reference,
    compare=compare,
    cost=prefill.cost,
    statistics=prefill.statistics,
    fills=("out_lse",),
    rotated=prefill.rotated,
    shared_bytes=prefill.shared_bytes,
    doubts=prefill.doubts,
    preference=("split_k_registers", "split_k_wgmma", "split_k"),
)
