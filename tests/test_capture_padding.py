"""Which requests a batch of a model holds: padding left and right, packed sequences, holes."""

import pytest
import torch
from test_capture_models import TOLD, TOPK, hooks, masked, prompt, run, sets, tiny

from workbench import selections
from workbench.capture import capture_selections
from workbench.capture.random_models import random_model


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@masked
def test_padding_is_no_part_of_a_capture(architecture, attention):
    """Left or right of a shorter request: its rows begin at 0, and it is what it is alone."""
    model = random_model(architecture, layers=2, index_topk=TOPK, dtype=torch.float32)
    long, short = prompt(length=20), prompt(length=14, seed=1)
    model.set_attn_implementation(attention)
    with capture_selections(model, **TOLD) as alone:
        run(model, short)
    for left in (True, False):
        filler, real = torch.full((1, 6), 7), torch.ones(1, 14, dtype=torch.long)
        gap = torch.zeros(1, 6, dtype=torch.long)
        row = torch.cat([filler, short] if left else [short, filler], 1)
        mask = torch.cat([gap, real] if left else [real, gap], 1)
        with capture_selections(model, **TOLD) as taken:
            run(model, torch.cat([long, row]), position_ids=(mask.cumsum(1) - 1).clamp(min=0)
                if left else None, attention_mask=torch.cat([torch.ones_like(long), mask]))
        for c, one in zip(taken.captures, alone.captures, strict=True):
            assert [r.token for r in c.selection.requests] == [0, 20]
            assert c.places.tolist() == [*range(20), *range(14)]
            assert sets(c)[20:] == sets(one), f"left: {left}"
            assert selections.refusals(c.selection) == []


def test_a_batch_that_is_nearly_all_padding_keeps_its_one_token():
    mask = torch.zeros(1, 6, dtype=torch.long)
    mask[0, -1] = 1
    with capture_selections(tiny("glm_moe_dsa"), layers=[0], **TOLD) as taken:
        run(tiny("glm_moe_dsa"), prompt(length=6), attention_mask=mask)
    (c,) = taken.captures
    assert c.places.tolist() == [0] and c.selection.indices.tolist() == [[0] + [-1] * 7]


def test_padding_that_is_pooled_with_tokens_is_refused(tmp_path):
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, :5] = 0
    model = tiny("deepseek_v4")
    with (
        pytest.raises(ValueError, match="padded tokens"),
        capture_selections(model, tmp_path / "x.safetensors", **TOLD),
    ):
        run(model, prompt(2, 12), attention_mask=mask)
    assert not list(tmp_path.iterdir()) and not hooks(model)


def test_a_mask_with_holes_is_refused():
    mask = torch.ones(1, 12, dtype=torch.long)
    mask[0, 4] = 0
    with (
        pytest.raises(ValueError, match="has holes"),
        capture_selections(tiny("glm_moe_dsa"), **TOLD),
    ):
        run(tiny("glm_moe_dsa"), prompt(length=12), attention_mask=mask)


@masked
def test_packed_sequences_are_requests_of_their_own(architecture):
    model, one, other = tiny(architecture), prompt(length=11), prompt(length=17, seed=1)
    with capture_selections(model, **TOLD) as alone:
        run(model, other)
    places = torch.cat([torch.arange(11), torch.arange(17)])[None]
    with capture_selections(model, **TOLD) as taken:
        run(model, torch.cat([one, other], 1), position_ids=places, use_cache=False)
    for c, single in zip(taken.captures, alone.captures, strict=True):
        assert c.selection.requests == ((0, 0, 11), (11, 11, 17))
        assert c.places.tolist() == places[0].tolist() and sets(c)[11:] == sets(single)
