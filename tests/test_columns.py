"""The columns that a table of records adds to what stands in the files."""

import math

import numpy as np
import pytest
from test_records import made

from workbench import reader
from workbench.record import RecordError, append, load


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.jsonl"


def test_the_columns_that_are_derived(path):
    append(path, made(samples_us=[float(n) for n in range(21, 0, -1)]))
    row = load(path).iloc[0]
    assert (row["low_us"], row["median_us"], row["high_us"]) == (2.0, 11.0, 20.0)
    assert row["gb_per_s"] == pytest.approx(4000 / 11e-6 / 1e9)
    assert math.isclose(row["statistics.union_ratio.2"], 1.25)


def test_halves_and_the_twin(path):
    drifts = [1.0, 2.0, 3.0, 6.0, 7.0]
    append(path, made(samples_us=drifts, twin_us=[5.0, 3.0]), made(samples_us=[1.0, 2.0, 3.0]))
    table = load(path)
    assert table["samples"].tolist() == [5, 3]
    assert table["halves"].tolist()[0] == 6.0 / 1.5 and math.isnan(table["halves"][1])
    assert table["twin_median_us"][0] == 4.0 and math.isnan(table["twin_median_us"][1])


def test_quantiles_are_numpys_to_the_last_bit(path):
    random = np.random.default_rng(0)
    samples = [random.lognormal(3, 1, n).tolist() for n in (1, 2, 3, 10, 11, 99, 100)]
    append(path, *(made(samples_us=s) for s in samples))
    table = load(path)
    for name, q in (("low_us", 5), ("median_us", 50), ("high_us", 95)):
        assert table[name].tolist() == [np.percentile(s, q) for s in samples], name


def test_what_a_profiler_and_the_device_said_stays_whole(path):
    profile = {"span_us": 2.5, "kernels": {"one kernel": [1, 2.0], "another": [2, 0.5]}}
    append(path, made(profile=profile, state={"before": {"sm_mhz": 1980}}), made())
    table = load(path)
    assert table["profile"].tolist() == [profile, None]
    assert table["state"].tolist() == [{"before": {"sm_mhz": 1980}}, None]
    assert table["profile.span_us"][0] == 2.5 and math.isnan(table["profile.span_us"][1])
    assert table["profile.launches"][0] == 3 and math.isnan(table["profile.launches"][1])
    assert not [c for c in table if "kernel" in c or "sm_mhz" in c], "a column a kernel"


def test_an_arm_is_named_by_what_differs(path):
    asked = [
        ("union", {"group": 2, "block_k": 64}),
        ("union", {"group": 4, "block_k": 64}),
        ("per_token", {"block_k": 32}),  # another variant's block_k is no difference
        ("eager", {}),
    ]
    append(path, *(made(variant=v, config_asked=c, config={"block_k": 1}) for v, c in asked))
    append(path, made(op="other", variant="eager", config_asked={"x": 1}))
    arms = load(path)["arm"].tolist()
    assert arms == ["union group=2", "union group=4", "per_token", "eager", "eager"]


@pytest.mark.parametrize("read", [load, reader.load], ids=["python", "duckdb"])
@pytest.mark.parametrize("value", ["4000", True, [4000], {"read": 4000}], ids=str)
@pytest.mark.parametrize("name", ["bytes", "flops"])
def test_a_cost_that_is_no_number_is_told_with_its_value(path, name, value, read):
    append(path, made(), made(cost={"bytes": 4000, "flops": 10} | {name: value}))
    with pytest.raises(RecordError, match=r":2: ") as refused:
        read(path)
    assert str(refused.value).endswith(f"its cost.{name} is {value!r}, no number")


@pytest.mark.parametrize("cost", [None, {}, {"bytes": None}, {"bytes": 4000.0}], ids=str)
def test_a_cost_that_is_absent_is_absent(path, cost):
    append(path, made(cost=cost), made())
    assert load(path)["cost.bytes"].isna().tolist() == [not (cost or {}).get("bytes"), False]
