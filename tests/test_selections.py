"""What the laws draw.

A law returns unique rows, none after the query's own position, none past the cache, and -1 exactly
in the lanes for which no row is visible; equal seeds give equal tensors.
"""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import selections
from workbench.ops.sparse_prefill.workload import Workload
from workbench.selections import _drift, indexer, union_ratio, violations
from workbench.selections.indexer import Indexer

ROOT = Path(__file__).parents[1]
many = settings(deadline=None, max_examples=40)
BASE = Workload(tokens=9, topk=12, rows=40, churn=0.3)
LAWS = (  # every law, as it is and at the edges of its parameters; short forms of the long ones
    "uniform", "walk", "walk:churn=1", "independent", "boundary", "boundary:core=0:pool=3",
    "boundary:core=0.5:pool=2:flicker=0.5:drift=0.1", "boundary:core=1:drift=1",
    "indexer:heads=2:dim=8:correlation=0.8", "topics:sinks=1:window=2:span=2:churn=0.5",
    "topics:sinks=3:window=0:span=5:churn=1", "paged:page=4:churn=0.5",
    "paged:page=3:fill=0:churn=1", "paged:page=1:fill=1",
)  # fmt: skip
FIXED = (
    "topics",
    "paged",
    "capture_bs1_8192",
)  # what parameters for long contexts do to short ones


@st.composite
def workloads(draw, **fixed):
    """Small workloads: chunked and strided queries, caches shorter than topk, caches of no row."""
    fields = {
        "tokens": st.integers(0, 10),
        "topk": st.integers(1, 20),
        "rows": st.integers(0, 50),
        "law": st.sampled_from(LAWS),
        "churn": st.floats(0.0, 1.0),
        "first_position": st.none() | st.integers(0, 40),
        "position_stride": st.integers(1, 4),
        "seed": st.integers(0, 1000),
        "requests": st.integers(1, 3),
    }
    return Workload(**{k: fixed[k] if k in fixed else draw(f) for k, f in fields.items()}, **{
        k: v for k, v in fixed.items() if k not in fields
    })  # fmt: skip


def drawn(w: Workload):
    """(positions, indices, topk_length) of a workload."""
    places = selections.positions(
        w.tokens, w.cache_rows, w.first_position, w.position_stride, w.requests
    )
    return places, *selections.draw(w, places)


def kept(w: Workload) -> None:
    """Assert what every law promises, request by request."""
    places, indices, length = drawn(w)
    assert indices.shape == (w.tokens, w.topk) and indices.dtype == torch.int32 and length is None
    requests = selections.even_requests(w.tokens, w.cache_rows, w.requests)
    of = [r for i, r in enumerate(requests) for _ in range(ends(requests, w.tokens)[i] - r.token)]
    for place, row, request in zip(places.tolist(), indices.tolist(), of, strict=True):
        chosen = [r - request.row for r in row if r >= 0]
        visible = min(place + 1, request.rows)
        assert len(set(chosen)) == len(chosen), f"a row twice: {row}"
        assert all(0 <= r < visible for r in chosen), f"{max(chosen)} of {visible} visible rows"
        assert row[len(chosen) :] == [-1] * (w.topk - min(w.topk, visible)), "padding inside"
        if not w.law.startswith(("uniform", "walk")):
            assert chosen == sorted(chosen)
    assert violations(indices, w.cache_rows, places, None, requests) == []


def ends(requests, tokens: int) -> list[int]:
    return [r.token for r in requests[1:]] + [tokens]


@many
@given(w=workloads())
@pytest.mark.parametrize("law", [*LAWS, *FIXED])
def test_a_law_keeps_its_contract(law, w):
    w = replace(w, law=law, requests=1 if law.startswith("capture") else w.requests)
    kept(w)


@pytest.mark.parametrize("topk", [100, 257])
@pytest.mark.parametrize("law", ["boundary", "topics", "paged", "independent", "capture_bs1_4096"])
def test_a_law_keeps_its_contract_over_several_chunks(law, topk, monkeypatch):
    """... with positions 3 apart, a context before and rows that end before the last query."""
    monkeypatch.setattr(_drift, "CHUNK_LANES", 5 * topk)
    kept(Workload(tokens=83, topk=topk, rows=600, law=law, first_position=90, position_stride=7))


CODE = """
import hashlib, sys
from workbench import selections
for law in sys.argv[1:]:
    s = selections.selection(law, [(96, 400)], 160)
    print(hashlib.sha256(s.indices.numpy().tobytes()).hexdigest()[:12])
"""
DIGESTS = {  # committed records were drawn so; another digest means that they cannot be drawn again
    "uniform": "2e1a4a451de7",
    "walk": "c8162a0328dd",
    "independent": "1ba8b260ce42",
    "boundary": "b31f25421764",
    "boundary:flicker=0.5:drift=0.02": "b01ecc98c632",
    "indexer:heads=4:dim=32": "97c67e1bae0e",
    "topics": "18c7dd5dea47",
    "paged": "0d826a8cd1e4",
}


def test_another_process_draws_the_same_rows():
    done = subprocess.run([sys.executable, "-c", CODE, *DIGESTS], capture_output=True, text=True,
                          env=os.environ | {"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1",
                                            "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert done.stdout.split() == list(DIGESTS.values()), done.stderr


@pytest.mark.parametrize("law", DIGESTS)
def test_a_law_draws_what_it_drew(law):
    s = selections.selection(law, [(96, 400)], 160)
    assert hashlib.sha256(s.indices.numpy().tobytes()).hexdigest()[:12] == DIGESTS[law]


@pytest.mark.parametrize("heads, dim, with_ties", [(3, 4, False), (1, 1, True)])
def test_the_indexer_sums_exactly_and_takes_the_lower_row_of_equals(heads, dim, with_ties):
    law = Indexer(correlation=0.5, heads=heads, dim=dim)
    places = torch.tensor([40, 7, 39])
    found = indexer.indexer(places, 41, 6, np.random.default_rng(5), law)
    rng = np.random.default_rng(5)
    states = indexer._states(41, law.correlation, rng).numpy().astype(object)  # Python's integers
    to_q, to_k, to_w = (rng.integers(-1, 2, (indexer.HIDDEN, n), dtype=np.int8).astype(object)
                        for n in (heads * dim, dim, heads))  # fmt: skip
    q, k, weight = ((states @ m) // 16 for m in (to_q, to_k, to_w))
    q, k, weight = (np.clip(v.astype(int), -7, 7) for v in (q, k, weight))
    ties = 0
    for t, rows in zip(places.tolist(), found.tolist(), strict=True):
        heads_of = [q[t, dim * h : dim * (h + 1)] for h in range(heads)]
        hit = [[max(0, int(of @ k[s])) for of in heads_of] for s in range(t + 1)]
        best = sorted((-int(weight[t] @ one), s) for s, one in enumerate(hit))
        assert rows == sorted(s for _, s in best[:6])
        ties += best[5][0] == best[6][0]
    assert ties or not with_ties, "no token had to choose between equals"


def test_an_indexer_whose_sums_would_round_is_refused():
    with pytest.raises(ValueError, match="heads=1024 of dim=128"):
        Indexer(heads=1024)


def test_what_correlates_more_is_shared_more():
    law = "indexer:heads=8:dim=32:correlation={}"
    ratios = [union_ratio(selections.selection(law.format(c), [(64, 512)], 64).indices, 512, 4)
              for c in (0.5, 0.9, 0.99, 0.999)]  # fmt: skip
    assert ratios == sorted(ratios, reverse=True) and ratios[0] > 1.5 > 1.2 > ratios[-1]


def test_four_tokens_share_more_than_three_steps_of_a_boundary():
    """The pool's near-ties come back; a walk's swapped rows do not."""
    s = selections.selection("boundary:core=0.75:pool=2.4:drift=0", [(512, 4096)], 256)
    two, four = (union_ratio(s.indices, s.rows, g) - 1 for g in (2, 4))
    q = 1 / 2.4
    assert four / two == pytest.approx(q * q - 3 * q + 3, rel=0.03)
    walked = selections.selection("walk:churn=0.1", [(512, 4096)], 256)
    two, four = (union_ratio(walked.indices, 4096, g) - 1 for g in (2, 4))
    assert four / two > 2.8


def test_a_boundary_without_flicker_and_drift_stands_still():
    s = selections.selection("boundary:flicker=0:drift=0", [(50, 400)], 60)
    assert (s.indices == s.indices[0]).all()


def test_topics_read_the_first_rows_and_the_last_ones():
    s = selections.selection("topics:sinks=3:window=10:span=4", [(30, 200)], 41)
    for place, row in zip(s.positions.tolist(), s.indices.tolist(), strict=True):
        assert row[:3] == [0, 1, 2] and row[-10:] == list(range(place - 9, place + 1))
        spans = row[3:31]
        assert all(spans[i] + 3 == spans[i + 3] for i in range(0, 28, 4)), "a passage is broken"


@pytest.mark.parametrize("fill, rows_of_page", [(1.0, 16), (0.25, 4)])
def test_paged_rows_stand_together(fill, rows_of_page):
    s = selections.selection(f"paged:page=16:fill={fill}", [(1, 1600)], 64)
    counts = np.bincount(s.indices.numpy()[0] // 16)
    assert set(counts[counts > 0]) == {rows_of_page}


def test_a_walk_writes_its_churn_as_a_field_or_in_its_law():
    one, other = replace(BASE, churn=0.3), replace(BASE, churn=0.9, law="walk:churn=0.3")
    assert torch.equal(drawn(one)[1], drawn(other)[1])


@pytest.mark.parametrize("law", [*LAWS, "boundary", "indexer:heads=2"])
def test_what_is_written_is_what_is_read(law):
    name, parameters = selections.parsed(law)
    assert selections.parsed(selections.written(name, parameters)) == (name, parameters)


@pytest.mark.parametrize("law, said", [
    ("boundry", "did you mean 'boundary'"), ("boundary:cor=1", "did you mean 'core'"),
    ("boundary:core=2", "core=2.0 is outside [0, 1]"), ("boundary:core", "NAME=VALUE"),
    ("paged:page=0", "page=0 is outside"), ("uniform:churn=1", "churn"),
    ("capture_bs2_4096", "requests=2"), ("topics:span=x", "span='x'"),
])  # fmt: skip
def test_a_law_that_cannot_be_drawn_is_refused(law, said):
    with pytest.raises(ValueError) as refused:
        replace(BASE, law=law)
    assert said in str(refused.value) and repr(law) in str(refused.value)


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


@pytest.mark.parametrize("law", LAWS)
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
    requests = selections.even_requests(w.tokens, w.cache_rows, w.requests)
    complaints = violations(indices, w.cache_rows, places, None, requests)
    assert all("past the cache" in c or "before its last" in c for c in complaints), complaints
