"""What sparse decode refuses by name, how it splits a call, and what it takes of a GPU."""

from dataclasses import replace

import pytest
import torch

from workbench.compiled import table
from workbench.ops import OPS
from workbench.ops.sparse_decode.kernels import _launch
from workbench.ops.sparse_decode.workload import SUITES, V4_C4, V32

OP = OPS["sparse_decode"]
SPLIT = OP.variants["split_k"]
DUAL = replace(V4_C4, tokens=2, heads=8, topk=24, rows=150, extra_topk=20, extra_rows=38)


@pytest.mark.parametrize("changes, told", [
    ({"layout": "inline_528"}, "layout='inline_528' is none of inline_656, footer_584"),
    ({"layout": "footer_584"}, "scale_format='pow2_fp32'.*ue8m0"), ({"heads": 129}, "heads=129"),
    ({"heads": 0}, "heads=0"), ({"topk": 0}, "topk=0"), ({"gap": -1}, "gap=-1"),
    ({"tokens": 5, "tokens_per_request": 2}, "tokens=5 is no multiple of tokens_per_request=2"),
    ({"extra_topk": 8, "extra_rows": 9}, "second cache"), ({"sink": "inf"}, "sink='inf'"),
])  # fmt: skip
def test_a_workload_of_no_step_is_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        OP.Workload(**changes)


@pytest.mark.parametrize("change, told", [
    (lambda x: {"out_lse": x.out_lse[:, :7]}, r"out_lse is torch.float32 \(2, 7\)"),
    (lambda x: {"out_lse": x.out_lse.half()}, "out_lse is torch.float16"),
    (lambda x: {"out_lse": x.out_lse.T.contiguous().T}, "out_lse has strides"),
    (lambda x: {"out_lse": x.out_lse[:1].expand(2, 8)}, "out_lse has strides"),
    (lambda x: {"indices": x.indices.T.contiguous().T}, "indices has a last stride"),
    (lambda x: {"indices": x.indices[:1]}, "indices is torch.int32"),
    (lambda x: {"extra_indices": None}, "belong together"),
    (lambda x: {"cache": torch.zeros(3, 37376 + 4, dtype=torch.uint8)[:, 4:]}, "words of 8"),
])  # fmt: skip
def test_what_would_be_read_as_something_else_is_refused(change, told):
    x = OP.make_inputs(DUAL, "cpu")
    with pytest.raises(ValueError, match=told):
        SPLIT(x._replace(**change(x)))


@pytest.mark.parametrize("changes, told", [
    ({"block_h": 8}, "block_h=8"), ({"block_h": 48}, "block_h=48"), ({"block_k": 128}, "block_k"),
    ({"block_k": 8}, "block_k=8"), ({"chunks_per_block": -1}, "chunks_per_block=-1"),
])  # fmt: skip
def test_a_config_of_no_kernel_is_refused_with_a_reason(changes, told):
    assert told in SPLIT.requires(V32, replace(SPLIT.config, **changes))


@pytest.mark.parametrize("tokens, heads, splits", [
    (1, 16, 32), (4, 16, 32), (8, 16, 16), (32, 16, 4), (65, 16, 2), (128, 16, 1), (1, 128, 16),
    (32, 128, 1),
])  # fmt: skip
def test_without_a_number_each_multiprocessor_has_one_program_at_most(
    tokens, heads, splits, monkeypatch
):
    monkeypatch.setattr(_launch, "multiprocessors", lambda: 132)
    count = _launch.chunks(2048, 0)
    share = _launch.share_of(count, tokens * -(-heads // 16), 0)
    assert -(-count // share) == splits
    assert splits == 1 or tokens * -(-heads // 16) * splits <= 132


def test_suites_are_those_of_the_issue():
    heads = {w.heads for w in SUITES["requests"]}
    assert heads == {16, 64, 128} and {w.tokens for w in SUITES["requests"]} == {1, 32, 128}
    assert all((w.topk, w.rows, w.layout) == (2048, 262144, "inline_656")
               for w in SUITES["requests"] + SUITES["crossover"])  # fmt: skip
    assert {64, 65} < {w.tokens for w in SUITES["crossover"]}
    shapes = {(w.tokens, w.heads, w.topk) for w in SUITES["splits"]}
    fitted = {(64, 128, 128), (64, 128, 1024), (64, 128, 512), (1, 8, 1024), (32, 128, 512)}
    assert len(shapes) == 60 and not shapes & fitted
    assert {1, 8, 12, 16, 64, 80, 128} <= {w.heads for w in SUITES["edges"]}


@pytest.mark.slow
@pytest.mark.parametrize("fields", [
    pytest.param({"scale_format": "arbitrary_fp32"}, marks=pytest.mark.xfail(
        strict=True, reason="8 and 16 bytes since heads are the rows of each product")),
    {"layout": "footer_584", "scale_format": "ue8m0", "topk": 128, "extra_topk": 512,
     "extra_rows": 1024, "rows": 4096},
], ids=["GLM", "DSv4 dual"])  # fmt: skip
def test_no_layout_spills(fields, tmp_path):
    """And the hot loop multiplies sixteen heads, too few for warp groups, by warps' own products.
    """
    w = {name: str(value) for name, value in (fields | {"tokens": 4}).items()}
    for arch in ("sm_90", "sm_120"):
        rows = table("sparse_decode", variants=["split_k", "split_k_last_merges"], workload=w,
                     arch=arch, cache_folder=tmp_path)  # fmt: skip
        assert len(rows) == 3
        for row in rows:
            assert row["fits"] and row["spill_store_bytes"] == row["spill_load_bytes"] == 0, row
            if row["kernel"] != "_merge_kernel":
                assert row["hot_loop"]["HMMA"] > 0, row
