"""What is taken of `transformers` models with random weights, on the CPU.

Each architecture's choice is compared with one computed apart from the module: from the inputs of
its indexer, or, for DeepSeek V4, from the scores inside of it.
"""

import ast
import functools

import pytest
import torch
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm

from workbench import selections
from workbench.capture import capture_selections
from workbench.capture.random_models import ARCHITECTURES, prefill, random_model
from workbench.selections import capture_files
from workbench.selections.captures import local

TOPK, LENGTH = 8, 32
MASKED = ("glm_moe_dsa", "deepseek_v32")  # indexers that are given an attention mask
architectures = pytest.mark.parametrize("architecture", ARCHITECTURES)
masked = pytest.mark.parametrize("architecture", MASKED)
TOLD = {"weights": "random-weights", "source": "random bytes"}


@functools.cache
def _tiny(architecture: str, changes: str):
    fields = {"index_topk": TOPK, "dtype": torch.float32} | ast.literal_eval(changes)
    return random_model(architecture, layers=4, **fields)


def tiny(architecture: str, **changes):
    """A tiny model in float32, so that chunks and whole prefills agree."""
    return _tiny(architecture, repr(changes))


def prompt(batch: int = 1, length: int = LENGTH, seed: int = 0) -> torch.Tensor:
    gen = torch.Generator().manual_seed(seed)
    return torch.randint(256, (batch, length), generator=gen)


def run(model, tokens, **given):
    with torch.inference_mode():
        return model(tokens, **given)


def sets(c) -> list[set[int]]:
    """Rows of each token, from the first row of its request."""
    return [{r for r in row if r >= 0} for row in local(c.selection).tolist()]


def hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@architectures
def test_a_capture_loads_passes_the_checks_and_shows_statistics(architecture, tmp_path):
    file = tmp_path / f"{architecture}.safetensors"
    with capture_selections(tiny(architecture), file, **TOLD) as taken:
        run(tiny(architecture), prompt())
    header, found = capture_files.read(file)
    assert header.weights == "random-weights" and header.model == architecture
    assert header.made_by["transformers"].startswith("5.") and header.config["index_topk"] == TOPK
    assert [c.layer for c in found] == ([2] if architecture == "deepseek_v4" else [0, 1, 2, 3])
    ratio = header.compress_ratio
    assert ratio == (4 if architecture == "deepseek_v4" else 1)
    for c, before in zip(found, taken.captures, strict=True):
        assert torch.equal(c.selection.indices, before.selection.indices)
        assert selections.accepted(c.selection) is c.selection
        assert c.places.tolist() == list(range(LENGTH)) and c.selection.rows == LENGTH // ratio
        sizes = [len(chosen) for chosen in sets(c)]
        assert sizes == [min(TOPK, (p + 1) // ratio) for p in range(LENGTH)]
        late = [min(TOPK, LENGTH) - size for size in sizes]
        assert c.masked.tolist() == (late if ratio == 1 else [0] * LENGTH)
        statistics = selections.statistics(c.selection, pages=(64,))
        assert 1 < statistics["union_ratio"][4] < 4 and 0 < statistics["churn"] < 1


def index_scores(module, architecture: str, call: dict) -> torch.Tensor:
    """Index scores [S, S] float64 of the first row of a batch, from the formula of DeepSeek-V3.2.

    I(t, s) = sum over heads of w(t, h) relu(q(t, h) . k(s)); scales that are equal for all s are
    left out. GLM turns neighbouring pairs of the rotary part, DeepSeek-V3.2 its two halves.
    """
    hidden, residual, (cos, sin) = (call[k] for k in ("hidden_states", "q_resid",
                                                      "position_embeddings"))  # fmt: skip
    hidden, residual, cos, sin = (t[0].double() for t in (hidden, residual, cos, sin))
    half, heads = cos.shape[1] // 2, module.n_heads
    weights = {name: p.detach().double() for name, p in module.named_parameters()}
    q = (residual @ weights["wq_b.weight"].T).view(len(hidden), heads, -1)
    k = hidden @ weights["wk.weight"].T
    k = k - k.mean(1, keepdim=True)
    k = k / (k.square().mean(1, keepdim=True) + 1e-6).sqrt()
    k = (k * weights["k_norm.weight"] + weights["k_norm.bias"])[:, None]
    first, second = ((slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if architecture == MASKED[0]
                     else (slice(0, half), slice(half, 2 * half)))  # fmt: skip
    turn = torch.complex(cos[:, :half], sin[:, :half])[:, None]
    q, k = (torch.cat([(pair := torch.complex(x[..., first].contiguous(),
                                              x[..., second].contiguous()) * turn).real,
                       pair.imag, x[..., 2 * half :]], -1) for x in (q, k))  # fmt: skip
    hits = torch.einsum("thd,sd->ths", q, k[:, 0]).relu()
    return torch.einsum("th,ths->ts", hidden @ weights["weights_proj.weight"].T, hits)


@masked
def test_the_rows_are_those_of_the_highest_scores(architecture):
    model = tiny(architecture)
    indexer, calls = model.layers[1].self_attn.indexer, []
    names = ("hidden_states", "q_resid", "position_embeddings")
    handle = indexer.register_forward_pre_hook(
        lambda m, args: calls.append(dict(zip(names, args, strict=False)))
    )
    with capture_selections(model, layers=[1], **TOLD) as taken:
        run(model, prompt())
    handle.remove()
    scores = index_scores(indexer, architecture, calls[0])
    (c,) = taken.captures
    for t, chosen in enumerate(sets(c)):
        best = scores[t, : t + 1].argsort(descending=True)[:TOPK]
        assert chosen == set(best.tolist()), f"token {t}"


def test_the_entries_of_deepseek_v4_are_those_of_the_highest_scores():
    model, seen = tiny("deepseek_v4"), []
    scorer = model.layers[2].self_attn.compressor.indexer.scorer
    handle = scorer.register_forward_hook(lambda m, args, output: seen.append(output[0]))
    with capture_selections(model, **TOLD) as taken:
        run(model, prompt(length=64))
    handle.remove()
    (c,), (scores,) = taken.captures, seen
    assert scores.shape == (64, 16) and c.selection.rows == 16
    for t, chosen in enumerate(sets(c)):
        best = scores[t, : (t + 1) // 4].argsort(descending=True)[:TOPK]
        assert chosen == set(best.tolist()), f"token {t}"


@pytest.mark.parametrize("chunk", [5, 12])
@architectures
def test_chunks_and_decode_steps_give_what_one_prefill_gives(architecture, chunk):
    """Positions are those of the cache: the 13th token is at 12 in a chunk and in a step alike."""
    model, tokens = tiny(architecture), prompt(batch=2)
    with capture_selections(model, **TOLD) as whole:
        run(model, tokens)
    with capture_selections(model, **TOLD, join=True) as joined:
        cache = prefill(model, tokens[:, :-3], chunk)
        for t in range(LENGTH - 3, LENGTH):
            run(model, tokens[:, t : t + 1], past_key_values=cache, use_cache=True)
    for one, other in zip(whole.captures, joined.captures, strict=True):
        assert torch.equal(one.places, other.places) and sets(one) == sets(other)
        assert one.selection.requests == other.selection.requests
        assert selections.refusals(other.selection) == []


@architectures
def test_a_step_is_a_forward_call(architecture):
    model, tokens = tiny(architecture), prompt(batch=2, length=9)
    with capture_selections(model, **TOLD, layers=[2]) as taken:
        cache = prefill(model, tokens, chunk=9)
        run(model, tokens[:, :1], past_key_values=cache, use_cache=True)
    first, second = taken.captures
    assert [(c.layer, c.step) for c in (first, second)] == [(2, 0), (2, 1)]
    assert len(first.places) == 18 and second.places.tolist() == [9, 9]
    assert second.selection.indices.shape == (2, TOPK)
    assert [r.token for r in second.selection.requests] == [0, 1]


def test_a_call_before_any_entry_is_there_selects_nothing():
    with capture_selections(tiny("deepseek_v4"), **TOLD) as taken:
        run(tiny("deepseek_v4"), prompt(length=3))
    (c,) = taken.captures
    assert c.selection.rows == 0 and c.selection.indices.tolist() == [[-1] * TOPK] * 3


def test_layers_that_reuse_a_choice_are_named(tmp_path):
    model = tiny("glm_moe_dsa", indexer_types=["full", "shared", "full", "shared"])
    file, read = tmp_path / "x.safetensors", []
    attention = model.layers[3].self_attn
    handle = attention.register_forward_hook(lambda m, args, output: read.append(output[2][0]))
    with capture_selections(model, file, **TOLD):
        run(model, prompt())
    handle.remove()
    header, found = capture_files.read(file)
    assert [c.layer for c in found] == [0, 2] and header.shared == {1: 0, 3: 2}
    _, c = capture_files.find(file, 3)
    assert c.layer == 2
    kept = c.selection.indices
    assert torch.equal(kept, torch.where(kept >= 0, read[0], -1)), "layer 3 read something else"
    with pytest.raises(ValueError, match=r"layers \[3\] have no indexer"):  # noqa: SIM117
        with capture_selections(model, layers=[3], **TOLD):
            pass
    with capture_selections(model, layers=[2], **TOLD) as taken:
        assert taken.header.shared == {3: 2}


class Stopped(Exception):
    pass


@architectures
def test_hooks_are_gone_and_nothing_is_written_where_the_body_raises(architecture,
                                                                     tmp_path):  # fmt: skip
    model, file = tiny(architecture), tmp_path / "x.safetensors"
    assert hooks(model) == 0
    with pytest.raises(Stopped), capture_selections(model, file, **TOLD):
        assert hooks(model) >= 1
        run(model, prompt(length=8))
        raise Stopped
    assert hooks(model) == 0 and not list(tmp_path.iterdir())
    with capture_selections(model, file, **TOLD):
        run(model, prompt(length=8))
    assert hooks(model) == 0 and [p.name for p in tmp_path.iterdir()] == [file.name]


def test_a_model_that_was_not_called_leaves_no_file(tmp_path):
    model = tiny("glm_moe_dsa")
    with pytest.raises(ValueError, match="nothing was captured"):  # noqa: SIM117
        with capture_selections(model, tmp_path / "x.safetensors", **TOLD):
            pass
    assert not list(tmp_path.iterdir()) and not hooks(model)


def test_a_model_without_an_indexer_is_told_which_are_known():
    with pytest.raises(ValueError) as refused:  # noqa: SIM117
        with capture_selections(torch.nn.Linear(2, 2), **TOLD):
            pass
    for name in ("Linear", "GlmMoeDsaIndexer", "DeepseekV32Indexer", "DeepseekV4Indexer"):
        assert name in str(refused.value)


def test_prompts_that_do_not_follow_one_another_are_not_joined():
    with capture_selections(tiny("glm_moe_dsa"), join=True, **TOLD) as taken:
        run(tiny("glm_moe_dsa"), prompt(length=8))
        run(tiny("glm_moe_dsa"), prompt(length=8))
    with pytest.raises(ValueError, match="position 0 comes behind 7"):
        _ = taken.captures


def test_the_indexer_returns_what_is_said_of_it():
    """int32, min(topk, rows) wide, and rows of the future in the lanes of early tokens."""
    model, found = tiny("glm_moe_dsa"), []
    indexer = model.layers[0].self_attn.indexer
    assert isinstance(indexer, glm.GlmMoeDsaIndexer)
    handle = indexer.register_forward_hook(lambda m, args, output: found.append(output))
    run(model, prompt())
    with capture_selections(model, layers=[0], **TOLD) as taken:
        run(model, prompt(length=5))
    handle.remove()
    (c,) = taken.captures
    assert c.selection.indices.shape == (5, TOPK) and c.masked.tolist() == [4, 3, 2, 1, 0]
    assert found[0].dtype == torch.int32 and found[0].shape == (1, LENGTH, TOPK)
    assert found[1].shape == (1, 5, 5), "B11: as wide as the rows there are, not as topk"
    assert int(found[0][0, 0].max()) > 0, "token 0 is given rows that it cannot see"
