"""Faults that others met in graphs and at boundaries, one test a kind; ids name the report's row.

Areas D (CUDA graphs, padded rows, hangs) and those rows of F and K that a captured graph decides.
A GPU is only written down here: what is run, waited for and captured, in which order. Told
elsewhere: a hang in the gate (D03, D04: test_isolate), rows without lanes (D02: test_field_reports,
B04).
"""

import gc
import weakref
from contextlib import contextmanager

import pytest
import torch
from conftest import DEVICE, each
from test_comparison import table
from test_lines import along

from workbench.arms import workloads_of
from workbench.comparison import lines
from workbench.gate import check
from workbench.ops import OPS
from workbench.selections import violations
from workbench.timing import CLOCKS, Call, Plan, graph, measure
from workbench.worker import TURNOVER, index_sets

PREFILL, SPLIT = OPS["sparse_prefill"], OPS["page_split"]
attentions = each(PREFILL.variants.values())
GRAPHS = ("graph_cold", "graph_hot", "graph_rotating")


def few(lengths: list[int], topk: int = 20):
    x = PREFILL.make_inputs(PREFILL.Workload(tokens=len(lengths), topk=topk, rows=60), DEVICE)
    return x._replace(topk_length=torch.tensor(lengths, dtype=torch.int32, device=DEVICE))


@pytest.mark.parametrize("length", [-1, -(2**31), 0])
@attentions
def test_D05_D06_lengths_below_one_count_no_lane(v, length):
    x = few([length] * 5)
    out, lse = v(x)
    assert not out.any() and lse.isneginf().all()
    mixed = few([20, length, 20, length, 20])
    assert PREFILL.compare(mixed, v(mixed), PREFILL.reference(mixed)).passed


def test_D05_a_negative_length_is_named_on_the_host():
    x = few([20, 20, -1])
    (said,) = violations(x.indices.cpu(), 60, topk_length=x.topk_length.cpu())
    assert "topk_length of 1 tokens is outside [0, 20], first token 2: -1" in said


@pytest.mark.parametrize("variant", SPLIT.variants)
def test_D06_a_batch_of_nothing_is_legal(variant):
    w = SPLIT.Workload(pages=2, batch=0)
    assert check(SPLIT.variants[variant], w, device=DEVICE).passed


@pytest.mark.parametrize("tokens", [64, 65])
@attentions
def test_D07_both_sides_of_a_boundary_are_right(v, tokens):
    x = PREFILL.make_inputs(PREFILL.Workload(tokens=tokens, topk=3, rows=70), DEVICE)
    verdict = PREFILL.compare(x, v(x), PREFILL.reference(x))
    assert verdict.passed, verdict


def test_D07_a_crossing_names_both_sides_of_the_boundary():
    grid = [w.tokens for w in workloads_of(PREFILL, None, {"tokens": "32,64,65,128"})]
    rows = along("tokens", grid, lambda t: 1.2 if t <= 64 else 0.8, op="sparse_prefill")
    (line,) = lines(table(*rows), "per_token", "union", "tokens")
    (crossing,) = line.found.crossings
    assert line.found.x == (32, 64, 65, 128) and crossing.between == (64, 65)


@pytest.fixture
def cuda(monkeypatch) -> list:
    """What happens to a GPU that is only written down: calls, captures, events."""
    log = []

    class Event:
        def __init__(self, **how):
            pass

        def record(self):
            log.append("event")

        def synchronize(self):
            pass

        def elapsed_time(self, other):
            return 0.03  # milliseconds

    class Graph:
        def replay(self):
            log.append("replay")

    @contextmanager
    def within(name):
        log.append(f"{name} begins")
        yield
        log.append(f"{name} ends")

    for name, fake in {
        "Event": Event, "CUDAGraph": Graph, "graph": lambda g: within("capture"),
        "Stream": lambda: None, "stream": lambda s: within("stream"),
        "synchronize": lambda: log.append("synchronize"),
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(graph, "evictor", lambda device: lambda: log.append("evict"))
    return log


def captures(log: list) -> list[list]:
    """What was captured, capture by capture."""
    ends = [i for i, what in enumerate(log) if what == "capture ends"]
    return [log[log[:end].index("capture begins", 0 if not i else ends[i - 1]) + 1 : end]
            for i, end in enumerate(ends)]  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_D08_D09_a_call_is_made_and_waited_for_before_it_is_captured(name, cuda):
    call = Call(lambda x: cuda.append(x), ("a", "b", "c"), 8)
    CLOCKS[name].open("cpu")(call)
    before = cuda[: cuda.index("capture begins")]
    for x in call.sets if CLOCKS[name].rotates else call.sets[:1]:
        assert before.count(x) >= 2, "autotuning and compilation end before a capture"
    assert before[-1] == "synchronize"


@pytest.mark.parametrize("name, captured", [
    ("graph_cold", [["evict", "event", "a", "event"]]),
    # once to learn how long a call takes, 30 us; then as many as make 100 us
    ("graph_hot", [["a", "event", "a", "event"], ["a", "event", "a", "a", "a", "event"]]),
    ("graph_rotating", [["event", "a", "b", "c", "event"]]),
])  # fmt: skip
def test_F06_what_stands_between_the_events_is_the_call_in_its_cache_state(name, captured, cuda):
    CLOCKS[name].open("cpu")(Call(lambda x: cuda.append(x), ("a", "b", "c"), 8))
    assert captures(cuda) == captured


@pytest.mark.parametrize("name", GRAPHS)
def test_D10_a_captured_graph_keeps_what_it_calls(name, cuda):
    class Kernel:
        def __call__(self, x):
            pass

    kernel = Kernel()
    inputs = torch.zeros(1), torch.zeros(1)
    kept = [weakref.ref(kernel), weakref.ref(inputs[0])]
    ready = CLOCKS[name].open("cpu")(Call(kernel, inputs))
    del kernel, inputs
    gc.collect()
    assert all(ref() is not None for ref in kept) and ready.sample() > 0
    del ready
    gc.collect()
    assert not any(ref() for ref in kept), "what is no longer timed is let go"


def test_K01_a_rotating_clock_records_its_sets_and_reads_the_l2_over_before_one_returns(cuda):
    l2, set_bytes = 50 << 20, 30 << 20
    n = index_sets(set_bytes, l2)
    call = Call(lambda x: None, tuple(range(n)), set_bytes)
    (s,) = measure(CLOCKS["graph_rotating"], {"a": call}, Plan(3), "cpu").values()
    assert (s.sets, s.calls, s.reuse_bytes) == (n, n, n * set_bytes)
    assert s.reuse_bytes - set_bytes >= TURNOVER * l2
    assert CLOCKS["graph_rotating"].cache == "rotating"


@pytest.mark.parametrize("call", [lambda: None, Call(lambda x: None), Call(print, ("a",), 8)],
                         ids=["closure", "without sets", "one set"])  # fmt: skip
def test_K04_a_call_that_takes_no_inputs_is_not_rotated(call, monkeypatch):
    """Refused, and before anything is run or captured: this test needs no GPU."""
    monkeypatch.setattr(graph, "captured", None)
    prepare = CLOCKS["graph_rotating"].open("cpu")
    with pytest.raises(ValueError, match="takes none reads the same every time"):
        prepare(call)
    with pytest.raises(ValueError, match="at least two sets"):
        measure(CLOCKS["graph_rotating"], {"a": call}, Plan(3), "cpu")
