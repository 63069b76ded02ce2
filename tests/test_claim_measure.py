"""A claim is measured: what it writes, and where along an axis it measures more."""

import json
from itertools import pairwise

import pytest
from test_claims import ASKED, checked, crossing, planted, result_of
from test_cli import call

from workbench import claims, record, study
from workbench.claims.claim import Claim
from workbench.ops import OPS

TINY = """question: Is the masked copy faster in plain torch?
op: page_split
a: eager_full
b: eager_masked
clock: wall_clock
workload: {pages: 4}
blocks: 2
repeats: 5
"""


def test_a_claim_is_measured_and_its_result_holds(tmp_path):
    path, records = tmp_path / "tiny.yaml", tmp_path / "records.jsonl"
    path.write_text(TINY)
    done = call("claim", "run", path, "--device", "cpu", "--to", records)
    assert done.exit_code in (0, 1), done.output  # a busy CPU may be unstable
    rows, result = record.read(records), json.loads(result_of(path).read_text())
    assert {(r["variant"], r["block"]) for r in rows} == {
        (arm, block) for arm in ("eager_full", "eager_masked") for block in (0, 1)}  # fmt: skip
    assert all(len(r["samples_us"]) == 5 for r in rows) and len(result["records"]) == 4
    assert checked(path).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["tiny.yaml", "records.jsonl", "records.jsonl.lock", result_of(path).name]
    )


def measured(monkeypatch, tmp_path, ratio, **changes):
    """(the result of a claim whose studies are planted, the points in the order they were run)."""
    asked, order = Claim.model_validate(ASKED | changes), []

    def run(arms, workloads, *, to, blocks, **rest):
        values = [getattr(w, asked.axis) for w in workloads]
        order.extend(values)
        found = planted(ratio, values, blocks, asked.axis, study=f"study {len(order)}")
        record.append(to, *found)
        return found

    monkeypatch.setattr(study, "run", run)
    op, to = OPS[asked.op], tmp_path / "r.jsonl"
    rows = claims.measure(asked, op, to)
    assert rows == record.read(to), "every record is in the file"
    return claims.derive(asked, op, rows), order


def staircase(value: float) -> float:
    """A wave more from 529 on: 10 % slower below, 1 % faster above."""
    return 1.10 if value < 529 else 0.99


@pytest.mark.parametrize("values", [[64, 8192], [64, 256, 1024, 4096], [500, 512, 540, 600]])
def test_refinement_closes_in_on_a_step(values, monkeypatch, tmp_path):
    got, order = measured(monkeypatch, tmp_path, staircase, values=values, refine=0.01)
    (c,) = got["crossings"]
    low, high = c["between"]
    assert low < 529 <= high and high / low <= 1.01, "the step lies between measured neighbours"
    assert order[: len(values)] == values and len(order) == len(set(order)) <= 24
    assert all(isinstance(v, int) for v in order), "tokens are whole"


def test_refinement_closes_in_on_a_smooth_crossing(monkeypatch, tmp_path):
    got, order = measured(monkeypatch, tmp_path, crossing, refine=0.05)
    (c,) = got["crossings"]
    assert c["between"][0] < c["low"] <= 700 <= c["high"] < c["between"][1]
    inside = [v for v in sorted(order) if c["between"][0] <= v <= c["between"][1]]
    assert all(b / a <= 1.05 for a, b in pairwise(inside)) and c["faster_beyond"] == "union"


def test_refinement_stops_at_the_most_points_and_without_being_asked(monkeypatch, tmp_path):
    _, order = measured(monkeypatch, tmp_path, staircase, refine=0.0001, most_points=7)
    assert len(order) == 7
    _, order = measured(monkeypatch, tmp_path / "two", staircase)
    assert order == ASKED["values"]


def test_refinement_adds_nothing_where_one_arm_always_wins(monkeypatch, tmp_path):
    got, order = measured(monkeypatch, tmp_path, lambda v: 0.9, refine=0.01)
    assert got["verdict"] == "FASTER" and order == ASKED["values"]


def test_a_claim_names_a_file_with_a_variant_of_ones_own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from workbench.ops.page_split.definition import all_pages, page_split\n"
        "@page_split.variant(widens=all_pages)\n"
        "def mine(x, config):\n"
        '    """A copy of my own."""\n'
        "    return page_split.variants['eager_full'].run(x, config)\n"
    )
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY.replace("b: eager_masked", "b: mine\nmodule: mine.py"))
    done = call("claim", "run", path, "--device", "cpu", "--to", tmp_path / "records.jsonl")
    assert done.exit_code in (0, 1), done.output
    assert checked(path).exit_code == 0
    OPS["page_split"].variants.pop("mine", None)


def test_a_result_notes_what_falls_short_of_the_claim(tmp_path):
    asked = Claim.model_validate(ASKED | {"refine": 0.01, "blocks": 5})
    rows = [record.as_row(m) for m in planted(crossing, blocks=3)]
    for row in rows[:2]:
        row["environment"] = row["environment"] | {"uuid": "another", "source": "another"}
    for row in rows[2:]:
        row["environment"] = row["environment"] | {"uuid": "one"}
    notes = claims.derive(asked, OPS[asked.op], rows)["notes"]
    assert notes[0].startswith("fewer than 5 process blocks: ")
    assert "measured on 2 GPUs of this kind" in notes
    assert "measured by 2 states of the source" in notes
    assert notes[-1].startswith("not as fine as asked: tokens=")
    full = Claim.model_validate(ASKED | {"blocks": 3})
    assert claims.derive(full, OPS[asked.op], [record.as_row(m) for m in planted(crossing)])[
        "notes"] == []  # fmt: skip
