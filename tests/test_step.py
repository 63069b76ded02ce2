"""A step's share: arithmetic that the seed's own table must come out of, and its refusals."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.models.step import FLOOR, Total, splits

# Seed 000's profile: 12 decode steps, GPU time of the split kernel and of all kernels, ms
STEPS, FULL, MASKED, ALL, ALL_MASKED = 12, 77.87, 8.11, 462.99, 373.47


def seed(total_us: float = ALL / STEPS * 1e3, base: str = "full"):
    us = {"full": FULL / STEPS * 1e3, "masked": MASKED / STEPS * 1e3, FLOOR: 0.0}
    return splits(us, Total(total_us, "given", base))


def test_the_seeds_shares_come_out_of_its_times():
    assert seed()["full"].share == pytest.approx(0.168, abs=0.0005)
    masked = seed(ALL_MASKED / STEPS * 1e3, "masked")["masked"]
    assert masked.share == pytest.approx(0.022, abs=0.0005)


def test_a_variant_is_told_of_the_step_that_it_leaves():
    found = seed()
    left = ALL - FULL + MASKED
    assert found["masked"].share == pytest.approx(MASKED / left)
    assert found["masked"].saved == pytest.approx((FULL - MASKED) / ALL)
    assert found["full"].saved == 0.0
    assert found[FLOOR].share == 0.0 and found[FLOOR].saved == pytest.approx(FULL / ALL)


def test_reading_is_not_the_splits():
    found = splits({"full": 130.0, "masked": 37.0, FLOOR: 30.0})
    assert found["full"].split_us == 100.0 and found["masked"].split_us == 7.0
    assert found["full"].share is None and found["full"].saved is None


def test_noise_makes_no_split_cost_less_than_nothing():
    assert splits({"claimed": 29.9, FLOOR: 30.0})["claimed"].split_us == 0.0


@pytest.mark.parametrize("us, total, told", [
    ({"full": 3.0}, None, "'direct'"),
    ({"full": 3.0, FLOOR: 1.0}, Total(10.0, "given", "masked"), "'masked'"),
    ({"full": 13.0, FLOOR: 1.0}, Total(12.0, "given", "full"), "12.0 us (given)"),
], ids=["no floor", "another base", "too small"])  # fmt: skip
def test_what_cannot_be_is_refused(us, total, told):
    with pytest.raises(ValueError, match=told.replace("(", r"\(").replace(")", r"\)")):
        splits(us, total)


@pytest.mark.parametrize("us", [0.0, -1.0, float("nan"), float("inf")])
def test_a_total_is_a_time(us):
    with pytest.raises(ValueError, match="is no time"):
        Total(us, "given", "full")


RECORDS = Path(__file__).parents[1] / "traces/records/nvidia_h200/decode_split_step.jsonl"


def call(*words):
    return CliRunner().invoke(app, ["step", *map(str, words)])


def test_the_command_says_each_variants_part_and_where_the_total_is_from():
    done = call(RECORDS, "--total-us", "38600", "--clock", "graph_hot", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["total"] == {"us": 38600.0, "source": "given", "base": "full"}
    here = {r["variant"]: r for r in said["splits"] if r["workload"] == "default"}
    assert here["direct"]["split_us"] == 0.0 < here["fitted"]["split_us"]
    rest = 38600 - here["full"]["split_us"]
    for r in here.values():
        assert r["share"] == pytest.approx(r["split_us"] / (rest + r["split_us"]))


def test_a_profile_gives_the_total_and_is_named():
    trace = Path(__file__).parent / "data/profiles/triton_example__triton_example.json.gz"
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    us = sum(e["dur"] for e in events if e.get("cat", "").lower() == "kernel")
    done = call(RECORDS, "--profile", trace, "--steps", "1", "--clock", "graph_hot")
    words = " ".join(done.stderr.split())
    assert done.exit_code == 2 and f"a step of {us:,.1f} us" in words, done.output
    assert f"kernel time in {trace.name} over 1 steps" in words


@pytest.mark.parametrize("words, told", [
    (["--total-us", "1", "--profile", "x"], "give one of them"),
    (["--total-us", "100"], "cannot hold"),
    (["--total-us", "38600", "--base", "claimed"], "'claimed'"),
    (["--clock", "sundial"], "'sundial'"),
    (["--profile", "nowhere.json"], "nowhere.json"),
    (["--base", "masked"], "--base masked"),
    (["--total-us", "38600", "--steps", "12"], "--steps 12"),
], ids=lambda w: w[-1] if isinstance(w, list) else "")  # fmt: skip
def test_bad_words_are_one_line(words, told):
    done = call(RECORDS, *words)
    assert done.exit_code == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_case_without_reading_is_left_out_and_told(tmp_path):
    rows = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    kept = [r for r in rows if r["workload"]["batch"] == 8 or r["variant"] != FLOOR]
    some, none = tmp_path / "some.jsonl", tmp_path / "none.jsonl"
    some.write_text("".join(json.dumps(r) + "\n" for r in kept))
    none.write_text("".join(json.dumps(r) + "\n" for r in rows if r["variant"] != FLOOR))
    done = call(some)
    assert done.exit_code == 0 and "left out, without a time of 'direct'" in done.stdout
    done = call(none)
    assert done.exit_code == 2 and "no time of 'direct'" in done.stderr


def test_records_without_a_step_are_told(tmp_path):
    done = call(RECORDS.with_name("union_plan.jsonl"))
    assert done.exit_code == 2 and "workbench measure decode_split_step" in done.stderr


def test_a_variant_of_two_configs_keeps_both(tmp_path):
    found = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    first = next(r for r in found if r["variant"] == "fitted")
    found += [first | {"config": c, "config_asked": c} for c in ({"lanes": 4}, {"lanes": 8})]
    path = tmp_path / "two.jsonl"
    path.write_text("\n".join(map(json.dumps, found)))
    done = call(path, "--clock", first["clock"], "--json")
    assert done.exit_code == 0, done.output
    told = {r["variant"] for r in json.loads(done.stdout)["splits"]}
    assert {"fitted lanes=4", "fitted lanes=8"} <= told
