"""One gather for several neighbouring tokens, in plain PyTorch."""

import math
from dataclasses import dataclass

import torch

from ...union_plan.definition import Inputs as Selections
from ...union_plan.kernels.eager import eager as plan
from ..definition import DC, Inputs, Output, sparse_prefill

GATHER_BYTES = 1 << 27  # of float32 rows held at a time


@dataclass(frozen=True)
class Config:
    group: int = 4  # tokens that share a gather


@sparse_prefill.variant(
    config=Config(), step_from="eager", capturable=False, independent=False
)  # the longest union sizes the gather, read on the host
def eager_union(x: Inputs, config: Config) -> Output:
    """Gather each group's union once; owner bits keep every token's own softmax support."""
    tokens, heads, width = x.q.shape
    G, device = config.group, x.q.device
    union_rows, owners, length = plan(Selections(x.indices, x.topk_length, len(x.kv), G))
    groups = len(length)
    q = x.q.new_zeros(groups * G, heads, width)
    q[:tokens] = x.q
    out = torch.empty(groups, G, heads, DC, dtype=x.q.dtype, device=device)
    lse = torch.empty(groups, G, heads, dtype=torch.float32, device=device)
    longest = int(length.max()) if groups else 0
    step = max(1, GATHER_BYTES // (4 * width * max(longest, 1)))
    bit = 1 << torch.arange(G, dtype=torch.int32, device=device)
    for first in range(0, groups, step):
        part = slice(first, first + step)
        most = int(length[part].max())
        ok = torch.arange(most, device=device) < length[part, None]  # [g, most]
        rows = x.kv[torch.where(ok, union_rows[part, :most], 0).long()] if most else (
            x.kv.new_zeros(len(ok), 0, width))  # fmt: skip
        rows = torch.where(ok[..., None], rows, 0).float()  # [g, most, 576]
        query = q.view(groups, G * heads, width)[part].float()
        scores = (query @ rows.mT * x.sm_scale).unflatten(1, (G, heads))  # [g, G, H, most]
        owned = ok[:, None] & ((owners[part, None, :most] & bit[:, None]) != 0)  # [g, G, most]
        scores = scores.masked_fill(~owned[:, :, None], -torch.inf)
        natural = scores.logsumexp(-1)
        safe = torch.where(natural.isneginf(), 0.0, natural)
        weights = (scores - safe[..., None]).exp().flatten(1, 2)
        weighted = (weights @ rows[..., :DC]).unflatten(1, (G, heads))
        if x.attn_sink is not None:
            weighted *= torch.sigmoid(safe - x.attn_sink)[..., None]
        out[part], lse[part] = weighted, natural / math.log(2)
    return Output(out.flatten(0, 1)[:tokens], lse.flatten(0, 1)[:tokens])
