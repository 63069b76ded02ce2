"""Faults that others met out of fp8 caches, one test a kind; ids name the report's row.

Areas B (sparse prefill) and C (bases of lse), as far as the op `fp8_prefill` meets them. Gluon's
variants meet B04, B17, B18 and B21 as edges: test_orientation.py. Told elsewhere: split and native
pages (A01: test_fp8_prefill), strides and dtypes (B27: test_fp8_prefill_refusals), decode and its
merge (C02 to C04: test_sparse_decode, test_merge_splits), other libraries' conventions (C05:
test_exchange), a launch that hangs (D04: test_method_reports), addresses (E: test_fp8_prefill).
Not met: B08, B09, B24 and B29 are of unions and of an indexer; nothing here falls back.
"""

import math
from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each

from workbench.compare import same_bits
from workbench.gate import check
from workbench.models.orientation import HEADS, head_rows
from workbench.ops import OPS
from workbench.ops.fp8_prefill.definition import reference
from workbench.ops.fp8_prefill.workload import GLM, V4, V4_C4, V32

OP = OPS["fp8_prefill"]
QUERIES = replace(V32, tokens=3, heads=2, topk=40, rows=150, churn=0.3)
DUAL = replace(V4_C4, tokens=3, heads=2, topk=20, rows=90, extra_topk=33, extra_rows=40)
variants = each(OP.variants.values())
kernels = each([v for v in OP.variants.values() if v.name != "eager"])
torch.set_num_threads(1)

SHAPES = {
    "B11 of both caches": replace(DUAL, rows=9, extra_rows=2),
    "B21 33 heads": replace(QUERIES, tokens=1, heads=33, topk=20),
    "B22 positions 3 apart": replace(QUERIES, position_stride=3),
    "B23 requests of one batch": replace(QUERIES, requests=3, context=60, rows=None),
}
MORE = {  # beside the edges of the op that are of their kind
    "B11 fewer rows than topk": replace(QUERIES, rows=20),
    "B12 counted holes": replace(QUERIES, padding="mixed", holes=0.4, length="counted"),
    **{f"B17 topk {k}": replace(QUERIES, topk=k, rows=k + 9) for k in (33, 65, 192)},
    "B17 16 heads, topk 512": replace(V4, tokens=1, heads=16, topk=512, rows=600),
    **{f"B21 {h} heads": replace(QUERIES, heads=h, topk=20) for h in (3, 63, 65)},
}  # fmt: skip


@pytest.mark.parametrize("shape", [*SHAPES, *(pytest.param(m, marks=pytest.mark.slow)
                                              for m in MORE)])  # fmt: skip
@kernels
def test_a_shape_is_right_or_refused_with_a_reason(v, shape):
    verdict = check(v, (SHAPES | MORE)[shape], device=DEVICE)
    refused = shape.startswith("B21") and verdict.status == "unsupported" and verdict.why
    assert verdict.passed or refused, f"{verdict.status}: {verdict.why}"


@pytest.mark.parametrize("w", [
    replace(QUERIES, topk=72), replace(QUERIES, topk=72, scale_format=GLM.scale_format),
    replace(DUAL, topk=72),
], ids=["pow2", "glm", "dual"])  # fmt: skip
@variants
def test_B04_a_token_without_rows_gives_zeros_and_no_nan(v, w):
    x = OP.make_inputs(replace(w, sink="random"), DEVICE)
    x.indices[0] = -1
    x.indices[2, :67] = -1  # whole tiles are masked before the first valid lane
    if x.extra_indices is not None:
        x.extra_indices[:] = -1
    length = torch.tensor([72, 0, 72], dtype=torch.int32, device=DEVICE)
    x = x._replace(topk_length=length)
    out, lse = v(x)
    assert not out[:2].any() and lse[:2].isneginf().all() and out[2].any()
    assert OP.compare(x, (found := v(x)), reference(v.widens(x))).passed, found


@variants
def test_B13_a_hole_in_one_cache_moves_no_lane_of_the_other(v):
    """Lanes of two caches are two lists with lengths of their own, not one list cut somewhere."""
    x = OP.make_inputs(replace(DUAL, length="none"), DEVICE)
    cut = torch.full((3,), 11, dtype=torch.int32, device=DEVICE)
    counted = x._replace(topk_length=cut)
    holes = x.indices.clone()
    holes[:, 11:] = -1
    swapped = holes.flip(1)  # the same lanes, the holes in front
    for y in (counted, x._replace(indices=holes), x._replace(indices=swapped)):
        assert OP.compare(y, v(y), reference(v.widens(counted))).passed


@kernels
def test_B18_counting_the_lanes_changes_no_bit(v):
    for w in (replace(QUERIES, rows=20), replace(DUAL, rows=9, extra_rows=20)):
        x = OP.make_inputs(replace(w, length="counted"), DEVICE)
        assert int(x.topk_length.max()) < x.indices.shape[1], "no lane is padded"
        plain = x._replace(topk_length=None, extra_topk_length=None)
        assert all(map(same_bits, v(x), v(plain)))


def test_B20_heads_are_padded_to_a_program_and_no_further():
    """32 heads do not cost what 128 do: at most one program of 64 is begun and not filled."""
    counts = (1, 8, 16, 32, 33, 64, 80, 128)
    for row in head_rows(counts):
        for h in counts:
            computed = row.get(f"H={h}", 1.0) * h
            assert computed <= max(HEADS, 2 * HEADS * (h > HEADS)), (row["variant"], h)


@pytest.mark.parametrize("w", [replace(QUERIES, rows=20), replace(DUAL, rows=9)],
                         ids=["one", "dual"])  # fmt: skip
def test_B28_what_a_token_reads_is_recorded_beside_the_width(w):
    x = OP.make_inputs(w, "cpu")
    assert OP.statistics(x)["valid_rows_per_token"] < w.topk == x.indices.shape[1]
    assert OP.cost(x).flops < OP.cost(OP.make_inputs(replace(w, rows=150), "cpu")).flops


@variants
def test_C03_C04_lse_is_base_2_and_without_the_sink(v):
    """One row: its score itself, in base 2; a reader that takes it for base e is off by 1.4427."""
    x = OP.make_inputs(replace(QUERIES, topk=1, sink="random"), DEVICE)
    _, lse = v(x)
    rows = reference(v.widens(x)).lse  # of the question that it answers
    natural = rows * math.log(2)
    assert torch.allclose(lse.double(), rows, atol=1e-3) and natural.abs().max() > 0.5
    assert not torch.allclose(lse.double(), natural, atol=1e-3)
    assert all(map(same_bits, [v(x._replace(attn_sink=None)).lse], [lse]))
