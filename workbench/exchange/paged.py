"""Inputs of `sparse_prefill` as the definition passes them, and back.

The definition knows neither topk_length nor a sink: lanes at or past a length become padding, and a
sink is refused. Its cache is whole pages: rows that no page needs are added as zeros, and so are
the rows that no token selects, which our inputs fill with NaN; a reader that looks at row 0 of a
padded lane and masks it afterwards is right by the definition.
"""

from typing import NamedTuple

import torch

from ..ops.sparse_prefill.definition import DC, Inputs, valid_lanes


class Paged(NamedTuple):
    """The arguments of a solution, in the definition's order."""

    q_nope: torch.Tensor  # [T, H, 512] bf16
    q_pe: torch.Tensor  # [T, H, 64] bf16
    ckv_cache: torch.Tensor  # [pages, page_size, 512] bf16
    kpe_cache: torch.Tensor  # [pages, page_size, 64] bf16
    sparse_indices: torch.Tensor  # [T, topk] int32, page * page_size + offset; -1: padding
    sm_scale: float


def paged(x: Inputs, page_size: int) -> Paged:
    """`x` in pages of `page_size` rows. Raises ValueError where `x` has a sink."""
    if x.attn_sink is not None:
        raise ValueError("the definition has no attention sink")
    valid = valid_lanes(x)
    rows = len(x.kv)
    pages = -(-rows // page_size)
    cache = x.kv.new_zeros(pages * page_size, x.kv.shape[1])
    seen = x.indices[valid].long().unique()
    cache[seen] = x.kv[seen]
    cache = cache.view(pages, page_size, -1)
    return Paged(x.q[..., :DC].contiguous(), x.q[..., DC:].contiguous(),
                 cache[..., :DC].contiguous(), cache[..., DC:].contiguous(),
                 torch.where(valid, x.indices, -1), x.sm_scale)  # fmt: skip


def flat(p: Paged) -> Inputs:
    """`p` as one cache of rows, with NaN in those that no token selects, as `make_inputs` has them.

    The positions of the queries are not known: each is put behind the last row, from where it sees
    all of them. Raises ValueError where pages of the two caches differ.
    """
    if p.ckv_cache.shape[:2] != p.kpe_cache.shape[:2]:
        raise ValueError(f"ckv_cache has pages of {tuple(p.ckv_cache.shape[:2])}, kpe_cache of "
                         f"{tuple(p.kpe_cache.shape[:2])}")  # fmt: skip
    x = joined(p)
    unread = torch.ones(len(x.kv), dtype=torch.bool, device=x.kv.device)
    unread[x.indices[valid_lanes(x)].long()] = False
    x.kv[unread] = torch.nan
    return x


def joined(p: Paged) -> Inputs:
    """`p` as one cache of rows, each as it is; nothing is read on the host."""
    kv = torch.cat([p.ckv_cache, p.kpe_cache], dim=-1).flatten(0, 1)
    q = torch.cat([p.q_nope, p.q_pe], dim=-1)
    places = torch.full((len(q),), len(kv) - 1, dtype=torch.int32, device=q.device)
    return Inputs(q, kv, p.sparse_indices, places, None, None, float(p.sm_scale))
