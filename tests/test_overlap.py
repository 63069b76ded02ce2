"""Statistics of a selection against Python's sets; what theory says of it; dummies refused."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from workbench import figures, selections
from workbench.selections import bits, reference
from workbench.selections.requests import first_tokens

many = settings(deadline=None, max_examples=60)


@st.composite
def batches(draw):
    """Some requests of a few tokens each that read any rows of their own, or none."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 300)), min_size=1,
                          max_size=3))  # fmt: skip
    requests, topk = selections.in_order(sizes), draw(st.integers(1, 6))
    lanes = []
    for (tokens, rows), request in zip(sizes, requests, strict=True):
        row = st.integers(max(0, rows - 70), rows - 1).map(lambda r, base=request.row: base + r)
        some = st.lists(row, unique=True, max_size=topk)
        lanes += [r + [-1] * (topk - len(r)) for r in draw(st.lists(some, min_size=tokens,
                                                                   max_size=tokens))]  # fmt: skip
    indices = torch.tensor(lanes, dtype=torch.int32).reshape(-1, topk)
    places = torch.cat([torch.arange(n, dtype=torch.int32) for n, _ in sizes])
    return selections.Selection(indices, places, sum(r for _, r in sizes), requests)


def sets_of(s, page: int = 1, across: bool = False) -> list[list[set]]:
    """What each token of each request reads, as sets of rows or pages."""
    tokens = [{r // page for r in row if r >= 0} for row in s.indices.tolist()]
    bounds = [r.token for r in s.requests] + [len(tokens)]
    return [tokens] if across else [tokens[a:b] for a, b in pairwise(bounds)]


def over(part, whole):
    return pytest.approx(part / whole if whole else float("nan"), nan_ok=True)


@many
@given(s=batches(), across=st.booleans())
@pytest.mark.parametrize("page", [1, 64, 128])
def test_statistics_agree_with_python_sets(page, s, across):
    found = selections.statistics(s, (1, 2, 3, 5), (1, 2, 3), (64, 128), across)
    parts = sets_of(s, page, across)
    flat = [a for part in parts for a in part]
    lanes = sum(map(len, flat))
    if page == 1:
        assert found["valid_rows_per_token"] == over(lanes, len(flat))
    else:
        found = found["pages"][page]
        assert found["touched_per_token"] == over(lanes, len(flat))
        assert found["most_touched"] == max(map(len, flat), default=0)
    for group, ratio in found["union_ratio"].items():
        groups = [p[i : i + group] for p in parts for i in range(0, len(p), group)]
        assert ratio == over(sum(len(set().union(*g)) for g in groups),
                             sum(sum(map(len, g)) / len(g) for g in groups))  # fmt: skip
        size = found["per_group" if page == 1 else "touched_per_step"][group]
        assert size == over(sum(len(set().union(*g)) for g in groups), len(groups))
    for d, jaccard in found["jaccard"].items():
        pairs = [(p[i], p[i + d]) for p in parts for i in range(len(p) - d)]
        assert jaccard == over(sum(len(a & b) for a, b in pairs), sum(len(a | b) for a, b in pairs))
    pairs = [(p[i], p[i + 1]) for p in parts for i in range(len(p) - 1)]
    assert found["churn"] == over(sum(len(b - a) for a, b in pairs), sum(len(b) for _, b in pairs))
    for d, share in found["reused_within"].items():
        again = sum(len(a & set().union(*p[max(0, t - d) : t])) for p in parts
                    for t, a in enumerate(p))  # fmt: skip
        assert share == over(again, lanes)
    for d, size in found["working_set"].items():
        windows = [set().union(*p[t - d : t]) for p in parts for t in range(d, len(p) + 1)]
        assert size == over(sum(map(len, windows)), len(windows))


@many
@given(s=batches(), group=st.integers(1, 5), table=st.sampled_from([1, 300, 1 << 22]))
def test_groups_begin_anew_with_a_request(s, group, table):
    starts = [r.token for r in s.requests]
    groups = [p[i : i + group] for p in sets_of(s) for i in range(0, len(p), group)]
    expected = [len(set().union(*g)) for g in groups]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bits, "TABLE_BYTES", table)
        found = selections.distinct_rows(s.indices, s.rows, group, starts)
        ratio = selections.union_ratio(s.indices, s.rows, group, starts)
    assert found.tolist() == expected
    assert ratio == over(sum(expected), sum(sum(map(len, g)) / len(g) for g in groups))


def test_a_group_across_requests_shares_nothing_there():
    s = selections.selection("boundary", [(3, 100), (5, 100)], 20)
    starts = [0, 3]
    apart = selections.distinct_rows(s.indices, s.rows, 4, starts)
    asked = selections.distinct_rows(s.indices, s.rows, 4)
    assert len(apart) == 3 and len(asked) == 2
    assert asked[0] == apart[0] + 20, "the fourth token's rows are all its own"
    assert selections.union_ratio(s.indices, s.rows, 4) > selections.union_ratio(
        s.indices, s.rows, 4, starts
    )


@pytest.mark.parametrize("starts", [[], [1], [0, 5, 3], [0, 9]])
def test_requests_out_of_order_are_refused(starts):
    with pytest.raises(ValueError, match="requests begin at"):
        first_tokens(8, 2, starts)


@pytest.mark.parametrize("page", [0, 32, 100])
def test_a_page_that_is_no_multiple_of_64_is_refused(page):
    with pytest.raises(ValueError, match=f"page={page}"):
        bits.pages_of(np.zeros((1, 2), np.uint64), 70, page)


def test_numpy_1_counts_bits_too(monkeypatch):
    words = np.random.default_rng(0).integers(0, 1 << 63, (4, 5), dtype=np.uint64)
    known = [sum(int(w).bit_count() for w in row) for row in words]
    assert bits.counts(words).tolist() == known
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert bits.counts(words).tolist() == known


PUBLISHED = {8192: (1.75, 2.73, 3.60, 3.96, 4.00), 65536: (1.97, 3.82, 7.18, 12.75, 27.81)}


@pytest.mark.parametrize("rows", PUBLISHED)
def test_the_uniform_expectation(rows):
    found = [selections.uniform_expectation(rows, 2048, g) for g in (2, 4, 8, 16, 64)]
    assert found == pytest.approx(PUBLISHED[rows], abs=0.006)
    assert selections.uniform_expectation(100, 2048, 4) == 1.0


@pytest.mark.parametrize("law", ["uniform", "independent"])
@pytest.mark.parametrize("group", [2, 4, 16])
def test_independent_tokens_reach_the_uniform_expectation(law, group):
    """... of the rows that each of them sees, over two requests that begin empty."""
    s = selections.selection(law, [(512, 512), (256, 400)], 96)
    found = selections.union_ratio(s.indices, s.rows, group, [0, 512])
    assert found == pytest.approx(reference.uniform_union_ratio(s, group), rel=0.01)


@many
@given(seed=st.integers(0, 99), group=st.integers(2, 6), topk=st.integers(1, 9))
def test_the_union_of_equal_sets_is_within_the_jaccard_bounds(seed, group, topk):
    rng = np.random.default_rng(seed)
    sets = [set(rng.permutation(topk + 6)[:topk].tolist()) for _ in range(group)]
    pairs = list(pairwise(sets))
    jaccard = sum(len(a & b) for a, b in pairs) / sum(len(a | b) for a, b in pairs)
    least, most = selections.jaccard_bounds(jaccard, group)
    union = len(set().union(*sets)) / topk
    assert union <= most + 1e-9
    assert max(len(a | b) for a, b in pairs) / topk >= least - 1e-9 and union >= least - 1e-9
    assert selections.jaccard_bounds(jaccard, 1) == (1.0, 1.0)


@pytest.mark.parametrize("jaccard, most", [(0.87, 1.21), (0.94, 1.09)])
def test_the_jaccard_bounds_of_a_published_range(jaccard, most):
    assert selections.jaccard_bounds(jaccard, 4)[1] == pytest.approx(most, abs=0.005)


def batch(lanes, rows=64, places=None):
    indices = torch.tensor(lanes, dtype=torch.int32)
    places = torch.arange(20, 20 + len(lanes)) if places is None else torch.tensor(places)
    return selections.Selection(indices, places.int(), rows, (selections.Request(0, 0, rows),))


GOOD = [[t, t + 3, t + 7, -1] for t in range(10)]
DUMMIES = {
    "all zero": batch([[0, 0, 0]] * 4),
    "all zero of width 1": batch([[0]] * 4),
    "constant": batch([[7, 7]] * 4),
    "constant lists": batch([[0, 1, 2, 3]] * 9),
    "out of range": batch([*GOOD[:5], [3, 64, 1, -1]]),
    "out of range below": batch([*GOOD[:5], [3, -2, 1, -1]]),
    "out of range all of it": batch([[99, 98]] * 3),
    "not causal": batch(GOOD, places=[4] * 10),
    "duplicates": batch([*GOOD, [5, 5, 1, 2]]),
    "empty": batch([[-1, -1]] * 3),
}


@pytest.mark.parametrize("name", DUMMIES)
def test_a_dummy_is_refused_by_name(name):
    found = selections.refusals(DUMMIES[name])
    kind = next(k for k in ("all zero", "constant", "out of range", "not causal", "duplicates",
                            "empty") if name.startswith(k))  # fmt: skip
    assert any(sentence.startswith(f"{kind}: ") for sentence in found), found
    with pytest.raises(ValueError, match=kind):
        selections.accepted(DUMMIES[name])


def test_a_row_of_another_request_is_named():
    s = selections.selection("independent", [(3, 30), (3, 30)], 5)
    s.indices[4, 2] = 7
    (sentence,) = selections.violations(s.indices, s.rows, s.positions, None, s.requests)
    assert "row of another request" in sentence and "token 4 at lane 2: 7" in sentence
    assert any("another request" in w for w in selections.refusals(s))


@pytest.mark.parametrize("law", [*selections.LAWS, "capture_bs1_4096"])
def test_no_law_draws_a_dummy(law):
    law = "indexer:heads=4:dim=16" if law == "indexer" else law
    for sizes in ([(40, 40)], [(30, 90), (1, 70), (1, 5)]):
        s = selections.selection(law, sizes, 24)
        assert selections.accepted(s) is s


@many
@given(s=batches())
def test_tokens_that_stand_alone_are_no_dummies(s):
    """Empty tokens, one token, decode steps: legal, whatever their overlap."""
    assume((s.indices >= 0).sum() > 1 and len(set(s.indices[s.indices >= 0].tolist())) > 1)
    kinds = {w.split(":")[0] for w in selections.refusals(s)}
    assert kinds <= {"not causal"}  # their positions are no one's


def curves() -> dict:
    names = ("boundary", "walk")
    return {n: selections.statistics(selections.selection(n, [(64, 128)], 32), pages=())
            for n in names}  # fmt: skip


def test_union_curves_show_what_was_drawn_and_published():
    found = curves()
    figure = figures.union_curves(found, {"boundary": {2: 1.12, 4: 1.23}})
    boundary, walk = figure.axes
    lines = {line.get_label(): line for line in boundary.lines}
    assert list(lines["drawn"].get_ydata()) == list(found["boundary"]["union_ratio"].values())
    assert list(lines["published"].get_ydata()) == [1.12, 1.23]
    expected = list(found["boundary"]["uniform_union_ratio"].values())
    assert list(lines["independent tokens"].get_ydata()) == expected
    assert "published" not in {line.get_label() for line in walk.lines}
    assert boundary.collections, "the bounds of the Jaccard are drawn"


@pytest.mark.parametrize("found, published", [({}, None), (curves(), {"indexer": {2: 1.1}})])
def test_curves_of_nothing_are_refused(found, published):
    with pytest.raises(ValueError, match="published"):
        figures.union_curves(found, published)
