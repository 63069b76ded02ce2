"""`workbench profile compare`: a profile and the record of the same case agree, or it is told."""

import json

import planted
import pytest
from test_cli import call

from workbench import record
from workbench.machine import Environment
from workbench.op import Verdict

ENVIRONMENT = Environment(
    device=planted.DEVICE, uuid="", capability="9.0", driver="1", cuda="13", torch="2", triton="3",
    python="3.11", l2_bytes=60 << 20, multiprocessors=132, commit="", source="", interpreted=False,
)  # fmt: skip


@pytest.fixture
def files(tmp_path):
    """A function that writes a trace and the records of its case: their paths."""

    def written(us=2160.0, twin_us=(), blocks=1, profile=None, **other):
        records = tmp_path / "r.jsonl"
        case = planted.about()["cases"][0]
        fields = {
            "op": "sparse_prefill", "variant": "union", "config": case["config"],
            "config_asked": case["config"], "workload": planted.about()["workload"],
            "verdict": Verdict("passed"), "cost": None, "statistics": None, "ledger": None,
            "clock": "graph_hot", "cache": "hot", "calls_per_sample": 1, "floor_us": None,
            "samples_us": [us - 1, us, us + 1], "twin_us": list(twin_us), "index_sets": 1,
            "reuse_bytes": None, "profile": None, "state": None, "flags": [], "study": "s",
            "environment": ENVIRONMENT,
        } | other  # fmt: skip
        rows = [record.Measurement(**fields, block=i) for i in range(blocks)]
        record.append(records, *rows)
        return planted.trace(tmp_path / "union.json.gz", **profile or {}), records

    return written


def compared(files) -> tuple[int, dict]:
    done = call("profile", "compare", *files, "--json")
    assert done.exit_code in (0, 1), done.output
    (row,) = json.loads(done.stdout)
    return done.exit_code, row


def test_a_profile_that_agrees_with_its_record(files):
    code, row = compared(files(blocks=3))
    assert (code, row["agrees"], row["blocks"]) == (0, True, 3)
    assert row["difference"] == pytest.approx(2150 / 2160 - 1)
    assert set(row["kernels"]) == {"_clean_kernel", "radix_sort", "_plan_kernel", "_union_kernel"}
    done = call("profile", "compare", *files(blocks=3))
    assert "union: agree" in done.stdout and "_plan_kernel" in done.stdout


@pytest.mark.parametrize("us", [2150 * 1.04, 2150 * 0.96])
def test_a_difference_beyond_noise_is_told(files, us):
    code, row = compared(files(us=us))
    assert (code, row["agrees"]) == (1, False) and "differ by more than 64.5 us" in row["said"]


def test_what_two_runs_of_one_arm_differ_by_is_noise(files):
    us = 2150 * 1.04
    code, row = compared(files(us=us, twin_us=[us * 1.05] * 3))
    assert (code, row["agrees"]) == (0, True) and row["noise"] == pytest.approx(0.0488, abs=1e-4)


def test_a_silent_fall_back_is_told_though_the_time_agrees(files):
    code, row = compared(files(profile={"kernel": "_other_kernel"}))
    assert (code, row["agrees"]) == (1, False)
    assert row["said"] == "another kernel ran: none of _union_kernel"
    assert "_other_kernel" in row["kernels"]


def test_a_variant_without_kernels_of_its_own_may_run_any(files):
    assert compared(files(profile={"kernel": "_other_kernel", "own": ()}))[0] == 0


@pytest.mark.parametrize("other", [
    {"clock": "graph_cold"}, {"variant": "per_token"}, {"op": "union_plan"},
    {"workload": planted.about()["workload"] | {"churn": 0.25}},
    {"config": {"group": 2}},
], ids=["clock", "variant", "op", "workload", "config"])  # fmt: skip
def test_records_of_another_case_are_not_compared(files, other):
    done = call("profile", "compare", *files(**other))
    assert done.exit_code == 2 and "no timed record of sparse_prefill union" in done.stderr


def test_a_record_of_another_device_is_not_compared(files):
    from dataclasses import replace

    done = call("profile", "compare", *files(environment=replace(ENVIRONMENT, device="B200")))
    assert done.exit_code == 2 and planted.DEVICE in done.stderr


def test_fields_that_an_old_record_lacks_have_their_default(files):
    workload = planted.about()["workload"]
    del workload["context"]
    assert compared(files(workload=workload))[0] == 0


def test_a_summary_says_the_same_as_its_trace(files, tmp_path):
    trace, records = files()
    said = call("profile", "import", trace, "--json").stdout
    (tmp_path / "union.summary.json").write_text(said)
    assert compared((tmp_path / "union.summary.json", records)) == compared((trace, records))
    (tmp_path / "new.json").write_text(json.dumps(json.loads(said) | {"schema": 2}))
    done = call("profile", "compare", tmp_path / "new.json", records)
    assert done.exit_code == 2 and "schema 2" in done.stderr


def test_a_trace_of_nobody_is_refused(tmp_path, files):
    from test_profiles import DATA

    _, records = files()
    done = call("profile", "compare", DATA / "triton_example__triton_example.json.gz", records)
    assert done.exit_code == 2 and "does not say which cases" in done.stderr
