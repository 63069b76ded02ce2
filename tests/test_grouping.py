"""The best group of a place, measured and by the model, from planted records."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from test_records import ENVIRONMENT, made

from workbench import record
from workbench.evidence import derived, newest
from workbench.figures.axes import cache_rows
from workbench.models.ceilings import Ceilings
from workbench.models.grouping import best_group, group_of, placed
from workbench.ops import OPS

OP = OPS["sparse_prefill"]
GPU = replace(ENVIRONMENT, device="a GPU", source="old")
DATES = {"old": "2026-01-01T00:00:00+00:00", "new": "2026-01-02T00:00:00+00:00"}


def one(arm: str, us: float, block: int = 0, gathered: int | None = None, source: str = "old",
        twin: float | None = None, workload=None, **changes):  # fmt: skip
    """A record of `arm` (such as "union 2") that takes `us` and gathers so many bytes."""
    variant, _, group = arm.partition(" ")
    config = {"group": int(group)} if group else {}
    fixed = {
        "variant": variant, "config": config, "config_asked": config, "samples_us": [us] * 4,
        "twin_us": [twin] * 4 if twin else [], "block": block, "at": DATES[source],
        "workload": {"tokens": 2048, "heads": 8, "churn": 0.1, "seed": 0} | (workload or {}),
        "statistics": None,
        "ledger": {"gathered_bytes": gathered, "row_bytes": 1152} if gathered else None,
        "environment": replace(GPU, source=source), "clock": "graph_cold", "cache": "cold",
    }  # fmt: skip
    return made(**fixed | changes)


def table(*measurements) -> pd.DataFrame:
    return derived(record.table([record.as_row(m) for m in measurements]))


@pytest.fixture(autouse=True)
def known_rates(monkeypatch):
    """1 GB/s of a gather: a count of bytes is a floor of as many thousandths of a microsecond."""
    rates = replace(Ceilings("a GPU"), gather_l2_gb_per_s={1152: 1.0})
    monkeypatch.setattr("workbench.evidence.ceilings_of", lambda table, device: rates)


def best(*measurements) -> pd.DataFrame:
    return best_group(newest(placed(table(*measurements))))


def only(*measurements) -> pd.Series:
    found = best(*measurements)
    assert len(found) == 1, found
    return found.iloc[0]


# --- the group of a record

@pytest.mark.parametrize("variant, config, heads, group", [
    ("per_token", {}, 8, 1), ("alone", {}, 8, 1), ("union", {"group": 4}, 8, 4),
    ("swapped", {"group": 2}, 8, 2), ("overlapped", {"group": 4}, 8, 4),
    ("overlapped", {"group": 0}, 8, 8), ("halves", {"group": 0}, 16, 4),
    ("specialised", {"group": 0}, 32, 2), ("full_tile", {"group": 0}, 1, 16),
    ("overlapped", {}, 64, 1), ("eager", {}, 8, None), ("a stranger's", {"group": 2}, 8, None),
])  # fmt: skip
def test_the_group_of_a_record_is_that_of_its_variants_tile(variant, config, heads, group):
    assert group_of(variant, config, OP.Workload(heads=heads)) == group


def test_what_has_no_group_or_no_time_is_left_out():
    found = placed(table(one("eager", 90.0), one("union 2", 100.0), one("union 4", 1.0, op="none"),
                         one("per_token", 0, samples_us=[])))  # fmt: skip
    assert list(found["variant"]) == ["union"] and list(found["group"]) == [2]


# --- places

@pytest.mark.parametrize("one_way, other", [
    ({"rows": 10240}, {"context": 8192}), ({"law": "walk"}, {"law": "walk:churn=0.1"}),
    ({"law": "uniform"}, {"law": "uniform", "churn": 0.3}), ({"rows": None}, {"rows": 2048}),
    ({"requests": 4, "context": 512}, {"requests": 4, "rows": 4096}),
])  # fmt: skip
def test_one_question_in_two_spellings_is_one_place(one_way, other):
    row = only(one("per_token", 100.0, workload=one_way), one("union 2", 50.0, workload=other))
    assert row["group"] == 2 and row["gain"] == pytest.approx(2.0)


def test_a_place_says_its_shape():
    many = {"requests": 4, "context": 512, "churn": 0.25, "heads": 16}
    row = only(one("per_token", 100.0, workload=many), one("union 2", 50.0, workload=many))
    assert list(row[["heads", "tokens", "topk", "context", "law", "churn"]]) == [
        16, 2048, 2048, 2048, "walk", 0.25]  # fmt: skip
    assert row["place"] == "heads=16 context=512 churn=0.25 requests=4"
    other = {"law": "boundary:core=0.9"}
    row = only(one("per_token", 100.0, workload=other), one("union 2", 50.0, workload=other))
    assert row["law"] == "boundary:core=0.9" and math.isnan(row["churn"])


@pytest.mark.parametrize("apart", [{"seed": 1}, {"churn": 0.2}, {"heads": 16}, {"sink": "random"},
                                   {"context": 64}])  # fmt: skip
def test_other_places_are_not_compared(apart):
    assert not len(best(one("per_token", 100.0), one("union 2", 50.0, workload=apart)))


def test_other_clocks_are_not_compared():
    assert not len(best(one("per_token", 100.0), one("union 2", 50.0, clock="graph_hot")))


def test_cache_rows_are_those_of_the_workload():
    given = [{"tokens": 100}, {"tokens": 100, "context": 64}, {"tokens": 100, "rows": 700},
             {"tokens": 100, "context": 64, "requests": 5},
             {"tokens": 100, "rows": 700, "requests": 5}]  # fmt: skip
    found = cache_rows(table(*(one("union 2", 1.0, workload=w) for w in given)))
    assert list(found) == [OP.Workload(**w).cache_rows for w in given] == [100, 164, 700, 420, 700]


# --- what was measured

def test_the_best_group_is_that_of_the_fastest_arm():
    row = only(one("per_token", 120.0), one("alone", 100.0), one("union 2", 60.0),
               one("union 4", 55.0), one("swapped 4", 50.0), one("overlapped 0", 80.0))  # fmt: skip
    assert (row["group"], row["arm"]) == (4, "swapped") and row["us"] == pytest.approx(50.0)
    assert (row["next_group"], row["next_arm"]) == (2, "union group=2"), "not of the same group"
    assert row["next_ratio"] == pytest.approx(1.2) and row["gain"] == pytest.approx(2.0)


def test_where_sharing_loses_the_gain_is_below_one():
    row = only(one("per_token", 90.0), one("union 2", 100.0), one("union 4", 120.0))
    assert (row["group"], row["next_group"]) == (1, 2) and row["gain"] == pytest.approx(0.9)


def test_a_tie_is_the_smaller_groups():
    row = only(one("union 4", 50.0), one("union 2", 50.0), one("per_token", 50.0))
    assert (row["group"], row["next_group"], row["next_ratio"], row["gain"]) == (1, 2, 1.0, 1.0)


def test_without_an_arm_of_one_token_there_is_no_gain():
    row = only(one("union 2", 60.0), one("union 4", 50.0))
    assert row["group"] == 4 and row["next_ratio"] == pytest.approx(1.2)
    assert all(math.isnan(row[name]) for name in ("gain", "gain_low", "gain_high"))


def test_one_group_size_decides_nothing():
    assert not len(best(one("per_token", 60.0), one("alone", 50.0)))
    wide = {"heads": 64}  # one token fills a tile
    full = one("alone", 60.0, workload=wide), one("overlapped 0", 50.0, workload=wide)
    assert not len(best(*full))
    nothing, some = best(one("eager", 9.0)), best(one("union 2", 1.0), one("union 4", 2.0))
    assert list(nothing.columns) == list(some.columns) and nothing.dtypes["group"] == "Int64"


def test_blocks_are_paired_and_give_an_interval():
    drift = [100.0, 200.0, 400.0]  # what blocks share is no spread of a ratio
    rows = [one(arm, us * share, i) for i, us in enumerate(drift)
            for arm, share in (("per_token", 2.0), ("union 2", 1.1), ("union 4", 1 + i / 1000))]
    row = only(*rows)
    assert row["us"] == pytest.approx(200.0, rel=0.01), "the geometric mean of blocks"
    assert row["blocks"] == 3 and row["verdict"] == "SLOWER"
    assert 1.09 < row["next_low"] < row["next_ratio"] < row["next_high"] < 1.11
    assert 1.99 < row["gain_low"] < row["gain"] < row["gain_high"] < 2.01


def test_one_block_has_no_interval_and_settles_nothing():
    row = only(one("per_token", 100.0), one("union 2", 50.0))
    assert math.isnan(row["next_low"]) and math.isnan(row["gain_high"])
    assert (row["blocks"], row["verdict"]) == (1, "AMBIGUOUS")


def test_blocks_of_two_studies_are_not_paired():
    ours, others = ([one(arm, us * (1 + i / 100), i, study=study) for i in range(3)]
                    for arm, us, study in (("per_token", 100.0, "a"), ("union 2", 50.0, "b")))
    row = only(*ours, *others)
    assert row["gain"] == pytest.approx(2.0) and row["gain_high"] - row["gain_low"] > 0.05
    paired = only(*ours, *(one("union 2", 50.0 * (1 + i / 100), i, study="a") for i in range(3)))
    assert paired["gain_high"] - paired["gain_low"] < 1e-6


def test_one_shared_turn_is_no_pairing():
    rows = [one("per_token", 100.0, 0, study="a"), one("union 2", 50.0, 0, study="a"),
            one("per_token", 101.0, 1, study="b"), one("union 2", 51.0, 1, study="c")]  # fmt: skip
    row = only(*rows)
    assert row["blocks"] == 2 and row["gain_low"] < row["gain"] < row["gain_high"]


def test_nothing_within_the_noise_of_the_twins_is_settled():
    rows = [one(arm, us + i / 100, i, twin=twin) for i in range(3)
            for arm, us, twin in (("per_token", 100.0, 104.0), ("union 2", 98.0, None))]
    assert only(*rows)["verdict"] == "AMBIGUOUS"
    quiet = [replace(m, twin_us=[us * 1.001 for us in m.samples_us]) for m in rows]
    assert only(*quiet)["verdict"] == "SLOWER"


def test_only_the_newest_build_of_an_arm_counts():
    old = one("union 2", 10.0, workload={"rows": 10240})
    new = one("union 2", 50.0, source="new", workload={"context": 8192})
    alone = one("per_token", 100.0, workload={"context": 8192})
    assert only(old, new, alone)["us"] == pytest.approx(50.0)


def test_flags_of_what_is_told_are_told():
    row = only(one("per_token", 100.0, flags=["busy: 1"]), one("alone", 120.0, flags=["unsure: 2"]),
               one("union 2", 50.0))  # fmt: skip
    assert row["flags"] == ("busy: 1",)


# --- the model

def test_the_model_chooses_the_least_floor_and_the_record_says_what_that_costs():
    row = only(one("per_token", 100.0, gathered=9000), one("union 2", 60.0, gathered=5000),
               one("union 4", 75.0, gathered=3000))  # fmt: skip
    assert (row["group"], row["model_group"], row["model_arm"]) == (2, 4, "union group=4")
    assert row["regret"] == pytest.approx(1.25)


def test_a_model_that_is_right_has_no_regret():
    row = only(one("per_token", 100.0, gathered=9000), one("union 2", 60.0, gathered=5000))
    assert (row["group"], row["model_group"], row["regret"]) == (2, 2, 1.0)


def test_floors_that_tie_are_the_smaller_groups_and_the_faster_arms():
    row = only(one("union 4", 50.0, gathered=5000), one("union 2", 70.0, gathered=5000),
               one("swapped 2", 60.0, gathered=5000), one("per_token", 90.0, gathered=6000))
    assert (row["group"], row["model_group"], row["model_arm"]) == (4, 2, "swapped")
    assert row["regret"] == pytest.approx(1.2)


@pytest.mark.parametrize("counted", [(), ("union 2",), ("per_token",), ("per_token", "union 4")])
def test_without_counts_of_the_fastest_and_of_another_group_there_is_no_prediction(counted):
    times = {"per_token": 100.0, "union 2": 60.0, "union 4": 75.0}
    row = only(*(one(arm, us, gathered=5000 if arm in counted else None)
                 for arm, us in times.items()))  # fmt: skip
    assert row["model_group"] is pd.NA and math.isnan(row["regret"])
    assert row["group"] == 2 and row["gain"] > 1
