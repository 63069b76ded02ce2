"""What a variant declares of itself is true: repeatable, independent, capturable, its origin.

Runs are made under the gate's `Watch`, which poisons new memory: what a result leaves undefined is
then the same in both runs, and what it should have written is not.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest
import torch
from conftest import DEVICE, each, runs_here

from workbench.compare import SLACK, relative_l2, same_bits, storage_rounding
from workbench.ops import OPS
from workbench.ops.page_split.definition import PAGE
from workbench.ops.sparse_prefill.definition import reference
from workbench.watch import HostRead, Watch

# numpy's remark on Triton's interpreter, which pins numpy below the release that takes it away
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
PREFILL = OPS["sparse_prefill"]
SMALL = PREFILL.Workload(tokens=7, topk=70, rows=160, churn=0.3)
VARIANTS = [v for op in OPS.values() for v in op.variants.values()]
every_variant = each(VARIANTS, lambda v: f"{v.op.name}-{v.name}")
every_prefill = each(PREFILL.variants.values())


def inputs(v, w=None):
    """Fresh inputs of the first edge that `v` takes, or of `w`."""
    edges = v.op.suites["edges"] if w is None else (w,)
    taken = [w for w in edges if v.requires(w, v.config) is None]
    assert taken, f"{v.name} takes no edge of {v.op.name}"
    return v.op.make_inputs(taken[0], DEVICE)


def run(v, x, config=None):
    with Watch(capturable=False):
        return v(x, config)


def equal(a, b) -> bool:
    return all(same_bits(got, want) for got, want in zip(a, b, strict=True))


@every_variant
def test_repeatable(v):
    if v.repeatable:
        first, second = (run(v, inputs(v)) for _ in range(2))
        assert equal(first, second), f"{v.name} calls itself repeatable, two runs differ"


def tokens_shuffled(x):
    order = torch.randperm(len(x.q), generator=torch.Generator().manual_seed(1)).to(x.q.device)
    moved = {"q": x.q[order], "indices": x.indices[order], "positions": x.positions[order]}
    length = None if x.topk_length is None else x.topk_length[order]
    return x._replace(**moved, topk_length=length), lambda r: type(r)(*(t[order] for t in r))


def groups_shuffled(x):
    whole = len(x.indices) // x.group * x.group  # a short group stays behind
    order = torch.arange(whole, device=x.indices.device).view(-1, x.group).flip(0)
    tokens, groups = order.flatten(), order[:, 0] // x.group
    assert len(groups) > 1 and x.topk_length is None
    return (
        x._replace(indices=torch.cat((x.indices[tokens], x.indices[whole:]))),
        lambda r: type(r)(*(torch.cat((t[groups], t[len(groups) :])) for t in r)),
    )


def pages_shuffled(x):
    """Page p moves to pages - 1 - p, and every token number with it."""
    last = len(x.source) - 1
    indices = last * x.page_size - x.indices // x.page_size * x.page_size
    moved = x._replace(source=x.source.flip(0), indices=indices + x.indices % x.page_size)
    ratio = x.page_size // PAGE
    return moved, lambda r: type(r)(r.split.unflatten(0, (-1, ratio)).flip(0).flatten(0, 1))


def steps_shuffled(x):
    """The same of a step: its dirty rows, and what the destination holds before it, move along."""
    moved, follow = pages_shuffled(x)
    dirty, _ = pages_shuffled(x._replace(indices=x.dirty))
    before = follow(OPS["page_split_step"].Output(x.destination)).split
    return moved._replace(dirty=dirty.indices, destination=before), follow


def requests_reversed(x):
    """The requests of a step the other way round, in every layer and both caches."""
    moved = x._replace(indices=x.indices.flip(0), extra_indices=x.extra_indices.flip(1))
    return moved, lambda r: type(r)(*(rows.flip(1) for rows in r))


def reversed_by(name: str) -> Callable:
    """Results follow the rows of the input `name` when these are turned round."""

    def move(x):
        moved = x._replace(**{name: getattr(x, name).flip(0)})
        return moved, lambda r: type(r)(*(t.flip(0) for t in r))

    return move


def fp8_tokens_shuffled(x):
    moved, follow = tokens_shuffled(x)
    order = torch.randperm(len(x.q), generator=torch.Generator().manual_seed(1)).to(x.q.device)
    extra = {name: getattr(x, name) for name in ("extra_indices", "extra_topk_length")}
    extra = {name: t if t is None else t[order] for name, t in extra.items()}
    return moved._replace(**extra), follow


def parts_reversed(x):
    """Tokens the other way round, and with each its parts and what they weigh."""
    return (x._replace(partial=x.partial.flip(0), lse=x.lse.flip(0)),
            lambda r: type(r)(*(t.flip(0) for t in r)))  # fmt: skip


SHUFFLED: dict[str, Callable] = {  # op: (inputs, how a result moves with them)
    "sparse_prefill": tokens_shuffled,
    "fp8_prefill": fp8_tokens_shuffled,
    "sparse_decode": fp8_tokens_shuffled,
    "merge_splits": parts_reversed,
    "union_plan": groups_shuffled,
    "page_split": pages_shuffled,
    "page_split_step": steps_shuffled,
    "paged_read": reversed_by("indices"),
    "decode_split_step": requests_reversed,
    "device_copy": reversed_by("source"),
    "row_gather": reversed_by("indices"),
    "shared_read": reversed_by("ring"),
    "matrix_product": reversed_by("a"),
}


@every_variant
def test_independent(v):
    """What stands beside a token, a group or a page, and where it stands, changes none of it."""
    if v.independent:
        moved, follow = SHUFFLED[v.op.name](inputs(v))
        assert equal(run(v, moved), follow(run(v, inputs(v)))), f"{v.name} depends on neighbours"


@every_prefill
def test_one_token_alone(v):
    """A token without any other: the same bits where the variant calls itself independent."""
    x = inputs(v, SMALL)
    whole = run(v, x)
    t = slice(3, 4)
    one = x._replace(q=x.q[t], indices=x.indices[t], positions=x.positions[t])
    alone = run(v, one)
    verdict = v.op.compare(one, alone, reference(one))
    assert verdict.passed, verdict
    if v.independent:
        same = equal(alone, type(whole)(*(r[t] for r in whole)))
        assert same, f"{v.name} calls itself independent, a token alone has other bits"


@every_variant
def test_capturable_as_declared(v):
    x = inputs(v)
    if v.capturable:
        with Watch(capturable=True):
            v(x)
    else:
        with pytest.raises(HostRead), Watch(capturable=True):
            v(x)


@every_variant
def test_says_where_it_comes_from(v):
    assert v.idea.strip() and "\n" not in v.idea
    seen = [v.name]
    while (origin := v.op.variants[seen[-1]].step_from) is not None:
        assert origin in v.op.variants, f"{seen[-1]} comes from {origin!r}, which is no variant"
        assert origin not in seen, f"{origin} comes from itself by way of {seen}"
        seen.append(origin)


@every_prefill
def test_lanes_may_stand_in_any_order(v):
    x = inputs(v, replace(SMALL, padding="mixed", holes=0.2))
    order = torch.randperm(x.indices.shape[1], generator=torch.Generator().manual_seed(1))
    moved = x._replace(indices=x.indices[:, order.to(x.indices.device)])
    expected = reference(x)
    a, b = run(v, x), run(v, moved)
    for r in (a, b):
        verdict = v.op.compare(x, r, expected)
        assert verdict.passed, verdict
    assert relative_l2(a.out, b.out) <= SLACK * storage_rounding(expected.out, torch.bfloat16)
    torch.testing.assert_close(a.lse, b.lse, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("w", [SMALL, replace(SMALL, sink="random", length="counted", rows=60)],
                         ids=["plain", "sink and length"])  # fmt: skip
def test_variants_agree_with_each_other(w):
    takes = [v for v in PREFILL.variants.values()
             if runs_here(v) and v.requires(w, v.config) is None]  # fmt: skip
    assert len(takes) > 1
    found = {v.name: run(v, inputs(v, w)) for v in takes}
    budget = SLACK * storage_rounding(reference(inputs(takes[0], w)).out, torch.bfloat16)
    for one, other in combinations(found, 2):
        apart = relative_l2(found[one].out, found[other].out)
        assert apart <= budget, f"{one} and {other} are {apart:.2e} apart, budget {budget:.2e}"


@pytest.mark.parametrize("name", ("union", "eager_union"))
def test_union_tail(name):
    """7 tokens in groups of 4: the three of the short group are all there, and right."""
    v, x = PREFILL.variants[name], PREFILL.make_inputs(SMALL, DEVICE)
    assert len(x.q) == 7 and v.config.group == 4
    got, want = run(v, x), run(PREFILL.variants["per_token"], x)
    assert got.out.isfinite().all() and got.lse.isfinite().all()
    for t in range(4, 7):
        budget = SLACK * storage_rounding(reference(x).out[t], torch.bfloat16)
        assert relative_l2(got.out[t], want.out[t]) <= budget, f"token {t}"
        torch.testing.assert_close(got.lse[t], want.lse[t], rtol=1e-5, atol=1e-5)
