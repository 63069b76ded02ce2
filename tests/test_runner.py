"""A server's runner has memory of its own: what it answers, where, and what two of them share."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from conftest import DEVICE, each
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.compare import same_bits
from workbench.gate import check
from workbench.interpreter import around_launches
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.sparse_decode.definition import Output
from workbench.ops.sparse_decode.workload import V4_C4, V32
from workbench.runner import SparseMLARunner

OP = OPS["sparse_decode"]
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
W = replace(V32, tokens=3, heads=2, topk=70, rows=140, page_size=2)
DUAL = replace(V4_C4, tokens=2, heads=2, topk=20, rows=90, extra_topk=30, extra_rows=40)
ONE_CHUNK = replace(OP.variants["split_k"].config, chunks_per_block=1)  # as many parts as can be
HOLDERS = [v for v in OP.variants.values() if v.name.startswith(("single", "split", "prefill"))]


def runner(w=W, variant="eager", **more):
    return SparseMLARunner(w, device=DEVICE, variant=variant, **more)


def inputs(w=W, **changes):
    return OP.make_inputs(replace(w, **changes), DEVICE)


def call(r, x, **to):
    """`x` asked of runner `r`, the answer in `to` (out, out_lse) where it is given."""
    return r.run(
        x.q, x.cache, x.indices, sm_scale=x.sm_scale, positions=x.positions,
        topk_length=x.topk_length, extra_cache=x.extra_cache, extra_indices=x.extra_indices,
        extra_topk_length=x.extra_topk_length, attn_sink=x.attn_sink, **to,
    )  # fmt: skip


def alone(x, v="eager", config=None):
    """The answer of the variant without a runner, on memory of its own."""
    found = OP.variants[v](x._replace(out_lse=x.out_lse.clone()), config)
    return Output(found.out.clone(), found.lse.clone())


def most(v):
    """The config of `v` that splits as much as can be."""
    splits = hasattr(v.config, "chunks_per_block")
    return replace(v.config, chunks_per_block=1) if splits else v.config


def same(found, wanted):
    return all(same_bits(a, b) for a, b in zip(found, wanted, strict=True))


def passes(x, found):
    verdict = OP.compare(x._replace(out_lse=found.lse), found, OP.reference(x))
    assert verdict.passed, verdict


def spans(r):
    """Where the memory of a runner is, as (first byte, end)."""
    return [(b.data_ptr(), b.data_ptr() + b.nbytes) for b in r.buffers]


class Allocations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view:
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@each(HOLDERS)
def test_a_runner_passes_the_gate_as_its_variant_does(v):
    """Hostile inputs, calls on other numbers in the same tensors, a replay; no read on the host."""
    w = replace(W, tokens=1, sink="random", length="ragged", gap=3)
    r = runner(w, v.name, config=most(v))
    through = Variant("through_a_runner", OP, lambda x, _: call(r, x, out_lse=x.out_lse), None, "",
                      widens=v.widens)  # fmt: skip
    verdict = check(through, w, device=DEVICE)
    assert verdict.passed, verdict


@each(HOLDERS)
def test_a_call_that_ran_before_allocates_nothing(v):
    r, x = runner(variant=v.name, config=most(v)), inputs()
    with around_launches(lambda name, launch: None):
        call(r, x)
        with Allocations() as made:
            call(r, x)
    assert not made.names


@each(HOLDERS)
def test_what_the_memory_holds_does_not_matter(v):
    x = inputs(tokens=1)
    r = runner(replace(W, tokens=1), v.name, config=most(v))
    for buffer in r.buffers[:3]:
        buffer.fill_(torch.nan)
    assert same(call(r, x), alone(x, v.name, most(v)))
    assert not r.buffers.counters.any(), "a counter is not 0 for the next call"


def pad(x, real):
    """The tokens behind the first `real` ones are nobody's: a server's rows that fill a capture."""
    x.topk_length[real:] = 0
    x.indices[real:] = -1


@each(HOLDERS)
@pytest.mark.parametrize("real", [2, 0])
def test_D02_D06_padded_rows_are_zeros_and_the_others_as_alone(v, real):
    w = replace(W, length="counted")
    r, x = runner(w, v.name, config=most(v)), inputs(w)
    pad(x, real)
    for buffer in r.buffers[:3]:
        buffer.fill_(torch.nan)
    out, lse = call(r, x)
    assert not out[real:].any() and lse[real:].isneginf().all()
    verdict = OP.compare(x._replace(out_lse=lse), Output(out, lse), OP.reference(v.widens(x)))
    assert verdict.passed, verdict


def by_parts(x, config):
    """`eager` by way of the memory for parts: what another runner wrote there would be the answer.
    """
    found = alone(x)
    left = x.memory.parts[: found.out.numel()]
    left.copy_(found.out.flatten())
    x.memory.out.copy_(left.view_as(found.out))
    x.out_lse.copy_(found.lse)
    return Output(x.memory.out, x.out_lse)


@pytest.fixture(scope="module")
def planted():
    OP.variants["by_parts"] = Variant(
        "by_parts", OP, by_parts, None, "a test", requires=lambda w, config: None,
        workspace_bytes=lambda w, config: 4 * w.tokens * w.heads * 512,
    )  # fmt: skip
    yield "by_parts"
    del OP.variants["by_parts"]


# (which runner, tokens, heads, seed)
STEPS = st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(1, 2), st.integers(0, 9))


@settings(deadline=None, max_examples=20, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(st.lists(STEPS, min_size=2, max_size=8))
def test_two_runners_in_any_turn_answer_as_each_alone(planted, sequence):
    """Calls of 0 to 5 tokens where 3 were foreseen; the other one's last answer stays as it was."""
    pair, wanted = [runner(variant=planted), runner(variant=planted)], {}
    for which, tokens, heads, seed in sequence:
        x = inputs(tokens=tokens, heads=heads, seed=seed)
        wanted[which] = (call(pair[which], x), alone(x))
        passes(x, wanted[which][0])
        assert all(same(found, right) for found, right in wanted.values())
    places = sorted(spans(pair[0]) + spans(pair[1]))
    assert all(a[1] <= b[0] for a, b in pairwise(places)), "memory is shared"


def test_two_runners_of_splits_in_turn():
    """The parts of the one are there while those of the other are written."""
    pair = [runner(variant="split_k", config=ONE_CHUNK) for _ in range(2)]
    held = [inputs(tokens=tokens, seed=tokens) for tokens in (1, 2)]
    found = [call(r, x) for r, x in zip(pair, held, strict=True)]
    for answer, x in zip(found, held, strict=True):
        assert same(answer, alone(x, "split_k", ONE_CHUNK))


def test_memory_is_there_before_the_calls_and_stays():
    r = runner(variant="split_k", config=ONE_CHUNK)
    assert [len(b) for b in r.buffers] == [6 * 512, 6, 6 * 2 * 513, 6]
    where, first = spans(r), call(r, inputs(tokens=1))
    second = call(r, inputs(tokens=3, seed=1))
    assert first.out.data_ptr() == second.out.data_ptr() == r.buffers.out.data_ptr()
    assert spans(r) == where and r.growths == 0


def test_scratch_is_of_the_token_count_that_takes_most(monkeypatch):
    """Fewer tokens may be split more: 2 tokens leave more parts here than the largest call, 3."""
    stated = {1: 7, 2: 90, 3: 8}
    v = replace(OP.variants["eager"], workspace_bytes=lambda w, config: 4 * stated[w.tokens])
    monkeypatch.setitem(OP.variants, "eager", v)
    assert len(runner().buffers.parts) == 90


def test_a_call_larger_than_foreseen_grows_the_memory_and_is_counted():
    r, x = runner(), inputs()
    first, right = call(r, x), alone(x)
    more = inputs(tokens=5)
    assert same(call(r, more), alone(more)) and r.growths == 1
    assert [len(b) for b in r.buffers] == [10 * 512, 10, 0, 10]
    assert same(first, right), "what an earlier call returned has changed"
    places = {call(r, y).out.data_ptr() for y in (x, more)}
    assert places == {r.buffers.out.data_ptr()} and r.growths == 1


def test_growth_keeps_what_other_calls_need():
    """More tokens of few rows take more output and no parts; the parts of others stay."""
    r = runner(variant="split_k", config=ONE_CHUNK)
    with around_launches(lambda name, launch: None):
        call(r, inputs(tokens=7, topk=9)), call(r, inputs())
    assert r.growths == 1


def test_the_callers_tensors_get_the_answer_and_the_runners_stay():
    r, x = runner(), inputs(gap=3)
    call(r, inputs(seed=5))
    kept = [b.clone() for b in r.buffers]
    out, wide = torch.empty(3, 2, 512, dtype=torch.bfloat16, device=DEVICE), x.out_lse
    found = call(r, x, out=out, out_lse=wide)
    assert found.out is out and found.lse is wide and same(found, alone(x))
    assert all(same_bits(a, b) for a, b in zip(kept, r.buffers, strict=True))


def test_a_second_cache_and_layers_without_one():
    r = runner(DUAL)
    both = inputs(DUAL)
    main = both._replace(extra_cache=None, extra_indices=None, extra_topk_length=None)
    for x in (both, main):
        assert same(call(r, x), alone(x))
    assert r.growths == 0


@pytest.mark.parametrize("born", [True, False])
def test_memory_is_normal_whoever_made_it_and_is_written_in_either_mode(born):
    """An in-place update of an inference tensor outside of its mode would raise, at the capture."""
    with torch.inference_mode(born):
        r, x = runner(), inputs()
        first = call(r, x)
        grown = call(r, inputs(tokens=5))
    assert not any(b.is_inference() for b in (*r.buffers, *first, *grown))
    for mode in (True, False):
        with torch.inference_mode(mode):
            found = call(r, x)
            assert same(found, alone(x))
            found.out.mul_(0), found.lse.add_(1)
            passes(x, call(r, x))


def test_the_callers_inference_tensors_are_written_outside_of_their_mode():
    with torch.inference_mode():
        x = inputs()
        out = torch.empty(3, 2, 512, dtype=torch.bfloat16, device=DEVICE)
    found = call(runner(), x, out=out, out_lse=x.out_lse)
    with torch.inference_mode():
        assert same(found, alone(x))
