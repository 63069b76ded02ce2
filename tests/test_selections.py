"""What the laws draw, how overlap is counted, and what the validator says of a bad selection.

A law returns unique rows, none after the query's own position, none past the cache, and -1 exactly
in the lanes for which no row is visible; equal seeds give equal tensors.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import selections
from workbench.ops.sparse_prefill.definition import Workload
from workbench.selections import overlap, union_ratio, violations

many = settings(deadline=None, max_examples=80)
BASE = Workload(tokens=9, topk=12, rows=40, churn=0.3)


@st.composite
def workloads(draw, **fixed):
    """Small workloads: chunked and strided queries, caches shorter than topk, caches of no row."""
    fields = {
        "tokens": st.integers(0, 10),
        "topk": st.integers(1, 20),
        "rows": st.integers(0, 50),
        "law": st.sampled_from(selections.LAWS),
        "churn": st.floats(0.0, 1.0),
        "first_position": st.none() | st.integers(0, 40),
        "position_stride": st.integers(1, 4),
        "seed": st.integers(0, 1000),
    }
    return Workload(**{k: fixed[k] if k in fixed else draw(f) for k, f in fields.items()}, **{
        k: v for k, v in fixed.items() if k not in fields
    })  # fmt: skip


def drawn(w: Workload):
    """(positions, indices, topk_length) of a workload."""
    places = selections.positions(w.tokens, w.cache_rows, w.first_position, w.position_stride)
    return places, *selections.draw(w, places)


@many
@given(w=workloads())
def test_a_law_keeps_its_contract(w):
    places, indices, length = drawn(w)
    assert indices.shape == (w.tokens, w.topk) and indices.dtype == torch.int32 and length is None
    for place, row in zip(places.tolist(), indices.tolist(), strict=True):
        chosen = [r for r in row if r >= 0]
        visible = min(place + 1, w.cache_rows)
        assert len(set(chosen)) == len(chosen), f"a row twice: {row}"
        assert all(r < visible for r in chosen), f"{max(chosen)} of {visible} visible rows"
        assert row == chosen + [-1] * (w.topk - min(w.topk, visible)), "padding is not at the tail"
    assert violations(indices, w.cache_rows, places) == []


@many
@given(w=workloads(), other=st.integers(1001, 2000))
def test_the_seed_decides_the_draw(w, other):
    assert torch.equal(drawn(w)[1], drawn(replace(w, seed=w.seed))[1])
    long = replace(w, tokens=8, topk=12, rows=200, first_position=100)
    assert not torch.equal(drawn(long)[1], drawn(replace(long, seed=other))[1])


@pytest.mark.parametrize(
    "asked, expected",
    [
        ((3, 10), [7, 8, 9]),  # the last rows of the cache
        ((3, 10, 0), [0, 1, 2]),
        ((3, 100, 40), [40, 41, 42]),  # a chunk in the middle of a request
        ((3, 10, 1, 4), [1, 5, 9]),  # a context-parallel rank
        ((3, 12, None, 4), [0, 4, 8]),
        ((5, 3), [0, 1, 2, 3, 4]),  # more queries than rows
        ((0, 3), []),
    ],
)
def test_positions(asked, expected):
    assert selections.positions(*asked).tolist() == expected


@pytest.mark.parametrize("law", selections.LAWS)
def test_a_chunk_sees_the_rows_before_it(law):
    w = replace(BASE, law=law, tokens=40, rows=100, first_position=60, topk=20)
    places, indices, _ = drawn(w)
    assert int(indices.min()) >= 0, "a token of the chunk was padded"
    assert (indices < 50).any(), "nothing before the chunk is selected"
    assert int(indices.max()) <= int(places.max())


def test_a_walk_swaps_its_share_of_rows():
    w = replace(BASE, tokens=30, topk=20, rows=400, first_position=300, churn=0.25)
    rows = [set(row) for row in drawn(w)[1].tolist()]
    assert {len(b - a) for a, b in pairwise(rows)} == {5}


@pytest.mark.parametrize("bad", [{"churn": 1.5}, {"law": "zipf"}, {"topk": 0}, {"holes": -0.1}])
def test_fields_out_of_range_are_refused_with_their_value(bad):
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        replace(BASE, **bad)


def test_a_walk_refuses_positions_that_decrease():
    with pytest.raises(ValueError, match="decrease"):
        selections.walk(torch.tensor([5, 3]), 10, 4, None)


@many
@given(
    w=workloads(padding="mixed", holes=0.4, wild=True),
    length=st.sampled_from(selections.LENGTHS),
    padding=st.sampled_from(selections.PADDINGS),
)
def test_hostile_lanes_change_no_valid_one(w, length, padding):
    w = replace(w, length=length, padding=padding)
    places, indices, topk_length = drawn(w)
    valid = selections.valid_lanes(indices, w.cache_rows, None)
    plain = drawn(replace(w, holes=0.0, wild=False, length="none", padding="tail"))[1]
    for kept, of in zip(torch.where(valid, indices, -1).tolist(), plain.tolist(), strict=True):
        assert {r for r in kept if r >= 0} <= {r for r in of if r >= 0}
    if length == "counted":
        last = [max((k + 1 for k, v in enumerate(t) if v), default=0) for t in valid.tolist()]
        assert topk_length.tolist() == last
    complaints = violations(indices, w.cache_rows, places)
    assert all("past the cache" in c or "before its last" in c for c in complaints), complaints


@pytest.fixture(scope="module")
def long_walk() -> torch.Tensor:
    return drawn(Workload(tokens=8192, topk=2048, churn=0.10, law="walk"))[1]


@pytest.mark.parametrize("group, ratio", [(2, 1.084), (4, 1.223), (8, 1.439)])
def test_union_ratio_of_the_causal_walk(long_walk, group, ratio):
    assert union_ratio(long_walk, 8192, group) == pytest.approx(ratio, abs=1e-3)


@pytest.mark.parametrize("group", [2, 4, 8])
def test_union_ratio_of_independent_tokens(group):
    rows, topk = 2048, 512
    w = Workload(tokens=64, topk=topk, rows=rows, law="uniform")
    places = torch.full((64,), rows - 1, dtype=torch.int32)  # all see the whole cache
    expected = rows * (1 - (1 - topk / rows) ** group) / topk
    assert union_ratio(selections.draw(w, places)[0], rows, group) == pytest.approx(expected, 0.01)


@pytest.mark.parametrize(
    "rows_of_tokens, group, ratio",
    [
        ([[0, 1, 2]] * 8, 4, 1.0),  # all select the same
        ([[0, 1, 2]] * 7, 4, 1.0),  # ... in a short last group too
        ([[3 * t, 3 * t + 1, 3 * t + 2] for t in range(8)], 4, 4.0),  # none is shared
        ([[2 * t, 2 * t + 1] for t in range(5)], 4, 10 / 4),  # a last group of one
        ([[0, 1], [1, 2], [7, -1]], 2, 4 / 3),  # (3 + 1) / (2 + 1)
        ([[5, 99], [5, -7]], 2, 1.0),  # rows outside the cache are no rows
        ([[-1, -1], [4, -1]], 2, 2.0),  # a token without rows still divides: 1 / 0.5
    ],
)
def test_union_ratio_by_hand(rows_of_tokens, group, ratio):
    assert union_ratio(torch.tensor(rows_of_tokens), 24, group) == pytest.approx(ratio)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 2)])
def test_union_ratio_without_rows_is_absent(shape):
    nothing = torch.full(shape, -1)
    assert union_ratio(nothing, 8, 2) != union_ratio(nothing, 8, 2)  # nan


@many
@given(w=workloads(holes=0.3), group=st.integers(1, 8), table=st.sampled_from([1, 100, 1 << 28]))
def test_union_ratio_agrees_with_python_sets(w, group, table):
    """... also where the table is so small that the tokens are taken in parts."""
    indices = drawn(w)[1]
    tokens = [{r for r in row if r >= 0} for row in indices.tolist()]
    groups = [tokens[i : i + group] for i in range(0, len(tokens), group)]
    union = sum(len(set().union(*g)) for g in groups)
    single = sum(sum(map(len, g)) / len(g) for g in groups)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "TABLE_BYTES", table)
        found = union_ratio(indices, w.cache_rows, group)
    assert found == pytest.approx(union / single) if single else found != found


def test_a_group_below_one_is_refused():
    with pytest.raises(ValueError, match="group=0"):
        union_ratio(torch.zeros(2, 2, dtype=torch.int32), 4, 0)


GOOD = [[0, 1, 2], [3, 2, 1]]


@pytest.mark.parametrize(
    "indices, length, said",
    [
        pytest.param([[0, 1, 2], [3, 1, 8]], None, ("past the cache of 8", "token 1", "lane 2"),
                     id="past"),
        pytest.param([[0, 1, 2], [3, 2, 5]], None, ("after the query", "token 1", "lane 2", "5"),
                     id="not causal"),
        pytest.param([[0, 1, 2], [3, 2, 2]], None, ("same row twice", "token 1", "2"), id="twice"),
        pytest.param([[0, 1, -1], [-1, 2, 1]], None, ("invalid lane before", "token 1", "lane 0"),
                     id="hole"),
        pytest.param(GOOD, [3, 4], ("topk_length", "[0, 3]", "token 1", "4"), id="long"),
        pytest.param(GOOD, [-1, 3], ("topk_length", "[0, 3]", "token 0", "-1"), id="negative"),
    ],
)  # fmt: skip
def test_a_violation_is_named_with_its_token(indices, length, said):
    places = torch.tensor([3, 4])
    length = None if length is None else torch.tensor(length)
    (sentence,) = violations(torch.tensor(indices), 8, places, length)
    assert all(word in sentence for word in said), sentence


def test_the_lane_that_is_named_holds_the_row_that_is_named():
    indices = torch.tensor([[7, 3, 9, 5, 3]])
    (sentence,) = violations(indices, 10)
    lane, row = (int(n) for n in sentence.split("lane ")[1].split(": "))
    assert indices[0, lane] == row == 3, sentence


def test_several_faults_are_several_sentences_and_count_their_tokens():
    found = violations(torch.tensor([[0, 0], [9, 1], [2, 2]]), 8, torch.tensor([5, 0, 5]))
    assert len(found) == 4, found  # past the cache, after the position, twice, hole
    assert any(s.startswith("2 tokens hold the same row twice") for s in found), found


def test_lanes_past_the_length_are_not_looked_at():
    indices = torch.tensor([[0, 1, 99, 1], [2, 7, 7, -5]])
    assert violations(indices, 8, torch.tensor([4, 4]), torch.tensor([2, 1])) == []
