"""What is wrong with a selection, in words that name the row: a check for captures and laws."""

import torch


def valid_lanes(
    indices: torch.Tensor, rows: int, topk_length: torch.Tensor | None
) -> torch.Tensor:
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
) -> list[str]:
    """Return one sentence a kind of fault of indices [tokens, topk]; an empty list where none.

    Looks for: lengths outside [0, topk], rows outside the cache, rows after the query's position,
    a row twice in one token, and an invalid lane before the last valid one (legal here, refused
    by kernels that take the length as a count). Lanes at or past topk_length are not looked at.
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
    if positions is not None:
        late = valid & (indices > positions[:, None])
        found += _first(late, indices, "a row after the query's own position")
    found += _first(_repeated(indices, valid), indices, "the same row twice")
    last = torch.where(valid, lane, -1).amax(1) if topk else lane.new_zeros(tokens)
    hole = ~valid & (lane < last[:, None])
    found += _first(hole, indices, "an invalid lane before its last valid one")
    return found


def doubts(
    indices: torch.Tensor, rows: int, topk_length: torch.Tensor | None = None
) -> list[str]:
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
