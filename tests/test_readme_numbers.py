"""The README is true: its numbers are medians of committed records."""

import functools
import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from workbench import claims, comparison, evidence, record
from workbench.figures.decode import flashmla
from workbench.models import orientation
from workbench.ops import OPS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
RECORDS = sorted((ROOT / "traces/records").glob("*/*.jsonl"))
H8 = {"heads": 8, "tokens": 8192, "churn": 0.10}
H16 = H8 | {"heads": 16, "churn": 0.25}
POOL = {"pages": 16384, "batch": 8}
MANY = POOL | {"batch": 64}
STEP = {"pages": 1024, "batch": 8}
COLD = {"clock": "graph_cold"}
PLAN8 = COLD | {"tokens": 8192, "group": 8, "rows": 8192}
NO_CONTEXT = {"tokens": 2048, "rows": None, "context": 0}
FP8 = COLD | {"heads": 64, "tokens": 4096}
DECODE = {"clock": "graph_rotating", "heads": 16, "tokens": 1, "topk": 2048}
OWN_RULE, IN_MMA = (f"split_k_{name} chunks_per_block=0" for name in ("registers", "mma"))
NUMBERS = [  # (as it is written, op, arm, workload): medians over blocks, in microseconds
    ("1,225 µs", "page_split", "full", POOL),
    ("27.9 µs", "page_split", "masked", POOL),
    ("3.5 µs", "page_split", "claimed", POOL),
    ("7.1 µs", "page_split", "claimed", POOL | {"clock": "graph_cold"}),
    ("32.5 µs", "page_split", "masked", MANY),
    ("10.0 µs", "page_split", "stamped", MANY),
    ("11.1 µs", "page_split", "listed", MANY),
    ("4,191 µs", "decode_split_step", "full", STEP),
    ("1,600 µs", "decode_split_step", "masked", STEP),
    ("1,170 µs", "decode_split_step", "listed", STEP),
    ("1,075 µs", "decode_split_step", "fitted", STEP),
    ("252 µs", "decode_split_step", "direct", STEP),
    ("1.8 µs", "paged_read", "direct", POOL),
    ("5.2 µs", "paged_read", "split_then_read", POOL),
    ("1.3 µs", "page_split_step", "dirty_rows", STEP | {"written": 1}),
    ("2,163 µs", "sparse_prefill", "union group=4", H8),
    ("3,027 µs", "sparse_prefill", "per_token", H8),
    ("2,900 µs", "sparse_prefill", "union group=2", H16 | {"churn": 0.02}),
    ("3,014 µs", "sparse_prefill", "per_token", H16 | {"churn": 0.02}),
    ("3,322 µs", "sparse_prefill", "union group=2", H16),
    ("3,009 µs", "sparse_prefill", "per_token", H16),
    ("720 µs", "sparse_prefill", "overlapped group=8", H8 | COLD),
    ("3,041 µs", "sparse_prefill", "per_token", H8 | COLD),
    ("2,172 µs", "sparse_prefill", "union group=4", H8 | COLD),
    ("290 µs", "sparse_prefill", "overlapped group=8", H8 | COLD | {"tokens": 4096}),
    ("108 µs", "sparse_prefill", "overlapped group=8", H8 | COLD | NO_CONTEXT),
    ("1,174 µs", "sparse_prefill", "overlapped group=4", H8 | COLD | {"heads": 16}),
    ("2,088 µs", "sparse_prefill", "overlapped group=2", H8 | COLD | {"heads": 32}),
    ("1,670 µs", "sparse_prefill", "alone", H8 | COLD | {"heads": 64, "tokens": 4096}),
    ("49.7 µs", "union_plan", "shared_map", PLAN8),
    ("758 µs", "union_plan", "sort_search", PLAN8),
    ("300 µs", "union_plan", "shared_map", PLAN8 | {"rows": 131072}),
    ("978 µs", "union_plan", "sort_search", PLAN8 | {"rows": 131072}),
    ("2,115 µs", "union_plan", "shared_map", PLAN8 | {"rows": 1048576}),
    ("1,655 µs", "fp8_prefill", "dequant_then_alone", FP8),
    ("2,518 µs", "fp8_prefill", "heads_on_m_wgmma", FP8),
    ("3,248 µs", "fp8_prefill", "dequant_then_alone", FP8 | {"heads": 128}),
    ("4,971 µs", "fp8_prefill", "heads_on_m_wgmma", FP8 | {"heads": 128}),
    ("6,763 µs", "fp8_prefill", "mg", FP8),
    ("9,768 µs", "fp8_prefill", "swapab", FP8),
    *((f"{us} µs", "sparse_decode", OWN_RULE, DECODE | {"heads": heads, "tokens": tokens})
      for heads, times in ((16, ("9.2", "23.9", "37.3", "57.0")),
                           (64, ("11.8", "38.1", "56.6", "112")),
                           (128, ("17.5", "55.5", "110", "218")))
      for tokens, us in zip((1, 32, 64, 128), times, strict=True)),
    ("84.8 µs", "sparse_decode", IN_MMA, DECODE | {"tokens": 128}),
    ("98.4 µs", "sparse_decode", "split_k_swapped_wgmma", DECODE | {"tokens": 128}),
    ("85.3 µs", "sparse_decode", "prefill_swapped", DECODE),
    ("579 µs", "union_plan", "sort_search", {"tokens": 8192, "group": 4}),
]


@functools.cache
def pooled_records():
    return evidence.pooled(evidence.load(*RECORDS))


@pytest.mark.parametrize(("text", "op", "arm", "workload"), NUMBERS, ids=lambda x: str(x))
def test_a_number_of_the_readme_is_the_median_of_a_record(text, op, arm, workload):
    clock = workload.get("clock", "graph_hot")
    table = pooled_records()
    table = table[(table["op"] == op) & (table["arm"] == arm) & (table["clock"] == clock)]
    for name in workload.keys() - {"clock"}:
        column, value = table[f"workload.{name}"], workload[name]
        table = table[column.isna() if value is None else column == value]
    (median_us,) = table["median_us"]
    assert text in README and text == f"{median_us:,.{0 if median_us >= 100 else 1}f} µs"


def test_every_time_in_the_readme_is_checked():
    assert set(re.findall(r"[\d,.]+ µs", README)) == {text for text, *_ in NUMBERS}


def test_shares_and_sizes_of_fp8_stand_in_the_records():
    table = pooled_records()
    fp8 = table[(table["op"] == "fp8_prefill") & (table["workload.heads"] == 128)
                & (table["workload.tokens"] == 4096)].set_index("arm")["roofline_share"]
    shares = [fp8[arm] for arm in ("dequant_then_alone", "heads_on_m_wgmma")]
    assert "{:.0%} and {:.0%} of what".format(*shares).replace("%", " %") in README
    one = table[(table["op"] == "sparse_decode") & (table["arm"] == OWN_RULE)
                & (table["workload.tokens"] == 1) & (table["workload.topk"] == 2048)
                & (table["workload.heads"] == 16)]
    assert "touch 1.8 times the L2" in " ".join(one["flags"].iloc[0]).replace("all sets ", "")
    assert "its sets touch 1.8 times the L2" in README
    hot = table[(table["op"] == "sparse_decode") & (table["arm"] == OWN_RULE)
                & table["flags"].map(lambda flags: any("power cap" in f for f in flags))]
    assert sorted(hot["workload.heads"]) == [64, 128] and set(hot["workload.tokens"]) == {128}
    assert "112 µs and\n218 µs were taken under the card's power cap" in README


def decode_times() -> pd.DataFrame:
    """Medians of decode steps as the README has them: rows are heads and tokens, columns arms."""
    table = pooled_records().query("op == 'sparse_decode' and clock == 'graph_rotating'")
    table = table[table["workload.topk"] == 2048]
    places = ["workload.heads", "workload.tokens"]
    return table.pivot(index=places, columns="arm", values="median_us")


def test_decode_beside_flashmla_is_as_the_readme_has_it():
    ours = decode_times()[OWN_RULE]
    theirs = flashmla("NVIDIA H200").set_index(["heads", "requests"])["us"]
    for heads, padded in ((16, 64), (64, 64), (128, 128)):
        over = (ours[heads] / theirs[padded]).dropna()
        shown = [ours[heads][tokens] for tokens in (1, 32, 64, 128)]
        shown = " | ".join(f"{us:.{0 if us >= 100 else 1}f} µs" for us in shown)
        said = f"| {heads} | {shown} | {over.min():.2f}x to {over.max():.2f}x: "
        assert len(over) == 7 and said in README, said


def test_no_prefill_kernel_overtakes_decode_as_the_readme_has_it():
    times = decode_times().dropna(subset=OWN_RULE)
    prefill = times.filter(like="prefill").min(axis=1).dropna()
    assert len(prefill) == 3 * 11 and (prefill > times.loc[prefill.index, OWN_RULE]).all()
    assert "none is faster at any of eleven token counts up to 128" in " ".join(README.split())


def test_the_readmes_other_figures_stand_in_the_records():
    table = pooled_records()
    table = table[(table["op"] == "page_split") & (table["clock"] == "graph_hot")]
    table = table[table["workload.pages"] == 16384]
    few, many = (table[table["workload.batch"] == batch] for batch in (8, 64))
    assert "touches 12 of 16,384" in README and "of 64 touches 101\npages" in README
    assert set(few["statistics.touched_pages"]) == {12}
    assert set(many["statistics.touched_pages"]) == {101}
    assert "at 4.0 TB/s" in README
    (rate,) = few[few["arm"] == "full"]["gb_per_s"]
    assert f"{rate / 1000:.1f}" == "4.0"
    step = pooled_records()
    step = step[(step["op"] == "decode_split_step") & (step["place"] == "")].iloc[0]
    assert (step["statistics.touched_pages"], step["statistics.extra_touched_pages"]) == (10, 256)
    assert "10 pages of the window's and 256 of an extra one" in README


def test_the_cost_of_the_best_split_follows_the_work_and_not_the_pool():
    table = pooled_records()
    table = table[(table["op"] == "page_split") & (table["workload.touch"] == "window")]
    us = table[table["clock"] == "graph_hot"].set_index(
        ["arm", "workload.pages", "workload.batch"]
    )["median_us"]  # fmt: skip
    assert us["claimed", 16384, 8] <= 7 and us["stamped", 16384, 64] <= 12
    assert us["claimed", 16384, 8] <= 1.3 * us["claimed", 1024, 8]
    full = table[(table["arm"] == "full") & (table["clock"] == "graph_hot")]
    ceiling = evidence.shipped_ceilings("NVIDIA H200").copy_gb_per_s
    assert full[full["workload.pages"] == 16384]["gb_per_s"].min() >= 0.95 * ceiling


def test_the_readmes_crossings_are_those_of_the_claims():
    (union,) = result("union_along_tokens")["crossings"]
    assert union["between"] == [528, 529] and union["faster_beyond"] == "union group=4"
    assert "faster from\n529 query tokens on and not yet at 528" in README
    (masked,) = result("masked_along_share")["crossings"]
    assert masked["between"] == [0.95, 1.0] and masked["faster_beyond"] == "full"
    assert "while 95 % of them are touched and slower when all are" in README


def test_far_points_would_have_put_the_crossing_where_the_readme_says():
    claim = claims.read_claim(ROOT / "claims/union_along_tokens.yaml")
    op = OPS[claim.op]
    rows = record.rows(ROOT / "traces/records/nvidia_h200/claims/union_along_tokens.jsonl")
    far = [r for r in rows if r["workload"]["tokens"] not in (500, 528, 529, 560, 600)]
    (crossing,) = claims.line_of(claim, op, far).found.crossings
    assert crossing.between == (512, 640) and "put the crossing at 633" in README
    assert f"{crossing.at:.0f}" == "633"


def result(name: str) -> dict:
    return claims.read_result(ROOT / f"claims/{name}.nvidia_h200.json")


def test_the_readmes_ceilings_and_shares_are_those_of_the_records():
    c = evidence.shipped_ceilings("NVIDIA H200")
    gather = c.gather_l2_gb_per_s, c.gather_memory_gb_per_s
    for rate in (c.copy_gb_per_s, gather[0][1152], gather[1][1152], c.shared_gb_per_s):
        assert f"{rate:,.0f} GB/s" in README
    assert f"{c.bf16_tflop_per_s:,.0f} TFLOP/s" in README
    rows = evidence.load(ROOT / "traces/records/nvidia_h200/claims/union_along_tokens.jsonl")
    rows = evidence.pooled(rows[rows["workload.tokens"] == 8192]).set_index("variant")
    for variant in ("per_token", "union"):
        assert f"{rows.loc[variant, 'roofline_share']:.0%}".replace("%", " %") in README
    assert set(rows["roofline_limit"]) == {"l2_gather"}


def test_the_readmes_noise_is_that_of_its_a_a_pairs():
    rows = evidence.load(ROOT / "traces/records/nvidia_h200/noise/aa_50us.jsonl")
    noises = comparison.noises(rows)
    found = {(case[3], case[1]): f"{math.expm1(noise):.1%}" for case, noise in noises.items()}
    assert found == {
        ("sparse_prefill", "graph_cold"): "0.5%", ("sparse_prefill", "graph_hot"): "0.4%",
        ("device_copy", "graph_cold"): "1.7%", ("device_copy", "graph_hot"): "1.3%",
    }  # fmt: skip
    said = " ".join(README.split())
    assert "of a gather agrees within 0.5 % cold and 0.4 % hot" in said
    assert "one of a copy within 1.7 % and 1.3 %" in said


def test_what_the_readme_says_of_the_union_past_its_crossing():
    found = [c for c in result("union_along_tokens")["cases"] if c["place"].startswith("tokens=")]
    cases = {int(c["place"].split()[0].removeprefix("tokens=")): c for c in found}
    near = [c["ratio"] for t, c in cases.items() if 529 <= t <= 768]
    far = [c["ratio"] for t, c in cases.items() if t >= 1024]
    assert min(near) > 0.98 and max(near) < 1.0
    assert all(0.72 < r < 0.76 for r in far)
    assert "level or up to 2 % ahead" in " ".join(README.split())


def test_what_the_readme_says_of_the_orientations_is_what_was_compiled():
    rows = json.loads((ROOT / "traces/compiled/fp8_prefill.json").read_text())
    of = {(a.variant, a.arch): a for a in orientation.accounts(rows) if a.heads == 64}
    new, old = [[of[f"{name}{suffix}", arch] for name in ("swapab", "mg")]
                for suffix, arch in (("_fp8", "sm_120"), ("", "sm_90"))]  # fmt: skip
    said = " ".join(README.split())
    for told in (
        "`swapab_fp8` issues {:.0f} warp instructions a cache row and waits at {:g} barriers "
        "for 64 rows, `mg_fp8` {:.0f} and {:g}.".format(
            *(n for a in new for n in (a.instructions, a.barriers))),
        "`swapab` makes each code one {} times, `mg` {} times:".format(*(a.widened for a in old)),
        "{:.0f} warp instructions a row against {:.0f}.".format(*(a.instructions for a in old)),
    ):  # fmt: skip
        assert told in said
