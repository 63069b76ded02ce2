"""What fp8 prefill refuses by name, and what its kernel takes of a GPU in each layout."""

from dataclasses import replace

import pytest
import torch

from workbench.compiled import table
from workbench.ops import OPS
from workbench.ops.fp8_prefill.workload import V4_C4

OP = OPS["fp8_prefill"]
DUAL = replace(V4_C4, tokens=4, heads=8, topk=24, rows=150, extra_topk=20, extra_rows=38)


@pytest.mark.parametrize("changes, told", [
    ({"layout": "inline"}, "layout='inline'"),
    ({"layout": "footer_584"}, "scale_format='pow2_fp32'.*ue8m0"),
    ({"scale_format": "auto"}, "scale_format='auto'.*arbitrary_fp32"),
    ({"row_stride": 652}, "652"), ({"row_stride": 658}, "658"), ({"page_size": 0}, "page_size=0"),
    ({"extra_topk": 8, "extra_rows": 9}, "second cache"), ({"extra_rows": 9}, "extra_rows=9"),
    ({"zeros": 1.5}, "zeros=1.5"), ({"sink": "inf"}, "sink='inf'"), ({"heads": 0}, "heads=0"),
])  # fmt: skip
def test_a_workload_of_no_model_is_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        OP.Workload(**changes)


@pytest.mark.parametrize("change, told", [
    (lambda x: {"cache": x.cache.view(torch.int8)}, "cache is torch.int8"),
    (lambda x: {"cache": x.cache[:, 1:]}, "cache is torch.uint8"),
    (lambda x: {"cache": x.cache[:, : 64 * 576]}, r"37376 to"),
    (lambda x: {"cache": x.cache[:2].reshape(1, -1)}, "pages of 64 tokens"),
    (lambda x: {"page_size": 0}, "page_size=0"), (lambda x: {"page_size": 2.0}, "page_size=2.0"),
    (lambda x: {"row_stride": None}, "row_stride=None"), (lambda x: {"layout": "foo"}, "'foo'"),
    (lambda x: {"q": x.q[0]}, "q is Tensor .*3 dimensions"), (lambda x: {"q": [1]}, "q is list"),
    (lambda x: {"indices": None}, "indices is NoneType"),
    (lambda x: {"sm_scale": float("nan")}, "sm_scale=nan"),
    (lambda x: {"sm_scale": None}, "sm_scale=None"),
    (lambda x: {"q": x.q[..., :448].contiguous()}, "q is"),
    (lambda x: {"scale_format": "pow2_fp32"}, "pow2_fp32"),
    (lambda x: {"row_stride": 584}, "tightly packed"),
    (lambda x: {"extra_indices": None}, "belong together"),
    (lambda x: {"extra_indices": x.extra_indices.long()}, "extra_indices is torch.int64"),
    (lambda x: {"extra_cache": x.extra_cache[:, :1000]}, "extra_cache is"),
    (lambda x: {"cache": torch.zeros(3, 37377, dtype=torch.uint8)[:, :37376]}, "whole words"),
])  # fmt: skip
def test_what_would_be_read_as_something_else_is_refused(change, told):
    x = OP.make_inputs(DUAL, "cpu")
    with pytest.raises(ValueError, match=told):
        OP.variants["dequant_dot"](x._replace(**change(x)))


@pytest.mark.slow
@pytest.mark.parametrize("fields", [
    {"layout": "footer_584", "scale_format": "ue8m0", "extra_topk": 64, "extra_rows": 512},
    {"layout": "footer_1160", "scale_format": "ue8m0"},
    {"layout": "inline_528", "scale_format": "arbitrary_fp32"},
], ids=lambda f: f["layout"])  # fmt: skip
def test_no_layout_spills(fields, tmp_path):
    w = {name: str(value) for name, value in (fields | {"tokens": 16, "rows": 2048}).items()}
    for arch in ("sm_90", "sm_120"):
        (row,) = table("fp8_prefill", variants=["dequant_dot"], workload=w, arch=arch,
                       cache_folder=tmp_path)  # fmt: skip
        assert row["fits"] and row["spill_store_bytes"] == row["spill_load_bytes"] == 0, row
        assert row["hot_loop"]["HMMA"] > 0 and not {"LDL", "STL"} & set(row["looped"])
