"""What a runner plans, once for each form of a call; and what it refuses, with the value."""

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from conftest import DEVICE
from test_runner import DUAL, ONE_CHUNK, OP, W, alone, call, inputs, passes, runner, same

from workbench import dispatch
from workbench.interpreter import launches
from workbench.models.dispatch_table import Arm, Entry, Table, identity
from workbench.ops import OPS
from workbench.ops.sparse_decode.definition import Memory, Output
from workbench.runner import SparseMLARunner

README = (Path(__file__).parents[1] / "README.md").read_text()


def table(**fastest: str) -> Table:
    """Of the place of W: at so many tokens ("t3") the variant named is the fastest of two."""
    entries = []
    for tokens, name in fastest.items():
        names = sorted(("single_pass", "split_k"), key=lambda n: n != name)
        arms = tuple(Arm(n, asdict(OP.variants[n].config), 10.0 * place, 3, ())
                     for place, n in enumerate(names, 1))  # fmt: skip
        entries.append(Entry(identity(replace(W, tokens=int(tokens[1:]))), arms))
    return Table("sparse_decode", "a GPU", "sm_90", "3.6.0", "2.11.0", "graph_hot", tuple(entries))


def test_a_plan_is_made_once_a_form_and_explained():
    """Again for other sizes, strides or an address that is no multiple of 16, which kernels are
    compiled for; not for other numbers."""
    asked = []

    def plan(op, w, **options):
        asked.append(w)
        return dispatch.plan(op, w, **options)

    r = runner(plan=plan)
    assert [w.tokens for w in asked] == [1, 2, 3]
    asked.clear()
    for seed in range(3):
        call(r, inputs(seed=seed))
    assert asked == [W]
    call(r, inputs(gap=1)), call(r, inputs(tokens=2))
    for first in (0, 4, 1):  # floats behind an aligned address
        lse = torch.empty(10, device=DEVICE)[first : first + 6].view(3, 2)
        call(r, inputs(), out_lse=lse)
    assert [w.tokens for w in asked] == [3, 3, 2, 3, 3]
    assert r.explain(W) == dispatch.plan(OP, W, variant="eager") and r.explain(W).why


def test_a_plan_sees_the_call_and_the_place_that_was_named():
    """Drafted tokens are counted where they divide; rows and law are those of `largest`."""
    seen = []

    def plan(op, w, **options):
        seen.append(w)
        return dispatch.plan(op, w, **options)

    largest = replace(W, tokens=4, tokens_per_request=2, rows=262144, padding="mixed")
    r = runner(largest, plan=plan)
    call(r, inputs(topk=9, heads=1)), call(r, inputs(tokens=2))
    assert seen[-2:] == [
        replace(largest, tokens=3, topk=9, heads=1, tokens_per_request=1),
        replace(largest, tokens=2),
    ]
    both, r = inputs(DUAL), runner(replace(DUAL, extra_rows=999), plan=plan)
    main = both._replace(extra_cache=None, extra_indices=None, extra_topk_length=None)
    call(r, both), call(r, main)
    assert [(w.extra_topk, w.extra_rows) for w in seen[-2:]] == [(30, 999), (0, 0)]


@pytest.mark.parametrize("make, told", [
    (lambda: runner(replace(W, tokens=0)), "is no sparse_decode workload with a token"),
    (lambda: runner(OPS["merge_splits"].Workload()), "is no sparse_decode workload"),
    (lambda: runner(variant="split"), "split"),
    (lambda: runner(variant="split_k", config=replace(ONE_CHUNK, block_h=8)), "block_h=8"),
    (lambda: SparseMLARunner(W, device="tpu"), "device='tpu'"),
])  # fmt: skip
def test_a_runner_of_nothing_is_refused(make, told):
    with pytest.raises(ValueError, match=told):
        make()


def moved(t):
    return t.to("meta")


@pytest.mark.parametrize("change, told", [
    (lambda x: {"q": x.q[:, :, :512]}, "q is torch.bfloat16"),
    (lambda x: {"q": x.q.float()}, "q is torch.float32"),
    (lambda x: {"q": moved(x.q)}, "q is on meta"),
    (lambda x: {"cache": x.cache[:, :600]}, "cache is torch.uint8"),
    (lambda x: {"indices": x.indices.long()}, "indices is torch.int64"),
    (lambda x: {"indices": x.indices[:2]}, "indices is torch.int32"),
    (lambda x: {"topk_length": x.indices[0]}, "topk_length is torch.int32"),
    (lambda x: {"extra_cache": x.cache}, "belong together"),
])  # fmt: skip
def test_a_call_that_would_be_read_as_something_else_is_refused(change, told):
    r, x = runner(), inputs()
    call(r, x)
    with pytest.raises(ValueError, match=told):
        call(r, x._replace(**change(x)))
    assert same(call(r, x), alone(x)) and r.growths == 0


@pytest.mark.parametrize("change, told", [
    (lambda out, lse: {"out": out[:2]}, r"out is torch.bfloat16 \(2, 2, 512\)"),
    (lambda out, lse: {"out": out.half()}, "out is torch.float16"),
    (lambda out, lse: {"out": out.mT.contiguous().mT}, "out is .* with strides"),
    (lambda out, lse: {"out": moved(out)}, "out is on meta"),
    (lambda out, lse: {"out_lse": lse[:, :1]}, "out_lse is torch.float32"),
    (lambda out, lse: {"out_lse": moved(lse)}, "out_lse is on meta"),
])  # fmt: skip
def test_what_cannot_hold_the_answer_is_refused(change, told):
    r, x = runner(), inputs()
    to = Output(*(t.clone() for t in call(r, x)))
    with pytest.raises(ValueError, match=told):
        call(r, x, **change(*to))


def test_memory_too_small_for_the_parts_is_refused():
    """Where a variant leaves more than it states, no launch writes behind the memory."""
    x = inputs(tokens=1)
    flat = torch.empty(2 * 2 * 513 - 1, device=DEVICE)
    out = torch.empty(1, 2, 512, dtype=torch.bfloat16, device=DEVICE)
    x = x._replace(memory=Memory(out, flat, torch.zeros(2, dtype=torch.int32, device=DEVICE)))
    with pytest.raises(ValueError, match="takes 2052 numbers, the memory has 2051"):
        OP.variants["split_k"](x, ONE_CHUNK)


def test_a_table_decides_by_tokens_and_each_plan_says_why():
    r = runner(variant=None, table=table(t1="split_k", t3="single_pass"))
    for tokens, name in ((1, "split_k"), (3, "single_pass")):
        plan = r.explain(replace(W, tokens=tokens))
        assert plan.variant == name and f"measured at {tokens} token" in plan.why
        with launches() as made:
            call(r, inputs(tokens=tokens))
        if DEVICE == "cpu":  # the interpreter tells what was launched
            assert ("_whole_kernel" in made) == (name == "single_pass")


def test_without_a_table_the_first_that_serves_here_is_taken():
    """Also with the table of a GPU, where there is none: what is written for it does not serve."""
    assert "no table" in runner(variant=None).explain(W).why
    hopper = replace(table(t3="split_k"), entries=(Entry(identity(W), (
        Arm("split_k_swapped_wgmma", {}, 1.0, 3, ()), Arm("single_pass", {}, 9.0, 3, (), 9.0),
    )),))  # fmt: skip
    if DEVICE == "cpu":
        assert runner(variant=None, table=hopper).explain(W).variant == "single_pass"


def test_the_readme_shows_a_runner_that_runs(tmp_path, monkeypatch):
    (block,) = [b for b in re.findall(r"```python\n(.*?)```", README, re.S) if "Runner" in b]
    dispatch.save(table(t3="split_k"), tmp_path / "table.json")
    monkeypatch.chdir(tmp_path)
    x = inputs(tokens=1, heads=16, topk=20, page_size=64)
    given = {"q": x.q, "cache": x.cache, "indices": x.indices}
    exec(block, given)
    passes(x, Output(given["out"], given["lse"]))


def test_a_servers_default_dtype_does_not_matter():
    x, before = inputs(), torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = call(runner(), x)
    finally:
        torch.set_default_dtype(before)
    passes(x, found)
