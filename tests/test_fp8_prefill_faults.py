"""The gate refuses kernels that read an fp8 cache wrongly, each for its own reason.

A fault is an edit of the places that bytes are taken from, of the tokens found there, or of the
rows made of them, in a plain attention that is right without an edit. None is registered.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import DEVICE

from workbench import layouts
from workbench.gate import check
from workbench.layouts import LAYOUTS
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.fp8_prefill.definition import Output, Source, sources, valid_lanes
from workbench.ops.fp8_prefill.kernels._rows import rounded

OP = OPS["fp8_prefill"]
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
V32 = OP.Workload(tokens=4, heads=8, topk=40, rows=150, churn=0.3)
GLM = replace(V32, scale_format="arbitrary_fp32")
NOPE = replace(GLM, layout="inline_528", row_stride=656)
V4 = replace(V32, layout="footer_584", scale_format="ue8m0", padded=True)
DUAL = replace(V4, topk=20, extra_topk=30, extra_rows=60)
DOTS3 = replace(V4, layout="footer_1160")


def same(x, found):
    return found


def attention(x, places=same, tokens=same, rows=same, values=None, reads=sources) -> Output:
    """Attention as the definition has it, with an edit in a place: (x, what is there) -> other."""
    layout, keys, oks = LAYOUTS[x.layout], [], []
    for s in reads(x):
        views = places(x, layouts.places(layout, s.cache, s.page_size, s.row_stride))
        ok = valid_lanes(s)
        token = torch.where(ok, s.indices, 0).long()
        page, place = token // s.page_size, token % s.page_size
        found = layouts.Places(*(view[page, place] for view in views))
        found = tokens(x, layouts.as_tokens(layout, found))
        keys.append(torch.where(ok[..., None], rows(x, layouts.dequantise(found)), 0))
        oks.append(ok)
    keys, ok = torch.cat(keys, 1), torch.cat(oks, 1)
    scores = (x.q.double() @ keys.mT * x.sm_scale).masked_fill(~ok[:, None], -torch.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - torch.where(lse.isneginf(), 0, lse)[..., None]).exp()
    out = weights @ (keys[..., : layout.d_v] if values is None else values(keys))
    return Output(out.bfloat16(), (lse / torch.log(torch.tensor(2.0))).float())


def gate(run, w, widens=lambda x: x):
    v = Variant("planted", OP, lambda x, config: run(x), None, "a test", widens=widens)
    return check(v, w, device=DEVICE)


def neighbours_scale(x, t):
    return t._replace(scales=t.scales.roll(1, -1))


def exponent_alone(x, t):
    """What a reader of powers of two makes of a scale: its fraction cut off."""
    bits = t.scales.view(torch.int32)
    return t._replace(scales=(bits >> 23 << 23).view(torch.float32))


def without_rope(x, rows):
    return torch.cat((rows[..., : LAYOUTS[x.layout].nope], torch.zeros_like(rows[..., -64:])), -1)


def next_pages_footer(x, views):
    return views._replace(scales=views.scales.roll(-1, 0))


def next_tokens_footer(x, views):
    return views._replace(scales=views.scales.roll(-1, 1))


def footer_at_the_end(x, views):
    """The footer as if it stood before the next page, padding or not."""
    stride, size = x.cache.stride(0), x.page_size
    flat = x.cache.as_strided((len(x.cache) - 1, stride), (stride, 1))
    scales = flat[:, -8 * size :].unflatten(1, (size, 8))[..., : views.scales.shape[-1]]
    return views._replace(scales=torch.cat((scales, views.scales[-1:])))


def values_of_dots(rows):
    return torch.cat((rows[..., 64:1024], rows[..., 1024:]), -1)


def padding_as_rope(x):
    """inline_528 rows of 656 bytes taken for inline_656, and a query with a rotary part of ones."""
    q = torch.cat((x.q, torch.ones_like(x.q[..., :64])), -1)
    return attention(x._replace(layout="inline_656", q=q))


def rows_at(stride, x, views):
    """Rows as if they stood `stride` bytes apart."""
    at = torch.arange(x.page_size)[:, None] * stride
    nope, rope = at + torch.arange(512), at + 528 + torch.arange(128)
    scales = at + 512 + torch.arange(16)
    return layouts.Places(*(x.cache[:, i] for i in (nope, rope, scales)))


def one_cache(x):
    """The extra lanes read from the main cache."""
    main, extra = sources(x)
    return main, Source(main.cache, main.page_size, main.row_stride, extra.indices, None)


def swapped_lengths(x):
    main, extra = sources(x)
    return (main._replace(topk_length=extra.topk_length),
            extra._replace(topk_length=main.topk_length))  # fmt: skip


def main_page_size(x):
    main, extra = sources(x)
    half = extra.page_size // 2
    cache = extra.cache.as_strided((2 * len(extra.cache), 584 * half), (584 * half, 1))
    return main, extra._replace(cache=cache, page_size=half)


WHOLE = replace(V4, topk=128, rows=128, first_position=200)  # every row is read
DUAL_TIGHT = replace(DUAL, padded=False, extra_page_size=128, extra_rows=200)
RAGGED = replace(DUAL, topk=30, length="ragged", law="uniform", extra_law="uniform", tokens=7)
FAULTS = {
    "V from the last 512 columns": (V32, "out is off", {"values": lambda rows: rows[..., -512:]}),
    "V of DSv4 without rope": (V4, "out is off", {"values": lambda rows: torch.cat(
        (rows[..., :448], torch.zeros_like(rows[..., 448:])), -1)}),
    "V of DOTS3 from column 64": (DOTS3, "out is off", {"values": values_of_dots}),
    "neighbour's scale, inline": (V32, "lse is off", {"tokens": neighbours_scale}),
    "neighbour's scale, arbitrary": (GLM, "lse is off", {"tokens": neighbours_scale}),
    "neighbour's scale, footer": (V4, "lse is off", {"tokens": neighbours_scale}),
    "neighbour's scale, DOTS3": (DOTS3, "lse is off", {"tokens": neighbours_scale}),
    "exponent of an arbitrary scale": (GLM, "lse is off", {"tokens": exponent_alone}),
    "rope not read": (V32, "lse is off", {"rows": without_rope}),
    "rope of DSv4 not read": (V4, "lse is off", {"rows": without_rope}),
    "rope of DOTS3 not read": (DOTS3, "lse is off", {"rows": without_rope}),
    "footer of the next page": (WHOLE, "lse is off",
                                {"places": next_pages_footer}),
    "footer of the next token": (WHOLE, "",
                                 {"places": next_tokens_footer}),
    "footer behind the padding": (V4, "not finite", {"places": footer_at_the_end}),
    "rows taken for tight": (replace(V32, row_stride=1088), "not finite",
                             {"places": partial(rows_at, 656)}),
    "extra lanes of the main cache": (DUAL, "not finite", {"reads": one_cache}),
    "extra cache not read": (DUAL, "lse is off", {"reads": lambda x: sources(x)[:1]}),
    "lengths of the other cache": (RAGGED, "not finite", {"reads": swapped_lengths}),
    "extra pages of another size": (DUAL_TIGHT, "not finite", {"reads": main_page_size}),
    "rows rounded to bf16": (GLM, "lse is off", {"rows": lambda x, r: r.bfloat16().double()}),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_refused_and_the_same_code_without_it_passes(name):
    w, why, edits = FAULTS[name]
    verdict = gate(partial(attention, **edits), w)
    assert verdict.status == "incorrect" and why in verdict.why, verdict
    assert gate(attention, w).passed


def test_legacy_padding_read_as_rope_is_refused():
    verdict = gate(padding_as_rope, NOPE)
    assert verdict.status == "incorrect" and "not finite" in verdict.why, verdict
    assert gate(attention, NOPE).passed


@pytest.mark.parametrize("w", [
    replace(V32, null_page=True, holes=0.4, padding="mixed"),
    replace(V4, null_page=True, holes=0.4, padding="mixed"),
    replace(DUAL, null_page=True, holes=0.4, padding="mixed"),
], ids=["inline", "footer", "dual"])  # fmt: skip
def test_padding_that_reads_the_null_page_is_refused(w):
    """-1 clamped to token 0, whose weight is zero: zero times NaN is NaN."""

    def clamped(x):
        result = attention(x)
        rows = layouts.dequantise(layouts.as_tokens(LAYOUTS[x.layout], layouts.Places(*(
            view[0, 0] for view in layouts.places(LAYOUTS[x.layout], x.cache, x.page_size,
                                                  x.row_stride)))))  # fmt: skip
        spoilt = 0.0 * rows[: result.out.shape[-1]]
        return result._replace(out=(result.out.double() + spoilt).bfloat16())

    verdict = gate(clamped, w)
    assert verdict.status == "incorrect" and "not finite" in verdict.why, verdict


def test_a_rounding_that_is_declared_is_judged_by_its_own_answer():
    """Rows in bf16 under arbitrary scales are another question: asked so, within the budget."""
    keeps = partial(attention, rows=lambda x, r: r.float().bfloat16().double())
    assert gate(keeps, GLM, widens=rounded).passed
    assert gate(keeps, V32).passed and gate(keeps, V4).passed  # a power of two rounds nothing
    verdict = gate(attention, GLM, widens=rounded)
    assert verdict.status == "incorrect", "an exact kernel answers the exact question"


def test_one_pass_rounds_an_arbitrary_scale_where_one_row_has_all_the_weight():
    w = replace(GLM, tokens=3, heads=16, topk=1, rows=20, law="uniform", length="ragged",
                padding="mixed", wild=True, zeros=0.5, seed=45)  # fmt: skip
    v = OP.variants["dequant_dot"]
    assert check(v, w, device=DEVICE).passed
    verdict = check(v, w, replace(v.config, arbitrary_passes=1), device=DEVICE)
    assert verdict.status == "incorrect" and "out is off" in verdict.why, verdict
    verdict = check(v, w, replace(v.config, arbitrary_passes=3), device=DEVICE)
    assert verdict.status == "unsupported" and "arbitrary_passes=3" in verdict.why
