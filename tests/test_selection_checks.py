"""How overlap is counted, and what the validator says of a bad selection."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_selections import drawn, many, workloads

from workbench import selections
from workbench.ops.sparse_prefill.workload import Workload
from workbench.selections import bits, overlap, union_ratio, violations


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
        patch.setattr(bits, "TABLE_BYTES", table)
        patch.setattr(overlap, "TABLE_BYTES", table)
        found = union_ratio(indices, w.cache_rows, group)
        firsts = list(range(0, len(tokens), group))
        assert overlap._on_device(indices, w.cache_rows, firsts).tolist() == [
            len(set().union(*g)) for g in groups
        ]
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
