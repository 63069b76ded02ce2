"""Sparse attention over rows of a paged latent cache, one token at a time, in float64.

A row is page * page_size + offset. Lanes that hold -1 are padding. Values are the latent part of a
row. lse is base 2; a token of nothing but padding gives output 0 and lse -inf.
"""

import math

import torch


@torch.no_grad()
def run(q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    """Return (output [T, H, 512] bfloat16, lse [T, H] float32)."""
    latent_rows = ckv_cache.flatten(0, 1)  # [pages * page_size, 512]
    rotary_rows = kpe_cache.flatten(0, 1)  # [pages * page_size, 64]
    output = torch.zeros_like(q_nope)
    lse = torch.full(q_nope.shape[:2], -math.inf, dtype=torch.float32, device=q_nope.device)
    for t, lanes in enumerate(sparse_indices):
        rows = lanes[lanes != -1].long()
        if not len(rows):
            continue
        latent, rotary = latent_rows[rows].double(), rotary_rows[rows].double()
        scores = q_nope[t].double() @ latent.T + q_pe[t].double() @ rotary.T  # [H, rows]
        scores = scores * sm_scale
        lse[t] = (scores.logsumexp(-1) / math.log(2)).to(lse.dtype)
        output[t] = (scores.softmax(-1) @ latent).to(output.dtype)
    return output, lse
