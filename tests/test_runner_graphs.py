"""What a runner does while a graph is captured, and after: nothing moves, nothing is compiled.

Without a GPU a stand-in says that a graph is captured. Field reports of area D are tests named by
their code.
"""

import gc
from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each
from test_runner import HOLDERS, OP, W, alone, call, inputs, pad, runner, same, spans

from workbench.ops.sparse_decode.workload import V32
from workbench.runner import SparseMLARunner


class Capture:
    """A stand-in for the stream: `on` while a graph is captured."""

    def __init__(self):
        self.on = False

    def __call__(self):
        return self.on


def test_D08_D09_a_form_that_has_not_run_is_refused_in_a_capture_that_stays_valid():
    """Its kernels would be compiled and loaded inside. After a call it is captured."""
    capture = Capture()
    r, x = runner(capturing=capture), inputs()
    call(r, inputs(tokens=2))
    capture.on = True
    with pytest.raises(RuntimeError, match="tokens=3, heads=2, topk=70 has not run in this form"):
        call(r, x)
    assert not r.captured
    capture.on = False
    assert same(call(r, x), alone(x)) and not r.captured
    capture.on = True
    assert same(call(r, x), alone(x))
    call(r, inputs(tokens=2))
    assert [c.workload.tokens for c in r.captured] == [3, 2]
    assert all(c.plan == r.explain(c.workload) for c in r.captured)


def test_a_form_that_failed_has_not_run(monkeypatch):
    capture = Capture()
    r = runner(capturing=capture)

    def fails(x, config):
        raise RuntimeError("no kernel image")

    monkeypatch.setitem(OP.variants, "eager", replace(OP.variants["eager"], run=fails))
    with pytest.raises(RuntimeError, match="no kernel image"):
        call(r, inputs())
    capture.on = True
    with pytest.raises(RuntimeError, match="has not run"):
        call(r, inputs())


def test_memory_does_not_grow_in_a_capture_nor_after_one():
    capture = Capture()
    r, x, more = runner(capturing=capture), inputs(), inputs(tokens=5)
    call(r, x)
    capture.on = True
    told = "tokens=5, .* needs more memory than .* tokens=3, .*: it cannot grow"
    with pytest.raises(RuntimeError, match=f"{told} while a graph is captured"):
        call(r, more)
    capture.on = False
    call(r, more)  # nothing was captured: it may
    call(r, x)
    capture.on = True
    call(r, x)
    capture.on = False
    where = spans(r)
    with pytest.raises(RuntimeError, match=r"tokens=7, .* after a graph was captured"):
        call(r, inputs(tokens=7))
    assert r.growths == 1 and spans(r) == where and len(r.captured) == 1
    assert same(call(r, more), alone(more))


@pytest.mark.parametrize("tokens", [0, 1])
def test_D06_a_call_of_nothing_is_empty(tokens):
    """Without tokens nothing is launched; without a row the answer is zeros, and -inf."""
    capture = Capture()
    r = runner(capturing=capture)
    capture.on = not tokens  # a capture of none needs no call before
    out, lse = call(r, inputs(tokens=tokens, rows=0))
    assert out.shape == (tokens, 2, 512) and lse.shape == (tokens, 2)
    assert not out.any() and lse.isneginf().all() and not r.captured


gpu = pytest.mark.skipif(DEVICE == "cpu", reason="captures CUDA graphs: needs a GPU")
LARGE = replace(V32, tokens=32, heads=16, rows=8192, padding="mixed")


@gpu
@each(HOLDERS)
def test_replays_follow_the_numbers_and_two_runners_graphs_stand_apart(v):
    pair = [runner(LARGE, v.name), runner(LARGE, v.name)]
    held = [inputs(LARGE, seed=0), inputs(LARGE, tokens=5, seed=1)]
    for r, x in zip(pair, held, strict=True):
        call(r, x)
    torch.cuda.synchronize()
    graphs, found = [torch.cuda.CUDAGraph() for _ in pair], []
    for graph, r, x in zip(graphs, pair, held, strict=True):
        with torch.cuda.graph(graph):
            found.append(call(r, x))
    for seed in (2, 3):
        for x in held:
            fresh = inputs(LARGE, tokens=len(x.q), seed=seed)
            for name in ("q", "cache", "indices"):
                getattr(x, name).copy_(getattr(fresh, name))
        for r in pair:
            for buffer in r.buffers[:3]:
                buffer.fill_(torch.nan)
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()
        for x, answer in zip(held, found, strict=True):
            expected = OP.reference(v.widens(x))
            verdict = OP.compare(x._replace(out_lse=answer.lse), answer, expected)
            assert verdict.passed, verdict
    for r, tokens in zip(pair, (32, 5), strict=True):
        assert [c.workload.tokens for c in r.captured] == [tokens]
        with pytest.raises(RuntimeError, match="after a graph was captured"):
            call(r, inputs(LARGE, tokens=33))


@gpu
@each(HOLDERS)
@pytest.mark.parametrize("real", [6, 0])
def test_D02_D03_D10_a_capture_of_eight_rows_replays_fewer(v, real):
    """Rows that pad are zeros, replays end, and kernels live as long as the graph that runs them.
    """
    w = replace(LARGE, tokens=8, length="counted")
    r, x = runner(w, v.name), inputs(w)
    call(r, x)
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        found = call(r, x)
    gc.collect()
    pad(x, real)
    for buffer in r.buffers[:3]:
        buffer.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize()
    assert not found.out[real:].any() and found.lse[real:].isneginf().all()
    verdict = OP.compare(x._replace(out_lse=found.lse), found, OP.reference(v.widens(x)))
    assert verdict.passed, verdict


@gpu
def test_a_graph_outlives_calls_of_its_runner_between_replays():
    """The parts and the output are the graph's at each replay, whatever ran between."""
    r, x = runner(LARGE, "split_k"), inputs(LARGE, tokens=2)
    call(r, x)
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        found = call(r, x)
    right = alone(x, "split_k")
    for tokens in (32, 1):
        call(r, inputs(LARGE, tokens=tokens, seed=tokens))
        graph.replay()
        assert same(found, right)


@gpu
def test_a_refused_call_leaves_the_capture_valid():
    r, x = runner(LARGE, "split_k"), inputs(LARGE)
    call(r, x)
    with torch.cuda.graph(graph := torch.cuda.CUDAGraph()):
        for tokens, told in ((33, "while a graph"), (7, "has not run")):
            y = x._replace(q=x.q.repeat(2, 1, 1)[:tokens], indices=x.indices.repeat(2, 1)[:tokens],
                           positions=x.positions.repeat(2)[:tokens])  # fmt: skip
            with pytest.raises(RuntimeError, match=told):
                call(r, y)
        found = call(r, x)
    graph.replay()
    assert same(found, alone(x, "split_k"))


@gpu
def test_no_call_waits_for_the_device():
    r, x = runner(LARGE, "split_k"), inputs(LARGE)
    call(r, x)
    torch.cuda.set_sync_debug_mode("error")
    try:
        call(r, x)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(DEVICE == "cpu" or torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_launches_to_another_device_are_refused():
    r = SparseMLARunner(W, device="cuda:1", variant="eager")
    x = OP.make_inputs(W, "cuda:1")
    with pytest.raises(RuntimeError, match=r"cuda:0; this runner is on cuda:1"):
        call(r, x)
