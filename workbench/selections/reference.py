"""What theory says of a union: of independent tokens, and of tokens whose neighbours share J."""

import numpy as np

from .requests import Selection, first_tokens


def uniform_expectation(rows: float, topk: float, group: int) -> float:
    """Expected union ratio of `group` tokens that each draw topk of `rows` rows afresh.

    S (1 - (1 - k/S)^G) / k; 1 where topk takes every row.
    """
    topk = min(topk, rows)
    return rows * (1 - (1 - topk / rows) ** group) / topk


def jaccard_bounds(jaccard: float, group: int) -> tuple[float, float]:
    """Least and most union ratio of `group` tokens of equal size whose neighbours' Jaccard is J.

    2 / (1 + J) <= |U| / k <= 1 + (G - 1)(1 - J) / (1 + J): the union holds that of two neighbours,
    and each step adds at most the rows that the token before did not select. 1 for a lone token.
    """
    if group < 2:
        return 1.0, 1.0
    return 2 / (1 + jaccard), 1 + (group - 1) * (1 - jaccard) / (1 + jaccard)


def visible_rows(s: Selection) -> np.ndarray:
    """How many rows each token may select [tokens]: its position's, at most its request's."""
    tokens = len(s.positions)
    bounds = [*[r.token for r in s.requests][1:], tokens]
    own = np.repeat([r.rows for r in s.requests],
                    np.diff(bounds, prepend=0)) if s.requests else np.zeros(tokens)  # fmt: skip
    return np.minimum(s.positions.numpy().astype(np.int64) + 1, own)


def uniform_union_ratio(s: Selection, group: int) -> float:
    """The union ratio that independent tokens would have, each with the rows that it sees here.

    `uniform_expectation` of every group, summed as `union_ratio` sums; a group draws from the rows
    that its last token sees. nan where no row is visible.
    """
    seen = visible_rows(s).astype(float)
    if not len(seen):
        return float("nan")
    firsts = first_tokens(len(seen), group, [r.token for r in s.requests])
    sizes = np.diff([*firsts, len(seen)])
    taken = np.minimum(seen, s.indices.shape[1])
    single = np.add.reduceat(taken, firsts) / sizes
    missed = np.multiply.reduceat(1 - taken / np.maximum(seen, 1), firsts)
    most = np.maximum.reduceat(seen, firsts)
    return float((most * (1 - missed)).sum() / single.sum()) if single.sum() else float("nan")
