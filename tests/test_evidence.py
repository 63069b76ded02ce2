"""What only shows when records are read together: places, ceilings, warm caches, drift, blocks."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from test_records import ENVIRONMENT, as_schema, made

from workbench import record
from workbench.evidence import (
    ceilings_of,
    derived,
    load,
    newest,
    pooled,
    shipped_ceilings,
    told_apart,
)
from workbench.models.ceilings import Ceilings
from workbench.models.ratio import noise
from workbench.models.roofline import floor
from workbench.op import Verdict

L2 = 50_000_000
GPU = replace(ENVIRONMENT, device="a GPU", l2_bytes=L2, source="old")
COPY_GB_PER_S = 4000.0
STEADY = [100.0] * 20


def table(*measurements):
    return derived(record.table([record.as_row(m) for m in measurements]))


def gpu(us: float = 100.0, **changes):
    """A record of a GPU with steady samples of `us`."""
    fixed = {"environment": GPU, "samples_us": [us] * 20, "clock": "graph_cold", "cache": "cold"}
    return made(**fixed | changes)


def copied(rate: float = COPY_GB_PER_S):
    """The record of a copy that moves `rate` GB/s."""
    cost = {"bytes": 400_000_000, "flops": 0}
    us = cost["bytes"] / rate / 1e3
    return gpu(us, op="device_copy", variant="torch_copy", config={}, config_asked={}, workload={},
               cost=cost, ledger={})  # fmt: skip


def kinds(flags: list[str]) -> list[str]:
    return [flag.partition(":")[0] for flag in flags]


# --- place

@pytest.mark.parametrize("workload, place", [
    ({}, ""), ({"tokens": 2048, "churn": 0.1}, ""), ({"tokens": 64}, "tokens=64"),
    ({"churn": 0.25, "tokens": 64}, "tokens=64 churn=0.25"), ({"rows": None}, ""),
    ({"rows": 160}, "rows=160"), ({"law": "uniform", "wild": True}, "law=uniform wild=True"),
    ({"heads": 8.0, "seed": 3}, "seed=3"),
])  # fmt: skip
def test_a_place_is_what_is_not_the_ops_default(workload, place):
    (found,) = table(made(workload=workload))["place"]
    assert found == place


def test_places_of_a_table_keep_whole_numbers_whole():
    """A field that some records lack is a column of floats."""
    rows = [{"tokens": 64, "rows": 4096}, {"tokens": 64}, {"tokens": 64, "churn": 0.02}]
    found = table(*(made(workload=w) for w in rows))["place"]
    assert list(found) == ["tokens=64 rows=4096", "tokens=64", "tokens=64 churn=0.02"]


def test_a_record_from_before_a_field_agrees_with_one_that_holds_its_default(tmp_path):
    path = tmp_path / "records.jsonl"
    new = made(workload={"tokens": 64, "context": 0, "seed": 0})
    old = as_schema(1, record.as_row(made(workload={"tokens": 64})))
    path.write_text("".join(json.dumps(row) + "\n" for row in (old, record.as_row(new))))
    found = load(path)
    assert list(found["place"]) == ["tokens=64"] * 2 and list(found["block"]) == [0, 0]
    assert len(pooled(found)) == 1


def test_an_op_that_is_not_known_has_every_field_in_its_place():
    (found,) = table(made(op="of a module", workload={"size": 5, "kind": "x"}))["place"]
    assert found == "size=5 kind=x"


def test_two_ops_do_not_share_their_defaults():
    found = table(made(workload={"tokens": 64}), made(op="page_split", workload={"pages": 1024}),
                  made(op="page_split", workload={"pages": 64}))  # fmt: skip
    assert list(found["place"]) == ["tokens=64", "", "pages=64"]


# --- working set

@pytest.mark.parametrize("reuse_bytes, ratio", [(None, 0.5), (3 * L2, 3.0)])
def test_every_row_says_its_distinct_bytes_over_the_l2(reuse_bytes, ratio):
    cost = {"bytes": L2 // 2, "flops": 0}
    found = table(gpu(cost=cost, reuse_bytes=reuse_bytes, cache="hot")).iloc[0]
    assert found["l2_ratio"] == pytest.approx(ratio) and found["resident"] == (ratio < 1)


@pytest.mark.parametrize("turned, flagged", [(1.9, True), (2.0, False)])
def test_sets_that_do_not_turn_the_l2_over_are_flagged(turned, flagged):
    few = gpu(cache="rotating", index_sets=128, reuse_bytes=round(turned * L2))
    assert kinds(table(few)["flags"][0]) == ["warm when rotating"] * flagged


def test_an_unknown_l2_or_cost_has_no_ratio():
    blind = gpu(environment=replace(GPU, l2_bytes=0)), gpu(cost=None)
    assert table(*blind)["l2_ratio"].isna().all()


# --- ceilings

@pytest.mark.parametrize("cache, times, flagged", [
    ("cold", 1.06, True), ("cold", 1.04, False), ("hot", 2.0, False), ("rotating", 2.0, False),
])  # fmt: skip
def test_a_cold_time_that_no_memory_allows_is_flagged(cache, times, flagged):
    cost = {"bytes": 40_000_000, "flops": 0}
    us = cost["bytes"] / (times * COPY_GB_PER_S) / 1e3
    found = table(copied(), gpu(us, cache=cache, cost=cost, reuse_bytes=9 * L2))
    assert list(found["copy_share"]) == pytest.approx([1.0, times])
    assert kinds(found["flags"][1]) == ["warm when cold"] * flagged and found["flags"][0] == []
    if flagged:
        assert "4,240 GB/s" in found["flags"][1][0] and "4,000" in found["flags"][1][0]


def test_a_flag_that_a_record_carries_stays_before_what_shows_on_reading():
    found = table(copied(), gpu(1.0, flags=["busy: 1 other processes on the GPU"],
                                cost={"bytes": 10**9, "flops": 0}))  # fmt: skip
    assert kinds(found["flags"][1]) == ["busy", "warm when cold"]


def test_a_ceiling_of_another_device_says_nothing():
    fast = gpu(1.0, cost={"bytes": 10**9, "flops": 0}, environment=replace(GPU, device="other"))
    found = table(copied(), fast)
    assert found["flags"][1] == [] and np.isnan(found["copy_share"][1])


def test_the_roofline_columns_are_those_of_ledger_or_cost_at_the_ceilings():
    counted = {"least_bytes": 4_000_000, "gathered_bytes": 0, "tokens": 8}
    bare = {"bytes": 8_000_000, "flops": 10}
    found = table(copied(), gpu(2.0, ledger=counted), gpu(8.0, ledger=None, cost=bare, op="mine"),
                  gpu(8.0, ledger=None, cost=None))  # fmt: skip
    ceilings = Ceilings("a GPU", copy_gb_per_s=COPY_GB_PER_S)
    assert found["roofline_us"][1] == pytest.approx(floor(counted, ceilings).us)
    assert list(found["roofline_us"])[1:3] == pytest.approx([1.0, 2.0])
    assert list(found["roofline_share"])[1:3] == pytest.approx([0.5, 0.25])
    assert list(found["roofline_limit"])[1:] == ["memory", "memory", ""]
    assert found[["roofline_us", "roofline_share"]].isna().iloc[3].all()


def test_a_ledger_counts_before_the_cost_of_the_question():
    found = table(copied(), gpu(ledger={"least_bytes": 4_000_000},
                                cost={"bytes": 400, "flops": 1}))  # fmt: skip
    assert found["roofline_us"][1] == pytest.approx(1.0)


def test_without_a_ceiling_of_the_device_nothing_is_derived_from_one():
    found = table(gpu(1.0))
    assert found[["copy_share", "roofline_us", "roofline_share"]].isna().all(axis=None)
    assert list(found["roofline_limit"]) == [""] and found["flags"][0] == []


def test_the_ceilings_of_a_table_come_before_those_that_are_shipped():
    shipped = shipped_ceilings("NVIDIA H200")
    assert shipped.copy_gb_per_s > 1000 and shipped_ceilings("a GPU") == Ceilings("a GPU")
    h200 = replace(GPU, device="NVIDIA H200")
    other = replace(copied(123.0), environment=h200)
    assert ceilings_of(table(gpu(environment=h200)), "NVIDIA H200") == shipped
    assert ceilings_of(table(other), "NVIDIA H200").copy_gb_per_s == pytest.approx(123.0)


# --- unstable

def halves(late: float) -> list[float]:
    return [100.0] * 20 + [late] * 20


@pytest.mark.parametrize("late, said", [
    (101.9, []), (102.1, ["unstable: the second half of the samples is +2.1% off"]), (98.1, []),
    (97.9, ["unstable: the second half of the samples is -2.1% off"]),
])  # fmt: skip
def test_a_drift_of_two_percent_is_flagged(late, said):
    assert table(made(samples_us=halves(late)))["flags"][0] == said


@pytest.mark.parametrize("width, flagged", [(0.09, False), (0.12, True)])
def test_a_standard_deviation_of_a_tenth_is_flagged(width, flagged):
    samples = (100 * (1 + width * np.random.default_rng(4).standard_normal(400))).tolist()
    said = table(made(samples_us=samples))["flags"][0]
    assert kinds(said) == ["unstable"] * flagged
    assert not flagged or said[0] == "unstable: a standard deviation of 12% of the median"


def test_three_samples_tell_no_drift_and_a_failure_nothing():
    failed = made(verdict=Verdict("timeout"), samples_us=[], study="another")
    found = table(made(samples_us=[1.0, 1.0, 1.05]), failed)
    assert list(found["flags"]) == [[], []]


def test_the_times_of_an_arm_that_failed_in_a_later_block_are_flagged():
    same = {"study": "s", "samples_us": [1.0, 1.0]}
    failed = {"study": "s", "block": 1, "verdict": Verdict("incorrect"), "samples_us": []}
    found = table(made(**same), made(**failed), made(**same, clock="events"))
    assert [kinds(f) for f in found["flags"]] == [["failed"], [], []]


def test_derived_columns_stand_on_their_own_row():
    """Whatever index the rows came with, and whatever was there before."""
    rows = record.table([record.as_row(m) for m in (copied(), gpu(1.0), made(workload={}))])
    whole = derived(rows)
    part = derived(rows[::-1])
    for name in ("place", "l2_ratio", "roofline_us", "roofline_limit", "flags"):
        one, other = whole[name].to_list(), part[name].sort_index().to_list()
        assert json.dumps(one) == json.dumps(other), name
    assert "place" not in rows, "the table that was given is changed"


# --- blocks as one

def block(number: int, us: float, source="old", at="2026-01-01T00:00:00+00:00", **changes):
    return gpu(us, block=number, at=at, environment=replace(GPU, source=source), **changes)


LATER = "2026-01-02T00:00:00+00:00"


def test_blocks_are_one_row_with_the_median_of_their_medians():
    found = pooled(table(block(0, 10.0), block(1, 14.0, flags=["busy: 1"]), block(2, 11.0),
                         block(0, 99.0, variant="per_token")))  # fmt: skip
    assert found[["arm", "median_us", "low_us", "blocks"]].values.tolist() == [
        ["union", 11.0, 11.0, 3], ["per_token", 99.0, 99.0, 1],
    ]  # fmt: skip
    assert list(found["flags"]) == [["busy: 1"], []]


def test_the_noise_of_a_row_is_that_of_all_its_blocks():
    pairs = [(10.0, 10.1), (20.0, 19.9), (15.0, 15.0)]  # far apart, each near its twin
    rows = [block(i, us, twin_us=[twin] * 5) for i, (us, twin) in enumerate(pairs)]
    (found,) = pooled(table(*rows)).to_dict("records")
    assert found["noise"] == noise(*zip(*pairs, strict=True))
    (bare,) = pooled(table(block(0, 10.0, twin_us=[]))).to_dict("records")
    assert math.isnan(bare["noise"])


def test_another_source_is_not_pooled_and_a_second_study_of_one_adds_its_blocks():
    rows = [block(i, 10.0 + i) for i in range(3)]
    rows += [block(i, 20.0 + i, "new", LATER, study=study) for study in "ab" for i in range(2)]
    (found,) = pooled(table(*rows)).to_dict("records")
    assert (found["blocks"], found["median_us"]) == (4, 20.5)
    assert found["environment.source"] == "new"


def test_the_newest_is_by_time_and_not_by_place_in_the_file():
    found = newest(table(block(0, 20.0, "new", LATER), block(0, 10.0)))
    assert list(found["median_us"]) == [20.0]


@pytest.mark.parametrize("name", ["torch", "triton", "driver"])
def test_blocks_of_two_toolchains_are_not_pooled(name):
    other = block(1, 20.0, at=LATER)
    other = replace(other, environment=replace(other.environment, **{name: "next"}))
    (found,) = pooled(table(block(0, 10.0), other)).to_dict("records")
    assert (found["blocks"], found["median_us"]) == (1, 20.0)


def test_each_case_and_arm_has_its_own_newest():
    found = newest(table(block(0, 1.0), block(0, 2.0, "new", LATER, variant="per_token"),
                         block(0, 3.0, workload={"tokens": 64}),
                         block(0, 4.0, "new", LATER, workload={"tokens": 64})))  # fmt: skip
    assert list(found["median_us"]) == [1.0, 2.0, 4.0]


def test_a_failed_block_is_counted_out():
    failed = block(1, 1.0, verdict=Verdict("timeout", why="killed"), samples_us=[])
    (found,) = pooled(table(block(0, 10.0), failed, block(2, 12.0))).to_dict("records")
    assert (found["blocks"], found["median_us"]) == (2, 11.0)


def test_clocks_and_caches_and_devices_are_rows_of_their_own():
    other = replace(GPU, device="another GPU")
    rows = (gpu(1.0), gpu(2.0, clock="graph_hot", cache="hot"), gpu(3.0, environment=other))
    assert len(pooled(table(*rows))) == 3


def test_nothing_pools_to_nothing():
    assert len(pooled(table(gpu())[:0])) == 0


# --- what is told of each row

def test_what_varies_is_told_of_every_place_and_what_is_shared_once():
    places = ["tokens=64 context=8192", "context=8192", "tokens=4096 context=8192"]
    shared, own = told_apart(places, "sparse_prefill")
    assert shared == "context=8192" and own == ["tokens=64", "tokens=2048", "tokens=4096"]
    assert told_apart(["tokens=64"], "sparse_prefill") == ("tokens=64", [""])
    assert told_apart(["a=1 b=2", "a=1 b=3"], "of a user") == ("a=1", ["b=2", "b=3"])


# --- limits

def test_an_fp8_product_is_held_against_its_own_ceiling():
    flops = 10**12
    fast = {"op": "matrix_product", "variant": "torch_matmul", "config": {}, "config_asked": {},
            "cost": {"bytes": 1, "flops": flops}, "ledger": {}}  # fmt: skip
    found = table(
        gpu(1000.0, **fast, workload={"dtype": "bf16"}),
        gpu(500.0, **fast, workload={"dtype": "fp8"}),
    )
    assert list(found["roofline_share"]) == pytest.approx([1.0, 1.0])


def test_what_stays_in_the_l2_is_not_held_against_memory():
    small = {"cost": {"bytes": L2 // 2, "flops": 0}, "op": "device_copy", "ledger": {}}
    found = table(copied(), gpu(1.0, cache="hot", **small), gpu(1.0, cache="cold", **small))
    assert list(found["roofline_limit"][1:]) == ["", "memory"]


def test_an_op_that_has_a_ledger_has_no_floor_without_one():
    question = {"cost": {"bytes": 400_000_000, "flops": 0}}
    found = table(copied(), gpu(ledger=None, **question))
    assert found["roofline_us"].isna().tolist() == [False, True]


def test_a_failed_study_before_a_good_one_does_not_stand_for_it():
    failed = gpu(study="a", verdict=Verdict("timeout"), samples_us=[], at="2026-01-01T00:00:00")
    good = gpu(5.0, study="b", at="2026-01-02T00:00:00")
    (row,) = pooled(table(failed, good)).to_dict("records")
    assert (row["verdict.status"], row["median_us"], row["samples"]) == ("passed", 5.0, 20)
