"""What fp8 prefill promises beyond its edges: other definitions of the same, bytes far apart.

Random workloads of every model type through the gate; the answer as attention on dequantised rows
has it; the same bits whatever the pages; scales that no quantiser writes; addresses past 32 bits;
what a clock rotates through.
"""

from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from test_offsets import far

from workbench import layouts
from workbench.compare import same_bits
from workbench.gate import check
from workbench.layouts import LAYOUTS, footer_584
from workbench.ops import OPS
from workbench.ops.fp8_prefill.definition import gathered, reference, sources, valid_lanes
from workbench.ops.fp8_prefill.workload import DOTS3, GLM, GLM53, V4, V4_C4, V32
from workbench.ops.sparse_prefill import definition as rows_of_bf16

OP = OPS["fp8_prefill"]
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
SMALL = {"tokens": 4, "heads": 8, "topk": 24, "rows": 150}
MODELS = {
    "DSv3.2": replace(V32, **SMALL), "GLM": replace(GLM, **SMALL),
    "GLM53_NOPE": replace(GLM53, **SMALL), "legacy": replace(GLM53, **SMALL, row_stride=656),
    "DSv4": replace(V4, **SMALL),
    "DSv4 dual": replace(V4_C4, **SMALL | {"extra_topk": 20, "extra_rows": 38}),
    "DOTS3_SWA": replace(DOTS3, **SMALL),
}  # fmt: skip
models = pytest.mark.parametrize("model", MODELS)
variants = each(OP.variants.values())
triton_variants = each([v for v in OP.variants.values() if v.name != "eager"])
DOT = OP.variants["dequant_dot"]


def passes(v, x, expected=None):
    """`v` on `x` is within its op's budget."""
    expected = reference(v.widens(x)) if expected is None else expected
    verdict = OP.compare(x, v(x), expected)
    assert verdict.passed, f"{v.name}: {verdict}"


def a_random_workload(data, model):
    """One of the model, its layout's strides and page sizes, through the gate."""
    one_of = lambda *values: data.draw(st.sampled_from(values))  # noqa: E731
    w = replace(
        MODELS[model], tokens=one_of(1, 2, 3), heads=one_of(1, 8, 12, 16),
        topk=one_of(1, 16, 33), rows=one_of(20, 90), law=one_of("walk", "uniform"),
        page_size=one_of(2, 53, 61, 64, 69, 128, 256), padding=one_of("tail", "head", "mixed"),
        holes=one_of(0.0, 0.3, 1.0), wild=one_of(False, True),
        length=one_of("none", "counted", "ragged"), sink=one_of("none", "random", "-inf", "+inf"),
        padded=one_of(False, True), null_page=one_of(False, True), zeros=one_of(0.0, 0.5),
        seed=data.draw(st.integers(0, 2**16)),
    )  # fmt: skip
    if w.extra_topk:
        w = replace(w, extra_page_size=one_of(2, 61, 64, 128), extra_topk=one_of(1, 20, 33),
                    extra_law=one_of("walk", "uniform"))  # fmt: skip
    elif not LAYOUTS[w.layout].footer_bytes:
        w = replace(w, row_stride=one_of(None, 656, 1088))
    v = DOT if model == "DOTS3_SWA" else one_of(DOT, OP.variants["dequant_then_bf16"])
    verdict = check(v, w, device=DEVICE)
    assert verdict.passed, f"{v.name} on {w}: {verdict}"


# no shrinking: a workload is small, and each try takes a tenth of a second. Always the same draws:
# where tokens of one row, which bf16 holds exactly, stand beside one of two, the budget is theirs.
SAME_DRAWS = settings(
    deadline=None, derandomize=True, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)


@settings(SAME_DRAWS, max_examples=100)
@given(data=st.data(), model=st.sampled_from(sorted(MODELS)))
def test_a_random_workload(data, model):
    a_random_workload(data, model)


@pytest.mark.slow
@settings(SAME_DRAWS, max_examples=1000)
@given(data=st.data(), model=st.sampled_from(sorted(MODELS)))
def test_a_thousand_random_workloads(data, model):
    a_random_workload(data, model)


@models
def test_the_answer_is_that_of_attention_on_dequantised_rows(model):
    """Both caches as one virtual cache of numbers, and one index list: `sparse_prefill` says so."""
    w = replace(MODELS[model], sink="random", length="ragged", law="uniform", extra_law="uniform")
    x = OP.make_inputs(w, "cpu")
    layout, rows, lanes, first = LAYOUTS[w.layout], [], [], 0
    for s in sources(x):
        rows.append(gathered(x, s, torch.arange(s.rows), torch.float64))
        lanes.append(torch.where(valid_lanes(s), s.indices + first, -1))
        first += s.rows
    kv, indices = torch.cat(rows), torch.cat(lanes, 1)
    found = reference(x)
    for t in range(w.tokens):
        mine = kv[indices[t][indices[t] >= 0].long()]
        if not len(mine):
            assert not found.out[t].any() and found.lse[t].isneginf().all()
            continue
        scores = x.q[t].double() @ mine.T * x.sm_scale
        logits = torch.cat((scores, x.attn_sink.double()[:, None]), 1)  # it takes, gives nothing
        weights = logits.softmax(-1)[:, :-1]
        torch.testing.assert_close(found.out[t], weights @ mine[:, : layout.d_v])
        lse = scores.exp().sum(-1).log2()
        torch.testing.assert_close(found.lse[t], lse)
    if layout.d_qk == rows_of_bf16.D and w.scale_format == "pow2_fp32":
        again = rows_of_bf16.reference(rows_of_bf16.Inputs(
            x.q, kv.bfloat16(), indices, x.positions, None, x.attn_sink, x.sm_scale))  # fmt: skip
        torch.testing.assert_close(found.out, again.out)
        torch.testing.assert_close(found.lse, again.lse)


@pytest.mark.parametrize("size", [128, 256])
@triton_variants
def test_split_and_native_pages_give_the_same_bits(v, size):
    """Both caches in larger pages, and split into pages of 64: not one bit differs (seed 003)."""
    w = replace(MODELS["DSv4 dual"], extra_page_size=size, extra_rows=300, page_size=size)
    x = OP.make_inputs(w, DEVICE)

    def split(cache):
        tokens = layouts.unpack(footer_584.LAYOUT, cache, size)
        return footer_584.pack(layouts.Tokens(*(t.reshape(-1, 64, t.shape[-1]) for t in tokens)))

    halves = x._replace(cache=split(x.cache), page_size=64,
                        extra_cache=split(x.extra_cache), extra_page_size=64)  # fmt: skip
    assert halves.cache.stride(0) == 37440
    assert all(same_bits(a, b) for a, b in zip(v(x), v(halves), strict=True))


@pytest.mark.parametrize("model", ["DSv3.2", "GLM", "legacy"])
@triton_variants
def test_rows_further_apart_give_the_same_bits(v, model):
    """The stride of rows is read at run time: 1,088 bytes, and pages with a spare row."""
    x = OP.make_inputs(replace(MODELS[model], row_stride=None), DEVICE)
    wide = OP.make_inputs(replace(MODELS[model], row_stride=1088, padded=True), DEVICE)
    assert wide.row_stride == 1088 and wide.cache.stride(0) > wide.cache.shape[1]
    assert all(same_bits(a, b) for a, b in zip(v(x), v(wide), strict=True))


@variants
def test_a_power_of_two_is_not_taken_for_granted(v):
    """Scales that the format forbids are multiplied as they are: nothing is cut off in silence."""
    x = OP.make_inputs(MODELS["DSv3.2"], DEVICE)
    scales = layouts.places(LAYOUTS["inline_656"], x.cache, x.page_size).scales
    read = x.indices[valid_lanes(sources(x)[0])].long().unique()
    stored = scales[read // x.page_size, read % x.page_size].view(torch.float32)
    stored *= 1 + torch.arange(stored.numel(), device=stored.device).view_as(stored) % 7 / 10
    scales[read // x.page_size, read % x.page_size] = stored.view(torch.uint8)
    passes(v, x)


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x72, 0xFE])
@pytest.mark.parametrize("model", ["DSv4", "DOTS3_SWA"])
@variants
def test_scale_bytes_at_both_ends(v, model, byte):
    """Of a group that all queries meet with zeros, so that a scale of 2**127 stays in range."""
    w = MODELS[model]
    if v.requires(w, v.config):
        pytest.skip(v.requires(w, v.config))
    x = OP.make_inputs(w, DEVICE)
    view = layouts.places(LAYOUTS[w.layout], x.cache, x.page_size)
    read = x.indices[valid_lanes(sources(x)[0])].long().unique()
    at = read // x.page_size, read % x.page_size
    scales, codes = view.scales[at], view.nope[at]
    scales[:, 1], codes[:, w_group(w)] = byte, 0 if byte > 0x72 else codes[:, w_group(w)]
    view.scales[at], view.nope[at] = scales, codes
    passes(v, x)


def w_group(w) -> slice:
    """Columns of the second group."""
    group = LAYOUTS[w.layout].group
    return slice(group, 2 * group)


@pytest.mark.parametrize("stride", [2**29, 2**30 + 576])
@pytest.mark.parametrize("model", ["DSv3.2", "DSv4 dual", "DOTS3_SWA"])
@triton_variants
def test_pages_past_32_bits(v, model, stride):
    """Pages 2**29 bytes and more apart, so that the last ones begin past 2**31 and 2**32."""
    w = replace(MODELS[model], rows=9 * 16, page_size=16, extra_page_size=4, heads=1, tokens=2)
    if v.requires(w, v.config):
        pytest.skip(v.requires(w, v.config))
    x = OP.make_inputs(w, DEVICE)
    apart = x._replace(cache=far(x.cache, stride))
    if x.extra_cache is not None:
        apart = apart._replace(extra_cache=far(x.extra_cache, stride))
    assert (len(x.cache) - 1) * stride >= 2**32
    assert all(same_bits(a, b) for a, b in zip(v(x), v(apart), strict=True))


@pytest.mark.parametrize("model", ["DSv3.2", "DSv4 dual"])
def test_a_set_that_is_rotated_in_keeps_the_first_ones_answer(model):
    first = OP.make_inputs(MODELS[model], DEVICE)
    fresh = OP.make_inputs(replace(MODELS[model], seed=1), DEVICE)
    before = reference(first)
    bytes_ = OP.cost(first).bytes
    turned = OP.rotated(first, fresh)
    assert turned.cache.data_ptr() == first.cache.data_ptr()
    assert not torch.equal(turned.indices, first.indices)
    after, other = reference(first), reference(turned)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert other.out.isfinite().all() and OP.cost(first).bytes == bytes_
    assert OP.shared_bytes([first]) == 0
    named = [[set(s.indices[valid_lanes(s)].tolist()) for s in sources(x)] for x in (first, turned)]
    both = sum(len(a & b) for a, b in zip(*named, strict=True))
    assert both and OP.shared_bytes([first, turned]) == both * LAYOUTS[first.layout].token_bytes


@models
def test_the_least_bytes_are_those_of_the_layout(model):
    w = MODELS[model]
    x, layout = OP.make_inputs(w, "cpu"), LAYOUTS[w.layout]
    rows, lanes = 0, 0
    for s in sources(x):
        valid = s.indices[valid_lanes(s)]
        rows, lanes = rows + len(set(valid.tolist())), lanes + len(valid)
    token_bytes = int(layout.name.split("_")[1])
    indices = 4 * w.tokens * (w.topk + w.extra_topk)
    queries = w.tokens * w.heads * (2 * layout.d_qk + 2 * layout.d_v + 4)
    assert OP.cost(x) == (rows * token_bytes + queries + indices,
                          2 * w.heads * lanes * (layout.d_qk + layout.d_v))  # fmt: skip
