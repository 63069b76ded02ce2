"""The merge in plain PyTorch: one pass over all parts, the empty ones masked."""

import torch

from ..definition import Inputs, Output, base_2, merge_splits


@merge_splits.variant()
def eager(x: Inputs, config: None) -> Output:
    """Weigh the parts by their share of the softmax and add them up, in float32."""
    whole = (x.lse / base_2(torch.ones(()))).logsumexp(-1)  # base e
    lse = base_2(whole)
    met = ~x.lse.isneginf()
    weights = torch.exp2(x.lse - torch.where(lse.isneginf(), 0.0, lse)[..., None])
    out = (weights[..., None] * torch.where(met[..., None], x.partial, 0.0)).sum(2)
    if x.attn_sink is not None:
        out *= torch.sigmoid(torch.where(lse.isneginf(), 0.0, whole) - x.attn_sink)[..., None]
    return Output(out.bfloat16(), lse)
