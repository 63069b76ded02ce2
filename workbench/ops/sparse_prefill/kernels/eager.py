"""Gather, then dense attention, in plain PyTorch: the baseline a user starts from."""

import math

import torch

from ..definition import DC, Inputs, Output, sparse_prefill, valid_lanes

GATHER_BYTES = 1 << 27  # of float32 rows held at a time; past the last-level cache more is no gain


@sparse_prefill.variant(independent=False)  # a batched product sums in an order of its own
def eager(x: Inputs, config: None) -> Output:
    """Materialise each token's rows in float32, then two batched matrix products."""
    (tokens, heads, width), topk = x.q.shape, x.indices.shape[1]
    out = torch.empty(tokens, heads, DC, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    valid = valid_lanes(x)
    step = max(1, GATHER_BYTES // (4 * width * topk))
    for first in range(0, tokens, step):
        part = slice(first, first + step)
        ok = valid[part]  # [t, topk]
        if not len(x.kv):  # no row to stand in for a masked one
            out[part], lse[part] = 0.0, -torch.inf
            continue
        rows = x.kv[torch.where(ok, x.indices[part], 0).long()]
        rows = torch.where(ok[..., None], rows, 0).float()  # [t, topk, 576]
        scores = x.q[part].float() @ rows.mT * x.sm_scale  # [t, H, topk]
        scores = scores.masked_fill(~ok[:, None], -torch.inf)
        natural = scores.logsumexp(-1)
        safe = torch.where(natural.isneginf(), 0.0, natural)
        weighted = (scores - safe[..., None]).exp() @ rows[..., :DC]
        if x.attn_sink is not None:
            weighted *= torch.sigmoid(safe - x.attn_sink)[..., None]
        out[part], lse[part] = weighted, natural / math.log(2)
    return Output(out, lse)
