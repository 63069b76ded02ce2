"""Gather bytes, dequantise, then dense attention, in plain PyTorch: what a user starts from."""

import math

import torch

from ....layouts import LAYOUTS
from ..definition import Inputs, Output, fp8_prefill, gathered, sources, valid_lanes

GATHER_BYTES = 1 << 27  # of float32 rows held at a time; past the last-level cache more is no gain


@fp8_prefill.variant(independent=False)  # a batched product sums in an order of its own
def eager(x: Inputs, config: None) -> Output:
    """Dequantise each token's rows in float32, then two batched matrix products."""
    tokens, heads, width = x.q.shape
    d_v, caches = LAYOUTS[x.layout].d_v, sources(x)
    out = torch.empty(tokens, heads, d_v, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    valid = [valid_lanes(source) for source in caches]
    lanes = sum(source.indices.shape[1] for source in caches)
    step = max(1, GATHER_BYTES // (4 * width * lanes))
    for first in range(0, tokens, step):
        part = slice(first, first + step)
        ok = torch.cat([lane[part] for lane in valid], 1)  # [t, lanes]
        rows = torch.cat(
            [_rows(x, source, lane, part) for source, lane in zip(caches, valid, strict=True)], 1
        )  # [t, lanes, d_qk]
        scores = x.q[part].float() @ rows.mT * x.sm_scale  # [t, H, lanes]
        scores = scores.masked_fill(~ok[:, None], -torch.inf)
        natural = scores.logsumexp(-1)
        safe = torch.where(natural.isneginf(), 0.0, natural)
        weighted = (scores - safe[..., None]).exp() @ rows[..., :d_v]
        if x.attn_sink is not None:
            weighted *= torch.sigmoid(safe - x.attn_sink)[..., None]
        out[part], lse[part] = weighted, natural / math.log(2)
    return Output(out, lse)


def _rows(x: Inputs, source, valid: torch.Tensor, part: slice) -> torch.Tensor:
    """Rows [t, topk, d_qk] float32 of the tokens `part`; zeros where a lane does not count."""
    ok = valid[part]
    if not source.rows:  # no row to stand in for a masked one
        return x.q.new_zeros(*ok.shape, x.q.shape[2], dtype=torch.float32)
    rows = gathered(x, source, torch.where(ok, source.indices[part], 0), torch.float32)
    return torch.where(ok[..., None], rows, 0)
