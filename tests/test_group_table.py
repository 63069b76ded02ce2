"""The table of best groups: the committed one is what the records say, and readers can trust it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from workbench.cli import app
from workbench.models import group_table
from workbench.ops import OPS

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "traces/best_group/nvidia_h200.json"
RECORDS = ROOT / "traces/records/nvidia_h200/sparse_prefill.jsonl"
Workload = OPS["sparse_prefill"].Workload


def call(*words):
    return CliRunner().invoke(app, ["selections", "best-group", *map(str, words)])


def test_the_committed_table_is_what_the_records_say(tmp_path):
    done = call(RECORDS, "-o", tmp_path / "t.json")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "t.json").read_text() == TABLE.read_text()


def test_every_place_names_its_group_and_interval():
    places = group_table.read(TABLE)["places"]
    assert any(p["next_low"] for p in places)
    for p in places:
        assert p["group"] != p["next_group"] and p["us"] > 0
        assert p["next_low"] is None or p["next_low"] <= p["next_ratio"] <= p["next_high"]


def test_a_workload_gets_the_place_most_like_it():
    told = group_table.read(TABLE)
    own = group_table.nearest(told, Workload(context=8192, churn=0.02))
    assert (own["context"], own["churn"]) == (8192, 0.02)
    near = group_table.nearest(told, Workload(tokens=2000, context=9000, churn=0.03))
    assert near == own
    unsure = Workload(tokens=8192, churn=0.25)  # two groups of one arm, timed in one block
    assert any(p["group"] == 2 and p["tokens"] == 8192 for p in told["places"])
    assert group_table.nearest(told, unsure)["verdict"] == "SLOWER"
    assert group_table.nearest(told, Workload(heads=7)) is None
    assert group_table.nearest(told, Workload(law="uniform")) is None


@pytest.mark.parametrize("text, said", [
    ("[]", "schema None"), ('{"schema": 0}', "schema 0"), ("no", "is no JSON"),
])  # fmt: skip
def test_another_table_is_refused(tmp_path, text, said):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match=said):
        group_table.read(tmp_path / "t.json")


def test_bad_input_is_told_in_a_line(tmp_path):
    (tmp_path / "none.jsonl").write_text("")
    assert "folder" in call(RECORDS, "-o", tmp_path).output
    assert "no place of NVIDIA H200 under events" in call(RECORDS, "--clock", "events").output
    done = call(RECORDS, "--device-name", "another")
    assert done.exit_code and "another" in done.output


def test_json_is_the_table():
    assert json.loads(call(RECORDS, "--json").output) == group_table.read(TABLE)
