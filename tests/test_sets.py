"""Sets of inputs that a rotating clock goes through: enough, each right, the first unharmed."""

from dataclasses import replace

import pytest
from conftest import DEVICE
from hypothesis import given
from hypothesis import strategies as st

from workbench import worker
from workbench.digest import answer_digest
from workbench.machine import environment
from workbench.ops import OPS
from workbench.worker import MAX_SETS, TURNOVER, _Server, distinct_bytes, index_sets

PREFILL, SPLIT = OPS["sparse_prefill"], OPS["page_split"]
TINY = PREFILL.Workload(tokens=3, heads=4, topk=20, rows=40, churn=0.3)


def served() -> _Server:
    return _Server(DEVICE, OPS, lambda message: None)


@given(st.integers(1, 1 << 34), st.integers(0, 1 << 28))
def test_sets_read_twice_the_l2_before_one_comes_again(set_bytes, l2):
    n = index_sets(set_bytes, l2)
    assert 2 <= n <= MAX_SETS
    assert n == MAX_SETS or (n - 1) * set_bytes >= TURNOVER * l2
    assert n == 2 or (n - 2) * set_bytes < TURNOVER * l2, "more than are needed"


def test_sets_of_nothing_are_two():
    assert index_sets(0, 50 << 20) == 2


@pytest.mark.parametrize("op, w, counted", [
    (PREFILL, TINY, lambda x: set(x.indices[x.indices >= 0].tolist())),
    (SPLIT, SPLIT.Workload(pages=3, batch=2, window=70),
     lambda x: set((x.indices // x.page_size).flatten().tolist())),
], ids=["rows", "pages"])  # fmt: skip
def test_what_sets_share_is_counted_once(op, w, counted):
    server = served()
    sets = server.sets(op, w)
    one, two = map(counted, sets[:2])
    unit = {"sparse_prefill": 2 * 576, "page_split": 2 * 256 * 584}[op.name]
    assert one & two and op.shared_bytes(sets[:2]) == unit * len(one & two)
    assert op.shared_bytes(sets[:1]) == 0


@pytest.fixture
def small_l2(monkeypatch):
    """A server on a device whose L2 holds two sets of `TINY` and more."""
    x = PREFILL.make_inputs(TINY, DEVICE)
    here = replace(environment(DEVICE), l2_bytes=2 * PREFILL.cost(x).bytes)
    monkeypatch.setattr(worker, "environment", lambda device: here)
    return served()


def test_sets_are_other_selections_on_one_cache(small_l2):
    sets = small_l2.sets(PREFILL, TINY)
    assert len(sets) > 5, "the rows of one cache turn nothing over: more sets than of their own"
    l2 = worker.environment(DEVICE).l2_bytes
    assert distinct_bytes(PREFILL, sets) >= TURNOVER * l2 > distinct_bytes(PREFILL, sets[:-2])
    assert len({x.kv.data_ptr() for x in sets}) == 1, "a server has one cache"
    assert len({x.q.data_ptr() for x in sets}) == len(sets)
    assert len({tuple(x.indices.flatten().tolist()) for x in sets}) == len(sets)
    assert small_l2.sets(PREFILL, TINY) is sets, "made once for all arms"


def test_further_sets_leave_the_first_ones_answer_as_it_was(small_l2):
    v = PREFILL.variants["eager"]
    before = answer_digest(v, small_l2.inputs(PREFILL, TINY), None)
    sets = small_l2.sets(PREFILL, TINY)
    answers = [answer_digest(v, x, None) for x in sets]
    assert answers[0] == before and len(set(answers)) == len(sets)
    for x in sets:
        lane = PREFILL.reference(x)
        assert lane.out.isfinite().all() and not lane.lse.isnan().any()


@pytest.mark.parametrize("op, name, w", [
    (PREFILL, "eager", TINY), (PREFILL, "union", replace(TINY, heads=8)),
    (PREFILL, "per_token", replace(TINY, padding="mixed", holes=0.4, wild=True)),
    (SPLIT, "masked", SPLIT.Workload(pages=6, batch=2, window=70)),
    (SPLIT, "eager_full", SPLIT.Workload(pages=6, batch=2, window=70)),
    (OPS["union_plan"], "sort_search", OPS["union_plan"].Workload(tokens=5, topk=12)),
    (OPS["page_split_step"], "dirty_rows", OPS["page_split_step"].Workload(pages=6, batch=2)),
    (OPS["paged_read"], "split_then_read", OPS["paged_read"].Workload(pages=6, batch=2)),
], ids=lambda v: getattr(v, "name", v) if not hasattr(v, "seed") else "")  # fmt: skip
def test_every_set_is_right_by_the_gate(op, name, w):
    server = served()
    said = server.rotate(op.variants[name], w, {})["verdict"]
    assert said["status"] == "passed", said
    assert len(server.sets(op, w)) >= 2


def test_a_variant_that_knows_one_set_alone_is_refused_by_the_others(monkeypatch):
    server, right = served(), PREFILL.variants["eager"]
    first = server.inputs(PREFILL, TINY).indices.data_ptr()

    def run(x, config):
        out, lse = right.run(x, config)
        return PREFILL.Output(out if x.indices.data_ptr() == first else -out, lse)

    said = server.rotate(replace(right, run=run), TINY, {})["verdict"]
    assert said["status"] == "incorrect" and said["why"].startswith("set 1: out is off")
