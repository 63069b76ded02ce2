"""A whole step: every layer's rows, two caches that keep apart, equal rows for every split."""

from dataclasses import replace

import pytest
import torch
from conftest import DEVICE

from workbench.gate import check
from workbench.ops import OPS
from workbench.ops.decode_split_step.layers import each_layer
from workbench.ops.page_split.kernels.claimed import claimed
from workbench.ops.page_split.kernels.eager_full import eager_full

STEP = OPS["decode_split_step"]
TINY = STEP.suites["edges"][0]
ROWS = STEP.variants["direct"]


def variant_of(run):
    return replace(ROWS, run=run)


def shared_destination(x, config):
    """The extra cache's split lands in the main one's destination: seed 003's fault."""
    x = x._replace(extra_destination=x.destination[: len(x.extra_destination)],
                   extra_mask=x.extra_mask)  # fmt: skip
    return each_layer(x, claimed)


def first_layer_only(x, config):
    """Splits the first layer's pools and reads them in every layer."""
    first = x._replace(source=x.source[:1].expand_as(x.source))
    return each_layer(first, eager_full)


def main_indices_for_both(x, config):
    tokens = x.extra_indices.clone()
    tokens[..., : x.indices.shape[1]] = x.indices[:, : tokens.shape[2]]
    return each_layer(x._replace(extra_indices=tokens), None)


@pytest.mark.parametrize("run, told", [
    (shared_destination, "layer 0"),
    (first_layer_only, "layer 1"),
    (main_indices_for_both, "extra_rows"),
])  # fmt: skip
def test_wrong_steps(run, told):
    verdict = check(variant_of(run), TINY, device=DEVICE)
    assert verdict.status == "incorrect" and told in verdict.why, verdict


def test_what_the_faults_are_made_of_is_right():
    for split in (claimed, eager_full, None):
        verdict = check(variant_of(lambda x, c, s=split: each_layer(x, s)), TINY, device=DEVICE)
        assert verdict.passed, verdict


def test_token_numbers_mean_the_same_before_and_after_a_split():
    """Pages of 256 and of 64 tokens with equal rows are read alike: the indices are invariant."""
    x = STEP.make_inputs(TINY, DEVICE)
    through = {name: v(x).rows.clone() for name, v in STEP.variants.items()}
    assert all(torch.equal(rows, through["direct"]) for rows in through.values())


@pytest.mark.parametrize("size", [64, 2])
def test_an_extra_cache_that_needs_no_split_gets_none(size):
    x = STEP.make_inputs(replace(TINY, extra_page_size=size, extra_context=9, extra_pages=9),
                         DEVICE)  # fmt: skip
    before = x.extra_destination.clone()
    STEP.variants["fitted"](x)
    assert torch.equal(x.extra_destination, before)
    assert not torch.equal(x.destination, torch.full_like(x.destination, 0xA5))


@pytest.mark.parametrize("changes, told", [
    ({"layers": 0}, "layers=0"),
    ({"page_size": 100}, "100"),
    ({"page_size": 2}, "pages of 2 tokens"),
    ({"extra_page_size": 32}, "pages of 32 tokens"),
    ({"extra_topk": 600, "extra_context": 500}, "extra_topk=600"),
    ({"invalid": 1.5}, "invalid=1.5"),
    ({"batch": -1}, "batch=-1 is below 0"),
    ({"extra_page_size": 0}, "extra_page_size=0 is below 1"),
])  # fmt: skip
def test_a_workload_that_cannot_be_is_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        STEP.Workload(**changes)


@pytest.mark.parametrize("name, change, told", [
    ("source", lambda t: t[..., :1000], "1000 bytes"),
    ("extra_source", lambda t: t[:1], "layers"),
    ("indices", lambda t: t.long(), "int64"),
    ("rows", lambda t: t[:, :1], "rows"),
])  # fmt: skip
def test_inputs_that_do_not_belong_together_are_refused(name, change, told):
    x = STEP.make_inputs(TINY, DEVICE)
    with pytest.raises(ValueError, match=told):
        ROWS(x._replace(**{name: change(getattr(x, name))}))


def test_the_floor_counts_no_lane_past_the_pools_and_no_row_twice():
    x = STEP.make_inputs(replace(TINY, layers=1, batch=2, window=3, extra_topk=2), DEVICE)
    x.indices.copy_(torch.tensor([[5, 5, -1], [5, 6, 4 * 256]]))
    x.extra_indices.copy_(torch.tensor([[[7, 8], [8, 5 * 128]]]))
    lanes = 6 + 4
    assert STEP.cost(x).bytes == (2 + 2 + lanes) * 584 + 4 * lanes
