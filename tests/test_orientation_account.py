"""The account of the orientations: its counts are the kernels' own, its sentences follow them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.models.orientation import (
    HEADS,
    LANES,
    accounts,
    head_rows,
    pairs,
    partition,
    told,
)
from workbench.ops import OPS
from workbench.ops.fp8_prefill.kernels import heads_on_warps, mg, swapab
from workbench.ops.fp8_prefill.workload import V4, V32

ROWS = json.loads((Path(__file__).parents[1] / "traces/compiled/fp8_prefill.json").read_text())
OP = OPS["fp8_prefill"]
OF_MG = [("mg", w, block_k) for w in (V32, V4) for block_k in (32, 64)]


@pytest.fixture(scope="module")
def found():
    return accounts(ROWS)


@pytest.mark.parametrize("name, w, block_k", [
    ("swapab", V32, 64), ("heads_on_warps", V32, 64), *OF_MG
], ids=str)  # fmt: skip
def test_a_partition_is_that_of_the_kernel(name, w, block_k):
    kernels = {"swapab": lambda x: swapab.ORIENTATION, "mg": lambda x: mg._orientation(x, block_k),
               "heads_on_warps": lambda x: heads_on_warps.ORIENTATION}  # fmt: skip
    x = OP.make_inputs(replace(w, tokens=1, rows=4, topk=1), "cpu")
    kernel, mine = kernels[name](x), partition(name, block_k, w.layout)
    of_heads = 1 if kernel.swapped else 0  # the dimension of products along which heads lie
    (scores_rows, sums_columns) = (layout.warps_per_cta[1 - of_heads]
                                   for layout in (kernel.scores, kernel.sums))  # fmt: skip
    assert mine.warps == kernel.warps and bool(mine.handed_to) == kernel.handed
    # a row is read by the warps that do not stand along the rows, and so on
    assert mine.keys_read == kernel.warps // scores_rows
    assert mine.values_read == kernel.warps // sums_columns
    assert mine.queries_read == scores_rows
    if kernel.handed:
        assert mine.handed_to == sums_columns


def test_codes_are_widened_as_often_as_the_compiled_loop_does_it(found):
    """One HADD2 of a lane makes a number of a code."""
    loops = {(r["variant"], r["arch"], r["workload"]["heads"]): r for r in ROWS if r.get("warps")}
    checked = [a for a in found if not a.variant.endswith("_fp8")]
    assert len(checked) == 12
    for a in checked:
        row = loops[a.variant, a.arch, a.heads]
        made = row["hot_loop"]["HADD2"] * row["warps"] * LANES
        assert made == a.widened * 512 * row["config"]["block_k"], a


def test_sums_and_weights_by_hand(found):
    of = {(a.variant, a.arch, a.heads): a for a in found}
    swapped, across = of["swapab_fp8", "sm_120", 64], of["mg_fp8", "sm_120", 64]
    assert [of[name, "sm_90", 64].sums for name in ("swapab", "mg", "heads_on_warps")] == [
        128, 128, HEADS // 4 * 512 // 32]  # fmt: skip
    # 64 heads, 4 groups of scales, 2 passes of a byte: written once, read by each of 8 warps
    assert across.handed_bytes == 64 * 4 * 2 * 9 and swapped.handed_bytes == 0
    # eight warps read a row as keys and as values; of queries the rotary part alone, once a tile
    assert swapped.shared_bytes == 8 * (512 + 128) + 8 * 512 + 64 * 128 // 64
    assert swapped.barriers == 2 and across.barriers == 20


def test_the_sign_turns_with_the_products_that_warps_have(found):
    ratio = {arch: a.instructions / b.instructions for arch, (a, b) in pairs(found).items()}
    assert ratio.keys() == {"sm_90", "sm_100", "sm_120"}
    assert ratio["sm_90"] < 0.5 and ratio["sm_100"] < 0.5 and ratio["sm_120"] > 1.2
    assert pairs(found, 128).keys() == ratio.keys() and not pairs(found, 32)
    assert {a.arch for a in found if a.native and a.variant.endswith("_fp8")} == {"sm_120"}


def test_sentences_follow_the_numbers(found):
    said = told(found, {"sm_90": ("a card", [0.6, 0.7]), "sm_120": ("another", [0.9])})
    assert 3 <= len(said) <= 6
    assert any("a card: 0.60 to 0.70, of the same sign" in s for s in said)
    assert any("another: 0.90, not of one sign" in s for s in said)
    (of_90,) = (s for s in said if s.startswith("sm_90"))
    assert "16 times, mg 2 times" in of_90 and "224 warp instructions a row (mg) and 739" in of_90
    halved = [replace(a, instructions=a.instructions / 2) for a in found]
    assert told(halved, {}) != told(found, {}) and "112 warp instructions" in told(halved, {})[1]
    alone = [a for a in found if a.variant == "swapab"]
    assert told(alone, {}) == [], "one of the two says nothing of the other"


def test_rows_of_heads_that_are_computed():
    rows = {r["variant"]: r for r in head_rows([8, 16, 64, 80])}
    assert rows["heads_on_m_wgmma"]["H=8"] == 8 and rows["heads_on_m_wgmma"]["H=80"] == 128 / 80
    assert rows["swapped_wgmma"] == {"variant": "swapped_wgmma", "H=8": 2.0, "H=16": 1.0}
    assert rows["swapab"]["H=64"] == 1.0 and "eager" not in rows


def test_another_orientation_is_refused_and_other_kernels_are_left_out():
    with pytest.raises(ValueError, match="'up' is none of swapab, mg, heads_on_warps"):
        partition("up")
    assert accounts([r for r in ROWS if r["variant"] == "dequant_dot"]) == []
