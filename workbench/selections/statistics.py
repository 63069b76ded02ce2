"""What a selection is like, in numbers with definitions; A_t is the set of rows that token t reads.

* union ratio of G: sum |union of a group| / sum (rows of its tokens / its tokens) (seed 004).
* Jaccard at distance d: sum |A_t & A_t+d| / sum |A_t | A_t+d| over all pairs. Summed before it is
  divided: for tokens of equal size (1 - J) / (1 + J) is then exactly the mean share of new rows,
  which `jaccard_bounds` asks for. A mean of single Jaccards would be another number.
* churn: sum |A_t+1 - A_t| / sum |A_t+1|, the share of a token's rows that the one before has not.
* reused within d: share of all (token, row) pairs whose row at least one of the d tokens before
  reads, too: the distribution of reuse distance, in tokens. What is not reused within all tokens is
  read for the first time.
* working set of d: mean rows that d tokens in a row read between them (Denning, 1968). A cache of
  that many rows serves about `reused within d` of the reads.

With pages, A_t is the set of pages that hold a row of token t; a page is counted from row 0 of the
whole cache. Pairs, groups and windows never cross from one request to the next, unless asked.
"""

from collections.abc import Sequence

import numpy as np

from . import bits
from .reference import jaccard_bounds, uniform_union_ratio
from .requests import Selection, ends, first_tokens

GROUPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PAGES = (64, 128, 256)


def statistics(
    s: Selection,
    groups: Sequence[int] = GROUPS,
    distances: Sequence[int] = DISTANCES,
    pages: Sequence[int] = PAGES,
    across: bool = False,
) -> dict:
    """All statistics of a selection, ready for JSON; keys of groups and distances are numbers.

    `across`: groups, pairs and windows are cut from the whole batch, as a kernel does that knows
    of no requests. nan where there is nothing to count.
    """
    packed = bits.packed(s.indices.numpy(), s.rows)
    spans = [(0, len(packed))] if across else ends(starts(s), len(packed))
    rows = of_sets(packed, spans, groups, distances)
    nearest = rows["jaccard"].get(1, float("nan"))
    return {
        "tokens": len(packed),
        "topk": s.indices.shape[1],
        "rows": s.rows,
        "requests": len(s.requests),
        "valid_rows_per_token": rows["per_token"],
        "uniform_union_ratio": {g: uniform_union_ratio(s, g) for g in groups},
        "jaccard_bounds": {g: jaccard_bounds(nearest, g) for g in groups},
        **{name: value for name, value in rows.items() if name != "per_token"},
        "pages": {p: _of_pages(bits.pages_of(packed, s.rows, p), spans, groups, distances, rows)
                  for p in pages},
    }  # fmt: skip


def starts(s: Selection) -> list[int]:
    """The first token of each request; a batch without any is one."""
    return [r.token for r in s.requests] or [0]


def of_sets(packed: np.ndarray, spans, groups, distances) -> dict:
    """The statistics above of sets [tokens, words], in `spans` of tokens that belong together."""
    sizes = bits.counts(packed)
    overlaps = {d: overlap(packed, sizes, spans, d) for d in {1, *distances}}
    shared, _, later = overlaps[1]
    unions = {g: _union(packed, sizes, spans, g) for g in groups}
    return {
        "per_token": _over(sizes.sum(), len(sizes)),
        "most_per_token": int(sizes.max(initial=0)),
        "union_ratio": {g: ratio for g, (ratio, _) in unions.items()},
        "per_group": {g: mean for g, (_, mean) in unions.items()},
        "jaccard": {d: _over(overlaps[d][0], overlaps[d][1]) for d in distances},
        "churn": _over(later - shared, later),
        **_reuse(packed, sizes, spans),
    }


def _of_pages(packed, spans, groups, distances, rows: dict) -> dict:
    found = of_sets(packed, spans, groups, distances)
    touched = found.pop("per_token")
    return {
        "touched_per_token": touched,
        "most_touched": found.pop("most_per_token"),
        "rows_per_touched_page": _over(rows["per_token"], touched),
        "touched_per_step": found.pop("per_group"),  # of so many tokens
        **found,
    }


def _union(packed, sizes, spans, group: int) -> tuple[float, float]:
    """(union ratio, mean size of a union)."""
    firsts = first_tokens(len(packed), group, [first for first, _ in spans])
    members = np.diff([*firsts, len(packed)])
    union = bits.counts(bits.unions(packed, firsts)).sum()
    single = (np.add.reduceat(sizes, firsts) / members).sum() if firsts else 0.0
    return _over(union, single), _over(union, len(firsts))


def overlap(packed, sizes, spans, distance: int) -> tuple[int, int, int]:
    """(rows in common, rows of either, rows of the later one), summed over pairs `distance` apart.

    Raises ValueError on a distance below 1.
    """
    if distance < 1:
        raise ValueError(f"distance={distance} is below 1")
    shared = earlier = later = 0
    for first, end in spans:
        one, other = slice(first, max(first, end - distance)), slice(first + distance, end)
        if one.stop > one.start:
            shared += int(bits.counts(packed[one] & packed[other]).sum())
            earlier += int(sizes[one].sum())
            later += int(sizes[other].sum())
    return shared, earlier + later - shared, later


def _reuse(packed, sizes, spans) -> dict:
    """Reused share and working set at 1, 2, 4, ... tokens, up to all that came before."""
    longest = max((end - first for first, end in spans), default=0)
    reused, working, width = {}, {}, 1
    recent = packed.copy()  # rows of the `width` tokens up to each
    while longest > 1:
        seen = [bits.counts(packed[f + 1 : e] & recent[f : e - 1]).sum() for f, e in spans if e > f]
        reused[width] = _over(sum(seen), sizes.sum())
        if width >= longest:
            break
        whole = [bits.counts(recent[f + width - 1 : e]) for f, e in spans if e - f >= width]
        working[width] = float(np.concatenate(whole).mean())
        wider = recent.copy()
        for first, end in spans:
            wider[first + width : end] |= recent[first : max(first, end - width)]
        recent, width = wider, 2 * width
    return {"reused_within": reused, "working_set": working}


def _over(part, whole) -> float:
    return float(part) / float(whole) if whole else float("nan")
