"""What is wrong with a selection, in words that name the row: a check for captures and laws."""

from collections.abc import Sequence

import torch

from .requests import Request, Selection, ends

PADDING = -1
SAME_TOKENS = 8  # tokens that select the same rows by accident are fewer


def valid_lanes(indices: torch.Tensor, rows: int, topk_length: torch.Tensor | None) -> torch.Tensor:
    """Which lanes of indices [tokens, topk] count, as bool: the contract's definition."""
    valid = (indices >= 0) & (indices < rows)
    if topk_length is not None:
        valid &= torch.arange(indices.shape[1], device=indices.device) < topk_length[:, None]
    return valid


def violations(
    indices: torch.Tensor,
    rows: int,
    positions: torch.Tensor | None = None,
    topk_length: torch.Tensor | None = None,
    requests: Sequence[Request] | None = None,
) -> list[str]:
    """Return one sentence a kind of fault of indices [tokens, topk]; an empty list where none.

    Looks for: lengths outside [0, topk], rows outside the cache, rows after the query's position,
    a row twice in one token, and an invalid lane before the last valid one (legal here, refused
    by kernels that take the length as a count). Lanes at or past topk_length are not looked at.
    `requests` of a batch: positions are counted from the first row of each, and a row of another
    request is a fault.
    """
    tokens, topk = indices.shape
    found = []
    lane = torch.arange(topk, device=indices.device)
    counted = torch.ones_like(indices, dtype=torch.bool)
    if topk_length is not None:
        outside = ((topk_length < 0) | (topk_length > topk)).nonzero().flatten()
        if len(outside):
            t = int(outside[0])
            found.append(f"topk_length of {len(outside)} tokens is outside [0, {topk}], "
                         f"first token {t}: {int(topk_length[t])}")  # fmt: skip
        counted = lane < topk_length[:, None]
    found += _first(counted & (indices >= rows), indices, f"a row past the cache of {rows} rows")
    valid = counted & (indices >= 0) & (indices < rows)
    first, end = _own_rows(indices, rows, requests)
    foreign = valid & ((indices < first) | (indices >= end))
    found += _first(foreign, indices, "a row of another request")
    if positions is not None:
        late = valid & ~foreign & (indices - first > positions[:, None])
        found += _first(late, indices, "a row after the query's own position")
    found += _first(_repeated(indices, valid), indices, "the same row twice")
    last = torch.where(valid, lane, -1).amax(1) if topk else lane.new_zeros(tokens)
    hole = ~valid & (lane < last[:, None])
    found += _first(hole, indices, "an invalid lane before its last valid one")
    return found


def doubts(indices: torch.Tensor, rows: int, topk_length: torch.Tensor | None = None) -> list[str]:
    """What makes indices [tokens, topk] the work of no model: dummies, and rows named twice.

    Dummy indices read one row over and over from the nearest cache, so their times say nothing of
    a gather; a row that a token names twice counts twice in its softmax and is gathered twice.
    """
    valid = valid_lanes(indices, rows, topk_length)
    if not indices.numel():
        return []
    if not valid.any():
        return ["no lane is valid"]
    found = []
    named = indices[valid]
    if len(named) > 1 and (named == named[0]).all():
        found.append(f"dummies: every valid lane names row {int(named[0])}")
    tokens = int(_repeated(indices, valid).any(1).sum())
    if tokens:
        found.append(f"{tokens} tokens name a row twice")
    return found


def refusals(s: Selection) -> list[str]:
    """Why a selection is no capture of a model; each sentence begins with the name of the fault.

    `empty`, `all zero`, `constant` (one row everywhere, or all tokens alike though they see more
    rows than they name), `out of range` (outside the cache and not the padding -1), `not causal`,
    `duplicates`. Dummy indices of an engine's warm-up look like this (vllm-project/vllm#55372).
    """
    indices, found = s.indices, []
    valid = valid_lanes(indices, s.rows, None)
    outside = ~valid & (indices != PADDING)
    if outside.any():
        lost = indices[outside]
        found.append(f"out of range: {len(lost)} lanes name rows from {int(lost.min())} to "
                     f"{int(lost.max())}, the cache has {s.rows}")  # fmt: skip
    if not valid.any():
        return found if outside.any() else ["empty: no lane names a row"]
    named = indices[valid]
    if len(named) > 1 and (named == named[0]).all():
        row = int(named[0])
        found.append("all zero: every lane names row 0" if row == 0 else
                     f"constant: every lane names row {row}")  # fmt: skip
    elif _all_alike(s, int(valid[0].sum())):
        found.append(f"constant: all {len(indices)} tokens name the same rows")
    late = [w for w in violations(indices, s.rows, s.positions, None, s.requests)
            if "position" in w or "another" in w]  # fmt: skip
    found += [f"not causal: {sentence}" for sentence in late]
    twice = int(_repeated(indices, valid).any(1).sum())
    if twice:
        found.append(f"duplicates: {twice} tokens name a row twice")
    return found


def _all_alike(s: Selection, named: int) -> bool:
    """Whether more tokens than by accident name the same rows, though some see more than those."""
    alike = len(s.indices) >= SAME_TOKENS and bool((s.indices == s.indices[0]).all())
    return alike and len(s.positions.unique()) > 1 and int(s.positions.max()) + 1 > named


def accepted(s: Selection) -> Selection:
    """`s`. Raises ValueError with all `refusals` where there is one."""
    wrong = refusals(s)
    if wrong:
        raise ValueError(f"no capture of a model: {'; '.join(wrong)}")
    return s


def _own_rows(indices, rows: int, requests) -> tuple[torch.Tensor, torch.Tensor]:
    """(first row, one past the last) of each token's request [tokens, 1]."""
    first = torch.zeros(len(indices), 1, dtype=torch.int64, device=indices.device)
    end = torch.full_like(first, rows)
    if requests:
        spans = ends([r.token for r in requests], len(indices))
        for request, (token, after) in zip(requests, spans, strict=True):
            first[token:after], end[token:after] = request.row, request.row + request.rows
    return first, end


def _repeated(indices: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """Which lanes repeat a row that an earlier valid lane of the token names, as bool."""
    lane = torch.arange(indices.shape[1], device=indices.device)
    # invalid lanes get numbers of their own; a stable sort puts a repeat behind its row's first
    numbered = torch.where(valid, indices, -1 - lane.to(indices.dtype))
    ordered, lanes = numbered.sort(dim=1, stable=True)
    repeats = (ordered[:, 1:] == ordered[:, :-1]).long()
    return torch.zeros_like(lanes).scatter_(1, lanes[:, 1:], repeats).bool()


def _first(bad: torch.Tensor, indices: torch.Tensor, what: str) -> list[str]:
    where = bad.nonzero()
    if not len(where):
        return []
    t, k = (int(i) for i in where[0])
    count = int(bad.any(1).sum())
    return [f"{count} tokens hold {what}, first token {t} at lane {k}: {int(indices[t, k])}"]
