"""Records as traces: a time keeps its meaning and its flags, a failure never looks like a pass."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from test_exchange import PREFILL, TINY, call, lines
from test_records import ENVIRONMENT, made

from workbench.exchange import export, survey
from workbench.exchange.paged import paged
from workbench.exchange.traces import exported, told_of
from workbench.op import Verdict
from workbench.ops.sparse_prefill.definition import Output, make_inputs
from workbench.record import as_row

ROOT = Path(__file__).parents[1]
GPU = replace(ENVIRONMENT, device="NVIDIA H200", interpreted=False)


def row(**changes) -> dict:
    """A record of `TINY` that passed."""
    held = {"variant": "eager", "config": {}, "config_asked": {}, "workload": asdict(TINY),
            "clock": "graph_cold", "cache": "cold", "environment": GPU}  # fmt: skip
    return as_row(made(**(held | changes)))


def failed(status: str, why: str, **changes) -> dict:
    return row(verdict=Verdict(status, 0.2, 0.003, why), samples_us=[], **changes)


def test_a_time_goes_out_in_milliseconds_with_its_clock_and_comes_back(tmp_path):
    held = row(flags=["throttled: sw_power_cap"], samples_us=[3000.0, 1500.0, 2250.0])
    export(tmp_path / "set", [held])
    (trace,) = lines(tmp_path / "set", "traces")
    assert trace["evaluation"]["performance"] == {"latency_ms": 2.25}
    assert trace["evaluation"]["correctness"]["extra"] == {"relative_l2": 0.0019, "budget": 0.0033}
    (run,) = survey(tmp_path / "set").runs
    assert (run.latency_us, run.clock, run.cache) == (2250.0, "graph_cold", "cold")
    assert run.max_relative_error != run.max_relative_error, "it was never computed"
    assert "throttled: sw_power_cap" in run.flags and run.statistic.startswith("median")
    assert run.hardware == "NVIDIA H200" and run.at == held["at"] and run.author
    assert told_of(trace["evaluation"]["log"])["source"] == GPU.source


def test_flags_that_only_show_on_reading_go_out_too():
    (trace,) = exported([row(samples_us=[1.0, 1.0, 1.0, 9.0, 9.0, 9.0])], 1, "all").traces
    flags = told_of(trace["evaluation"]["log"])["flags"]
    assert any(flag.startswith("unstable") for flag in flags), flags


FAILURES = {
    "INCORRECT_NUMERICAL": ("incorrect", "out is off by 2.00e-01 of its norm"),
    "INCORRECT_SHAPE": ("incorrect", "second call: lse has shape (5, 7), not (5, 8)"),
    "INCORRECT_DTYPE": ("incorrect", "lse is torch.float16, not torch.float32"),
    "RUNTIME_ERROR": ("error", "RuntimeError: misaligned address"),
    "COMPILE_ERROR": ("error", "CompilationError: at 3:4; ValueError: no"),
    "TIMEOUT": ("timeout", "120 s"),
}


@pytest.mark.parametrize("status", FAILURES)
def test_what_did_not_pass_is_no_passed_trace_and_has_no_time(status):
    said, why = FAILURES[status]
    (trace,) = exported([failed(said, why)], 1, "all").traces
    held = trace["evaluation"]
    assert held["status"] == status and "performance" not in held
    assert ("correctness" in held) == (status == "INCORRECT_NUMERICAL")
    assert told_of(held["log"])["why"] == why


LEFT_OUT = {
    "unsupported: no power of two": failed("unsupported", "no power of two"),
    "no definition of page_split": row(op="page_split"),
    "sink='random'": row(workload=asdict(replace(TINY, sink="random"))),
    "tokens=0": row(workload=asdict(replace(TINY, tokens=0))),
    "passed and not timed": row(samples_us=[]),
    "interpreter": row(environment=ENVIRONMENT),
    "has times though incorrect": row() | {"verdict": {"status": "incorrect", "why": "off"}},
    "unknown workload field 'hats'": row(workload=asdict(TINY) | {"hats": 1}),
}


@pytest.mark.parametrize("why", LEFT_OUT)
def test_a_record_that_the_format_cannot_say_is_left_out_with_the_reason(why):
    found = exported([LEFT_OUT[why]], 1, "all")
    ((_, told),) = found.left_out
    assert why in told and not found.traces and not found.solutions


def test_clocks_configs_and_sources_are_solutions_of_their_own():
    rows = [row(), row(clock="graph_hot", cache="hot"), row(variant="union", config={"group": 2}),
            row(variant="union"), row(environment=replace(GPU, source="4567"))]  # fmt: skip
    found = exported(rows, 1, "all")
    assert len({s["name"] for s in found.solutions}) == len(found.traces) == 5
    assert {t["workload"]["uuid"] for t in found.traces} == {found.traces[0]["workload"]["uuid"]}


def test_blocks_are_one_trace_and_a_failure_stands_beside_them():
    rows = [row(samples_us=[us] * 3, block=i, study="s") for i, us in enumerate((10.0, 12.0, 30.0))]
    found = exported([*rows, failed("incorrect", "off", block=3, study="s")], 1, "all")
    passed, wrong = (t["evaluation"] for t in found.traces)
    assert passed["performance"]["latency_ms"] == 0.012 and wrong["status"] != "PASSED"
    assert json.loads(passed["log"].removeprefix("workbench "))["blocks"] == 3
    assert "failed: in another block of its study" in told_of(passed["log"])["flags"]


def test_a_hostile_name_of_a_variant_stays_inside_the_folder(tmp_path):
    export(tmp_path / "set", [row(variant=9 * "../" + "up")])
    assert [p.name for p in tmp_path.iterdir()] == ["set"]
    (file,) = (tmp_path / "set/solutions").rglob("*.json")
    assert file.name.startswith("_up_graph_cold_")


def test_a_solution_calls_the_variant_that_its_record_is_of():
    w = replace(TINY, holes=0.4, padding="mixed")
    x, scope = make_inputs(w, "cpu"), {}
    (solution,) = exported([row(variant="eager_union", config={"group": 2})], 1, "all").solutions
    assert solution["spec"]["entry_point"] == "main.py::run"
    exec(solution["sources"][0]["content"], scope)
    verdict = PREFILL.compare(x, Output(*scope["run"](*paged(x, 64))), PREFILL.reference(x))
    assert verdict.passed, verdict.why


@pytest.mark.parametrize("stored", ["all", "indices"])
def test_the_shipped_records_go_out_and_come_back(stored, tmp_path):
    records = ROOT / "traces/records/nvidia_h200/sparse_prefill.jsonl"
    done = call("exchange", "export", tmp_path / "set", "--records", records, "--json",
                "--inputs", stored, "--workloads", "edges", "--page-size", "64")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    times = [json.loads(x) for x in records.read_text().splitlines()]
    timed = [r for r in times if r["verdict"]["status"] == "passed" and r["samples_us"]]
    traces = {json.dumps([r["variant"], r["config"], PREFILL.Workload(**r["workload"]).__dict__,
                          r["clock"], r["cache"], r["environment"]["source"]]) for r in timed}
    assert told["traces"] == len(traces) < len(timed), "blocks of one build are one trace"
    logs = [json.loads(line["evaluation"]["log"].removeprefix("workbench "))
            for line in lines(tmp_path / "set", "traces")]  # fmt: skip
    assert sum(log["blocks"] for log in logs) == len(timed)
    drawn = {PREFILL.Workload(**r["workload"]) for r in timed} - set(PREFILL.suites["edges"])
    assert told["without_inputs"] == len(drawn) > 0
    assert sum(number for what, _, number in told["left_out"]) + len(timed) + told["workloads"] == (
        len(times) + len(PREFILL.suites["edges"]))  # fmt: skip
    found = survey(tmp_path / "set")
    assert not found.faults and len(found.runs) == len(traces) and not found.elsewhere
    assert {r.clock for r in found.runs} == {"graph_hot", "graph_cold"}
    assert len(found.workloads) == told["workloads"] and not any(w.missing for w in found.workloads)


def test_the_workloads_of_records_can_be_drawn(tmp_path):
    records = tmp_path / "r.jsonl"
    records.write_text(
        "\n".join(json.dumps(r) for r in (row(), failed("unsupported", "no"))) + "\n"
    )
    done = call("exchange", "export", tmp_path / "set", "--records", records, "--workloads",
                "recorded")  # fmt: skip
    assert done.exit_code == 0 and "without their tensors" not in done.stdout, done.output
    (trace,), (entry,) = lines(tmp_path / "set", "traces"), lines(tmp_path / "set", "workloads")
    assert trace["workload"] == entry["workload"]
    shown = call("exchange", "import", tmp_path / "set")
    assert shown.exit_code == 0 and "graph_cold" in shown.stdout, shown.output
