"""Merging parts of a softmax: each part saw its own rows and says what came out, and how much.

lse[t, h] = log2 sum_s 2**lse[t, h, s], out[t, h] = sum_s 2**(lse[t, h, s] - lse[t, h]) out[t, h, s]
over the parts s of head h of token t. A part whose `lse` is -inf met no row: it adds nothing, and
its `partial` is not read. Without any part, out = 0 and lse = -inf. `attn_sink` is one more logit
(natural log) that takes weight and gives nothing; it is applied here, once, and `lse` excludes it.

All is base 2. Half of the field returns natural logarithms, and a merge of the one fed with the
other is off by little enough to pass for rounding (sgl-project/sglang#35045: 0.1): `base_2` is the
one place where a caller's natural logarithms are converted. Milakov and Gimelshein, 2018.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...op import Cost, Op
from ..sparse_prefill.definition import compare
from ..sparse_prefill.workload import SINKS


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 32  # T
    heads: int = 16  # H
    splits: int = 8  # parts of a token and head
    width: int = 512  # d_v
    empty: float = 0.0  # share of the parts that met no row
    spread: float = 2.0  # standard deviation of the parts' lse, base 2
    sink: str = "none"  # attn_sink: one of SINKS
    seed: int = 0

    def __post_init__(self):
        for name, least in (("tokens", 0), ("heads", 1), ("splits", 1), ("width", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is below {least}")
        if not 0.0 <= self.empty <= 1.0 or self.spread < 0:
            raise ValueError(
                f"empty={self.empty} is outside [0, 1] or spread={self.spread} below 0"
            )
        if self.sink not in SINKS:
            raise ValueError(f"sink={self.sink!r} is none of {', '.join(SINKS)}")


class Inputs(NamedTuple):
    partial: torch.Tensor  # [T, H, splits, d_v] float32, contiguous; anything where lse is -inf
    lse: torch.Tensor  # [T, H, splits] float32, base 2, contiguous; -inf: no row
    attn_sink: torch.Tensor | None  # [H] float32, natural-log logit


class Output(NamedTuple):
    out: torch.Tensor  # [T, H, d_v] bf16
    lse: torch.Tensor  # [T, H] float32, base 2, without the sink


def base_2(natural: torch.Tensor) -> torch.Tensor:
    """Logarithms base 2 of what has the logarithms `natural` base e."""
    return natural / math.log(2)


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the tensors of `w`, on the CPU; what an empty part gave is NaN."""
    gen = torch.Generator().manual_seed(w.seed)
    partial = torch.randn(w.tokens, w.heads, w.splits, w.width, generator=gen)
    lse = 10 + w.spread * torch.randn(w.tokens, w.heads, w.splits, generator=gen)
    empty = torch.rand(lse.shape, generator=gen) < w.empty
    lse[empty], partial[empty] = -torch.inf, torch.nan
    sink = None
    if w.sink == "random":
        sink = 7 + 2 * torch.randn(w.heads, generator=gen)  # 10 * ln 2 is 7
    elif w.sink != "none":
        sink = torch.full((w.heads,), float(w.sink))
    return Inputs(*(t if t is None else t.to(device) for t in (partial, lse, sink)))


def validate(x: Inputs) -> None:
    """Raise ValueError on a shape, dtype or stride that would be read as something else."""
    if x.lse.ndim != 3 or not x.lse.shape[2]:
        raise ValueError(f"lse has shape {tuple(x.lse.shape)}, not [T, H, splits of at least 1]")
    expected = {"partial": (*x.lse.shape, x.partial.shape[-1]), "lse": tuple(x.lse.shape[:3]),
                "attn_sink": (x.lse.shape[1],)}  # fmt: skip
    for name, shape in expected.items():
        tensor = getattr(x, name)
        if tensor is None:
            continue
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != shape:
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, "
                             f"not torch.float32 {shape}")  # fmt: skip
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()}: only a contiguous one is read")


def reference(x: Inputs) -> Output:
    """The definition in float64."""
    natural = x.lse.double() * math.log(2)  # [T, H, splits]
    whole = natural.logsumexp(-1)
    weights = (natural - torch.where(whole.isneginf(), 0.0, whole)[..., None]).exp()
    parts = torch.where(x.lse.isneginf()[..., None], 0.0, x.partial.double())
    out = (weights[..., None] * parts).sum(2)
    if x.attn_sink is not None:
        taken = torch.sigmoid(whole - x.attn_sink.double())
        out *= torch.where(whole.isneginf(), 0.0, taken)[..., None]
    return Output(out, base_2(whole))


def cost(x: Inputs) -> Cost:
    """Read every lse, and the parts that met a row; write out and lse."""
    (tokens, heads, splits), width = x.lse.shape, x.partial.shape[-1]
    met = int((~x.lse.isneginf()).sum())
    moved = 4 * (tokens * heads * (splits + 1) + met * width) + 2 * tokens * heads * width
    return Cost(moved, 2 * met * width)


def statistics(x: Inputs) -> dict:
    return {"parts": x.lse.numel(), "empty_parts": int(x.lse.isneginf().sum())}


_tiny = Workload(tokens=3, heads=5, splits=3, width=64, empty=0.3)
_edges = (
    _tiny,
    replace(_tiny, tokens=0),
    replace(_tiny, tokens=1, heads=1),
    replace(_tiny, splits=1),
    replace(_tiny, splits=1, sink="random"),
    replace(_tiny, splits=40, width=512),  # more than a tile of parts, and of columns
    replace(_tiny, width=70),  # a ragged tile of columns
    replace(_tiny, empty=1.0, sink="random"),  # nobody met a row
    replace(_tiny, empty=0.0, spread=200.0),  # one part has all the weight
    replace(_tiny, spread=0.0, sink="-inf"),
    replace(_tiny, sink="+inf"),
    replace(_tiny, heads=17, sink="random", splits=8),
)
SUITES = {
    "edges": _edges,
    "splits": tuple(Workload(tokens=tokens, heads=heads, splits=splits) for tokens in (1, 32, 128)
                    for heads in (16, 128) for splits in (2, 8, 32)),
}  # fmt: skip

merge_splits = Op(
    name="merge_splits",
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
)
