"""What sparse decode promises beyond its edges: splits, tails, the caller's lse, launches in turn.

Field reports of areas C and D that a decode step meets are tests named by their code; a merge's own
are in test_merge_splits.py.
"""

from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from workbench.compare import relative_l2, same_bits
from workbench.gate import check
from workbench.layouts import ARBITRARY
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.sparse_decode.definition import Output
from workbench.ops.sparse_decode.kernels import split_k_last_merges as last
from workbench.ops.sparse_decode.kernels._launch import scratch, splits_of
from workbench.ops.sparse_decode.workload import GLM, V4_C4, V32
from workbench.selections import violations

OP = OPS["sparse_decode"]
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
SMALL = {"tokens": 3, "heads": 8, "topk": 200, "rows": 900}
MODELS = {
    "DSv3.2": replace(V32, **SMALL),
    "GLM": replace(GLM, **SMALL),
    "DSv4 dual": replace(V4_C4, **SMALL | {"topk": 70, "extra_topk": 130, "extra_rows": 400}),
}
models = pytest.mark.parametrize("model", MODELS)
names = ("single_pass", "split_k", "split_k_last_merges")
SINGLE, SPLIT, LAST = (OP.variants[name] for name in names)
variants = each(OP.variants.values())
splitters = pytest.mark.parametrize("v", (SPLIT, LAST), ids=lambda v: v.name)


def inputs(w, **changes):
    return OP.make_inputs(replace(w, **changes), DEVICE)


def passes(v, x, config=None):
    """`v` on `x` is within its op's budget; its answer."""
    found = v(x, config)
    verdict = OP.compare(x, found, OP.reference(x))
    assert verdict.passed, f"{v.name} {config}: {verdict}"
    return Output(found.out, found.lse.clone())


def lengths(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=DEVICE)


# no shrinking: a workload is small, and each try takes a tenth of a second
@pytest.mark.slow
@settings(
    deadline=None,
    max_examples=10,
    derandomize=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(data=st.data(), model=st.sampled_from(sorted(MODELS)))
def test_a_random_workload(data, model):
    """10 small ones of all model types, splits, head counts and ragged widths."""
    one_of = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    w = replace(
        MODELS[model], tokens=one_of(2, 4), tokens_per_request=one_of(1, 2),
        heads=one_of(1, 7, 16, 33), topk=data.draw(st.integers(1, 200)), rows=one_of(60, 900),
        law=one_of("walk", "uniform"), page_size=one_of(2, 53, 64, 256),
        padding=one_of("tail", "head", "mixed"), holes=one_of(0.0, 0.3, 1.0),
        wild=one_of(False, True), length=one_of("none", "counted", "ragged"),
        sink=one_of("none", "random", "-inf", "+inf"), padded=one_of(False, True),
        null_page=one_of(False, True), gap=one_of(0, 5), seed=data.draw(st.integers(0, 2**16)),
    )  # fmt: skip
    v = one_of(SINGLE, SPLIT, LAST)
    # arbitrary scales take four rows a lane, and a product 16 lanes
    block_k = 64 if w.scale_format == ARBITRARY else one_of(32, 64)
    config = replace(v.config, block_k=block_k, block_h=one_of(16, 32))
    if v is not SINGLE:
        config = replace(config, chunks_per_block=one_of(0, 1, 2, 3))
    verdict = check(v, w, config, device=DEVICE)
    assert verdict.passed, f"{v.name} {config} on {w}: {verdict}"


@models
@splitters
def test_splits_do_not_change_the_answer(v, model):
    """One split: the same bits. More: far below 1e-3, since no weight's rounding depends on it."""
    x = inputs(MODELS[model], sink="random", length="ragged", law="uniform")
    whole = passes(SINGLE, x)
    for share in (1, 2, 3, 4, 99):
        found = passes(v, x, replace(v.config, chunks_per_block=share))
        assert relative_l2(found.out, whole.out) <= 1e-4, f"{share} chunks a program"
        torch.testing.assert_close(found.lse, whole.lse, rtol=1e-6, atol=1e-5)
    assert splits_of(x, replace(v.config, chunks_per_block=99))[1] == 1
    assert all(same_bits(a, b) for a, b in zip(found, whole, strict=True))


@pytest.mark.parametrize("topk", [1, 63, 64, 65, 128, 500])
@splitters
def test_a_ragged_tail_is_a_chunk_of_its_own(v, topk):
    x = inputs(V32, tokens=1, heads=2, topk=topk, rows=640)
    share, splits = splits_of(x, replace(v.config, chunks_per_block=1))
    assert (share, splits) == (1, -(-topk // 64))
    passes(v, x, replace(v.config, chunks_per_block=1))


@splitters
def test_a_share_that_ends_in_the_second_cache(v):
    """Two chunks of the main cache, three of the second one, programs of three: 2 + 1, then 2."""
    x = inputs(MODELS["DSv4 dual"])
    assert splits_of(x, replace(v.config, chunks_per_block=3)) == (3, 2)
    passes(v, x, replace(v.config, chunks_per_block=3))
    alone = x._replace(topk_length=lengths(0, 0, 0), extra_topk_length=lengths(130, 3, 64))
    passes(v, alone, replace(v.config, chunks_per_block=3))
    none = x._replace(extra_topk_length=lengths(0, 0, 0))
    main = x._replace(extra_cache=None, extra_indices=None, extra_topk_length=None)
    for a, b in zip(passes(v, none), passes(v, main), strict=True):
        torch.testing.assert_close(a, b, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("tokens", [0, 1])
@variants
def test_D06_a_step_of_nothing_is_legal(v, tokens):
    """No token: empty outputs. No rows at all: zeros, and -inf."""
    x = inputs(MODELS["DSv3.2"], tokens=tokens, rows=0)
    out, lse = v(x)
    assert out.shape == (tokens, 8, 512) and lse.shape == (tokens, 8)
    assert not out.any() and lse.isneginf().all()


@pytest.mark.parametrize("length", [-1, -(2**31), 0])
@variants
def test_D05_D06_lengths_below_one_count_no_lane(v, length):
    """Padded rows of a graph have them: zeros, and the real rows beside them are as they were."""
    x = inputs(MODELS["DSv3.2"])
    out, lse = v(x._replace(topk_length=lengths(length, length, length)))
    assert not out.any() and lse.isneginf().all()
    passes(v, x._replace(topk_length=lengths(200, length, 130)))


def test_D05_a_negative_length_is_named_on_the_host():
    x = inputs(MODELS["DSv3.2"])
    (said,) = violations(x.indices.cpu(), 1000, topk_length=lengths(200, 200, -1).cpu())
    assert "first token 2: -1" in said


@variants
def test_D02_padded_rows_hold_no_nan(v):
    """Of eight rows of a capture five are real: the rest point nowhere, and are zeros."""
    x = inputs(MODELS["DSv3.2"], tokens=8)
    x = x._replace(indices=x.indices.clone(), topk_length=lengths(*[200] * 5, 0, 0, 0))
    x.indices[5:] = -1
    found = passes(v, x)
    assert not found.out[5:].any() and found.lse[5:].isneginf().all()


@pytest.mark.parametrize("tokens", [64, 65])
@variants
def test_D07_both_sides_of_the_decode_boundary_are_right(v, tokens):
    """65 rows are one over the cut-off of servers, 64; no kernel here changes there."""
    passes(v, inputs(V32, tokens=tokens, heads=1, topk=3, rows=3 * tokens))


@variants
def test_C03_C04_lse_is_base_2_and_without_the_sink(v):
    """One row: its lse is its logit, in bits, whatever the sink takes of the answer."""
    x = inputs(MODELS["DSv3.2"], topk=1, sink="random")
    rows = OP.reference(x._replace(attn_sink=None))
    _, lse = v(x)
    torch.testing.assert_close(lse, rows.lse.float(), rtol=1e-5, atol=1e-5)
    natural = rows.lse * torch.tensor(2.0).log()
    assert (natural.float() - lse).abs().max() > 0.1


@pytest.mark.parametrize("strides", [(8, 1), (11, 1), (64, 1)])
@variants
def test_lse_goes_into_the_rows_of_the_callers_tensor(v, strides):
    """A view of columns of a wider tensor: its rows hold the answer, the other columns are kept."""
    x = inputs(MODELS["DSv3.2"])
    plain = passes(v, x)
    wide = torch.full((3, strides[0] + 5), 7.0, device=DEVICE)
    view = wide[:, 2:10]
    out, lse = v(x._replace(out_lse=view))
    assert lse.data_ptr() == view.data_ptr() and same_bits(view, plain.lse)
    assert same_bits(out, plain.out)
    assert (wide[:, :2] == 7).all() and (wide[:, 10:] == 7).all()


@variants
def test_wide_rows_of_indices_give_the_same_bits(v):
    plain, wide = (inputs(MODELS["DSv4 dual"], gap=gap) for gap in (0, 9))
    assert wide.indices.stride(0) == 79 and wide.extra_indices.stride(0) == 139
    assert all(same_bits(a, b) for a, b in zip(v(plain), v(wide), strict=True))


def lse_side_by_side(x, config):
    """A kernel that takes the rows of out_lse to stand side by side, as one of the field did."""
    found = SINGLE(x._replace(out_lse=torch.empty_like(x.out_lse)))
    flat = x.out_lse.as_strided((x.out_lse.numel(),), (1,))
    flat.copy_(found.lse.flatten())
    return Output(found.out, x.out_lse)


def lse_in_a_tensor_of_its_own(x, config):
    return SINGLE(x._replace(out_lse=torch.empty(x.out_lse.shape, device=x.q.device)))


def lse_beside_as_well(x, config):
    """The right numbers in the right place, and the padded heads' behind each row."""
    found = SINGLE(x)
    beside = x.out_lse.as_strided((len(x.out_lse) - 1, 1), x.out_lse.stride(),
                                  x.out_lse.storage_offset() + x.out_lse.shape[1])  # fmt: skip
    beside.fill_(0.0)
    return found


@pytest.mark.parametrize("run, told", [
    (lse_side_by_side, "memory beside out_lse was written"),
    (lse_beside_as_well, "memory beside out_lse was written"),
    (lse_in_a_tensor_of_its_own, "out_lse does not hold the lse"),
    (lambda x, config: SINGLE(x), ""),
])  # fmt: skip
def test_the_gate_sees_what_is_done_to_the_callers_tensor(run, told):
    v = Variant("planted", OP, run, None, "a test")
    verdict = check(v, replace(MODELS["DSv3.2"], gap=3), device=DEVICE)
    assert verdict.passed == (not told) and told in verdict.why, verdict


def test_the_last_program_leaves_the_counters_as_it_found_them():
    """So a graph's replay, or a runner's next call, may start on them: here three times in turn."""
    x = inputs(MODELS["DSv3.2"], heads=24)
    config = replace(LAST.config, chunks_per_block=1)
    share, splits = splits_of(x, config)
    left, arrived = scratch(x, splits), last.counters(x, config)
    assert splits == 4 and len(arrived) == 3 * 2
    wanted = passes(LAST, x, config)
    for _ in range(3):
        out = torch.full_like(wanted.out, torch.nan)
        x.out_lse.fill_(torch.nan)
        last.launch(x, config, share, left, arrived, out)
        assert not arrived.any()
        assert same_bits(out, wanted.out) and same_bits(x.out_lse, wanted.lse)


@splitters
def test_replays_on_other_numbers(v):
    """D10: the gate records a call and replays it; more than one split, and lengths that change."""
    w = replace(MODELS["DSv3.2"], length="ragged", law="uniform", gap=2)
    verdict = check(v, w, replace(v.config, chunks_per_block=1), device=DEVICE)
    assert verdict.passed, verdict
