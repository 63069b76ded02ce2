"""How far sparse attention in 8 and in 16 bits is from float64, computed without a kernel.

Rounding of operands and of the answer is modelled, with exact sums between them. Queries: bf16, or
e4m3 in units of a power of two of their group, as caches are quantised. Weights, times the scales
of the values: bf16, or e4m3 in units of the largest one of a head, a group and a tile of rows; a
second pass multiplies what the first one rounded away. As FlashInfer's kernels for SM120 quantise
(seed 002; flashinfer-ai/flashinfer#4751, #4802).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from .. import layouts
from ..compare import relative_l2
from ..layouts import LAYOUTS, scales
from ..ops.fp8_prefill import definition as fp8_prefill
from ..ops.fp8_prefill.workload import Workload

TILE = 64  # cache rows whose weights share a unit
LEAST = 1e-10  # of the largest weight times scale
KINDS = ("bf16", "fp8")


@dataclass(frozen=True)
class Arithmetic:
    """What the tensor core is given."""

    query: str = "bf16"  # one of KINDS
    weights: str = "bf16"  # one of KINDS
    passes: int = 1  # products of weights and values: the second one is of the rest

    def __post_init__(self):
        for name in ("query", "weights"):
            if getattr(self, name) not in KINDS:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(KINDS)}")
        if self.passes not in (1, 2):
            raise ValueError(f"passes={self.passes} is neither 1 nor 2")


ARITHMETICS: Mapping[str, Arithmetic] = {
    "bf16": Arithmetic(),
    "fp8 weights": Arithmetic("bf16", "fp8"),
    "fp8 queries": Arithmetic("fp8", "bf16"),
    "fp8 both": Arithmetic("fp8", "fp8"),
    "fp8 both, 2 passes": Arithmetic("fp8", "fp8", 2),
}


@dataclass(frozen=True)
class Error:
    """Of an answer beside the float64 one, over all tokens, heads and columns."""

    arithmetic: str  # a key of ARITHMETICS
    topk: int
    scale_format: str
    spread: float  # standard deviation of the scores that count, natural units
    cosine: float
    relative_l2: float


def errors(w: Workload, arithmetics: Mapping[str, Arithmetic] = ARITHMETICS) -> list[Error]:
    """An error for each arithmetic on the inputs of `w`, in their order.

    Raises ValueError where the exact answer is zero: nothing has an error then.
    """
    x = fp8_prefill.make_inputs(w, "cpu")
    exact = fp8_prefill.reference(x).out
    if not exact.any():
        raise ValueError(f"topk={w.topk}, holes={w.holes}: no token of {w.tokens} has an answer "
                         "that is not zero")  # fmt: skip
    scores = [_scores(x, x.q[t].double(), _rows(x, t)).flatten() for t in range(w.tokens)]
    spread = float(torch.cat(scores).std(correction=0))
    made = zip(arithmetics, answers(x, list(arithmetics.values())), strict=True)
    return [Error(name, w.topk + w.extra_topk, w.scale_format, spread, cosine(out, exact),
                  relative_l2(out, exact)) for name, out in made]  # fmt: skip


def study(
    scales_of_scores: Sequence[float] = (1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8),
    topks: Sequence[int] = (64, 512, 2048), **fields,
) -> list[Error]:  # fmt: skip
    """Errors along sm_scale at the middle topk, and along topk at the middle sm_scale.

    `fields` are of the workload, which is otherwise a token of 16 heads on DeepSeek-V3.2's rows;
    their model has an sm_scale of 1/16.
    """
    base = Workload(**{"tokens": 1, "heads": 16, "rows": 4096} | fields)
    scale, topk = (sorted(v)[len(v) // 2] for v in (scales_of_scores, topks))
    places = dict.fromkeys([*((s, topk) for s in scales_of_scores), *((scale, k) for k in topks)])
    return [error for s, k in places for error in errors(replace(base, sm_scale=s, topk=k))]


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    """Of two tensors as one vector each, in float64."""
    a, b = a.double().flatten(), b.double().flatten()
    return float(a @ b / (a.norm() * b.norm()))


def answers(x: fp8_prefill.Inputs, arithmetics: Sequence[Arithmetic]) -> list[torch.Tensor]:
    """out [T, H, d_v] bf16 of inputs on the CPU, for each of `arithmetics`."""
    shape = (*x.q.shape[:2], LAYOUTS[x.layout].d_v)
    out = [torch.zeros(shape, dtype=torch.bfloat16) for _ in arithmetics]
    queries = {kind: _query(x, kind) for kind in {a.query for a in arithmetics}}
    for t in range(len(x.q)):
        rows = _rows(x, t)
        if not len(rows.nope):
            continue
        for made, a in zip(out, arithmetics, strict=True):
            made[t] = _attention(x, rows, queries[a.query][t], a).bfloat16()
    return out


def _query(x: fp8_prefill.Inputs, kind: str) -> torch.Tensor:
    """The queries as they are multiplied [T, H, d_qk] float64; rotary values stay bf16."""
    q, layout = x.q.double(), LAYOUTS[x.layout]
    if kind == "fp8":
        latent = scales.quantise(q[..., : layout.nope], layout.group, scales.POW2)
        q = torch.cat((scales.dequantise(*latent), q[..., layout.nope :]), -1)
    return q


def _rows(x: fp8_prefill.Inputs, t: int) -> layouts.Tokens:
    """The rows that token `t` counts, of both caches: codes, scales, rotary values in float64."""
    found = []
    for s in fp8_prefill.sources(x):
        rows = fp8_prefill.stored(x, s, s.indices[t][fp8_prefill.valid_lanes(s)[t]])
        found.append((rows.nope.double(), rows.rope.double(), scales.decoded(rows.scales)))
    return layouts.Tokens(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _scores(x: fp8_prefill.Inputs, q: torch.Tensor, rows: layouts.Tokens) -> torch.Tensor:
    """[H, rows] float64, natural units, of queries [H, d_qk]."""
    return q @ torch.cat((scales.dequantise(rows.nope, rows.scales), rows.rope), 1).T * x.sm_scale


def _attention(
    x: fp8_prefill.Inputs, rows: layouts.Tokens, q: torch.Tensor, a: Arithmetic
) -> torch.Tensor:
    """out [H, d_v] float64 of queries [H, d_qk] on `rows`."""
    layout, scores = LAYOUTS[x.layout], _scores(x, q, rows)
    p = (scores - scores.amax(-1, keepdim=True)).exp()  # [H, rows]
    sums = _weighted(p, rows, a)
    if layout.d_v > layout.nope:  # rotary values are bf16 whatever the rest is
        sums = torch.cat((sums, p.bfloat16().double() @ rows.rope), 1)
    out = sums / p.sum(-1, keepdim=True)
    if x.attn_sink is not None:
        lse = scores.logsumexp(-1, keepdim=True)
        out *= torch.sigmoid(lse - x.attn_sink.double()[:, None])
    return out


def _weighted(p: torch.Tensor, rows: layouts.Tokens, a: Arithmetic) -> torch.Tensor:
    """Sums [H, nope] of codes times weights p [H, rows], rounded together with the scales."""
    groups = rows.nope.unflatten(-1, (rows.scales.shape[-1], -1)).transpose(0, 1)  # [G, rows, n]
    left = torch.einsum("hr,rg->ghr", p, rows.scales)
    unit = _units(left) if a.weights == "fp8" else torch.ones(())
    narrow = torch.float8_e4m3fn if a.weights == "fp8" else torch.bfloat16
    left, taken = left / unit, torch.zeros_like(left)
    for _ in range(a.passes):
        part = (left - taken).float().to(narrow).double()
        taken += part
    return ((taken * unit) @ groups).transpose(0, 1).flatten(1)


def _units(weights: torch.Tensor) -> torch.Tensor:
    """What the largest weight of each tile is 448 of, at each weight of [groups, H, rows]."""
    tiles = weights.split(TILE, -1)
    largest = [t.amax(-1, keepdim=True).clamp(min=LEAST).expand_as(t) for t in tiles]
    return torch.cat(largest, -1) / scales.E4M3_MAX
