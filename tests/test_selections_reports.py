"""Faults that others met where rows are selected, one test a kind; names give the report's row.

B11, B12 and B22 run through every kernel in test_field_reports.py; here they are of the laws. C05's
base of the log-sum-exp is the contract of sparse_prefill; here it is its padding.
"""

import pytest
import torch

from workbench import selections
from workbench.ops import OPS
from workbench.selections import union_ratio, violations

LAWS = [*(law for law in selections.LAWS if law != "indexer"), "indexer:heads=2:dim=8"]
laws = pytest.mark.parametrize("law", LAWS)
PLAN = OPS["union_plan"]


@laws
@pytest.mark.parametrize("topk", [2048, 100, 33])
def test_B11_fewer_rows_than_topk_are_all_taken_and_padded_to_the_width(law, topk):
    s = selections.selection(law, [(6, 24), (1, 1)], topk)
    assert s.indices.shape == (7, topk)
    for t, seen in enumerate(range(19, 25)):
        row = s.indices[t]
        assert sorted(row[:seen].tolist()) == list(range(seen)) and (row[seen:] == -1).all()
    assert s.indices[6].tolist() == [24] + [-1] * (topk - 1)


def test_B12_a_hole_and_an_empty_token_are_told_apart():
    indices = torch.tensor([[5, -1, 9], [-1, -1, -1]])
    (sentence,) = violations(indices, 90, topk_length=torch.tensor([3, 0]))
    assert sentence.startswith("1 tokens hold an invalid lane") and "lane 1: -1" in sentence


@laws
def test_B13_a_length_is_where_lanes_end_and_not_how_many_are_valid(law):
    """Counting valid lanes would cut off as many as there are holes before them."""
    w = OPS["sparse_prefill"].Workload(tokens=5, topk=20, rows=90, law=law, holes=0.3,
                                       length="counted")  # fmt: skip
    places = selections.positions(5, 90)
    indices, length = selections.draw(w, places)
    valid = indices >= 0
    assert (length > valid.sum(1)).any(), "no hole stands before a valid lane"
    kept = selections.valid_lanes(indices, 90, length)
    assert torch.equal(kept, valid), "a valid lane is at or past the length"


@laws
def test_B22_positions_are_read_and_not_counted_from_the_first(law):
    """A context-parallel rank holds tokens r, r + cp, ...; the last of them sees the most."""
    w = OPS["sparse_prefill"].Workload(tokens=8, topk=6, rows=64, law=law, first_position=1,
                                       position_stride=8, churn=0.9)  # fmt: skip
    x = OPS["sparse_prefill"].make_inputs(w, "cpu")
    assert x.positions.tolist() == list(range(1, 64, 8))
    assert violations(x.indices, 64, x.positions) == []
    assert int(x.indices.max()) >= 8, "rows are taken as if positions were 1, 2, 3, ..."


@pytest.mark.parametrize("law", ["boundary:drift=0.02:flicker=0", "walk:churn=0.02", "topics",
                                 "indexer:heads=4:dim=32"])  # fmt: skip
def test_B22_tokens_far_apart_share_less_where_rows_drift_with_the_position(law):
    def shared(stride):
        w = OPS["sparse_prefill"].Workload(tokens=32, topk=256, rows=2048, law=law,
                                           first_position=1000, position_stride=stride)  # fmt: skip
        return union_ratio(OPS["sparse_prefill"].make_inputs(w, "cpu").indices, 2048, 4)

    if law.startswith("walk"):  # its steps are tokens, as records know it
        assert shared(8) == pytest.approx(shared(1), rel=0.02)
    else:
        assert shared(8) > 1.05 * shared(1)


MIXED = [(40, 40), (1, 500), (1, 9), (8, 300)]  # a prefill, two decode steps, a chunk


@laws
def test_B23_a_mixed_batch_numbers_rows_of_the_whole_cache(law):
    """One convention for prefill and decode tokens: flat rows, positions of a request."""
    s = selections.selection(law, MIXED, 24)
    assert violations(s.indices, s.rows, s.positions, None, s.requests) == []
    assert s.rows == 849 and [r.row for r in s.requests] == [0, 40, 540, 549]
    assert s.positions[[0, 40, 41, 42]].tolist() == [0, 499, 8, 292]
    assert (s.indices[40] >= 40).all() and (s.indices[40] < 540).all()
    assert sorted(s.indices[41, :9].tolist()) == list(range(540, 549))


def test_B23_a_group_of_a_mixed_batch_never_holds_two_requests_unless_asked():
    s = selections.selection("boundary", MIXED, 24)
    starts = [r.token for r in s.requests]
    assert len(selections.distinct_rows(s.indices, s.rows, 4, starts)) == 10 + 1 + 1 + 2
    assert len(selections.distinct_rows(s.indices, s.rows, 4)) == -(-50 // 4)
    apart, asked = (selections.statistics(s, pages=(64,), across=a) for a in (False, True))
    assert apart["union_ratio"][4] < asked["union_ratio"][4]


def test_B23_a_plan_of_a_mixed_batch_gives_each_row_to_its_request_alone():
    s = selections.selection("walk", MIXED, 24)
    x = PLAN.make_inputs(PLAN.Workload(tokens=1, topk=1), "cpu")
    plan = PLAN.reference(x._replace(indices=s.indices, rows=s.rows, group=4))
    last = plan.union_rows[10, : plan.union_length[10]]  # tokens 40 .. 43, of three requests
    owners = plan.owners[10, : plan.union_length[10]]
    assert set(owners[(last >= 40) & (last < 540)].tolist()) == {1}
    assert set(owners[(last >= 540) & (last < 549)].tolist()) == {2}
    assert set(owners[last >= 549].tolist()) <= {4, 8, 12}


def test_C05_minus_one_is_padding_and_no_row():
    padded = torch.tensor([[3, -1, 5], [-1, -1, -1], [5, 3, -1]], dtype=torch.int32)
    assert selections.distinct_rows(padded, 8, 3).tolist() == [2]
    s = selections.Selection(padded, torch.tensor([6, 6, 7], dtype=torch.int32), 8,
                             (selections.Request(0, 0, 8),))  # fmt: skip
    found = selections.statistics(s, (3,), (1, 2))
    assert found["valid_rows_per_token"] == pytest.approx(4 / 3)
    assert found["union_ratio"][3] == pytest.approx(2 / (4 / 3)) and found["jaccard"][2] == 1.0
    assert selections.refusals(s) == []
