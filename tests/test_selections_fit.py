"""Presets give the published unions of captures; a fit reaches its target and says what it got."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from workbench import record, selections
from workbench.cli import app
from workbench.selections import PRESETS
from workbench.selections.calibration import TOLERANCE, curve, fit

PUBLISHED = pd.read_csv(record.found("traces/published/published.csv"), dtype=str)


def call(*words: str):
    return CliRunner().invoke(app, ["selections", *map(str, words)])


def of(tokens: int, batch: int, op: str) -> float:
    t = PUBLISHED[(PUBLISHED["table"] == "union_overlap") & (PUBLISHED["op"] == "topk_indices")]
    t = t[(t["tokens"] == str(tokens)) & (t["batch"] == str(batch)) & (t["variant"] == op)]
    (value,) = t["value"]
    return float(value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_gives_the_published_ratios(name):
    p = PRESETS[name]
    assert p.published == {g: of(p.tokens, p.requests, f"union{g}") for g in (2, 4)}
    size = p.tokens // p.requests
    s = selections.selection(name, [(size, size)] * p.requests, p.topk)
    starts = [r.token for r in s.requests]
    for g, ratio in p.published.items():
        found = selections.union_ratio(s.indices, s.rows, g, starts)
        assert abs(found - ratio) <= 0.01 and found == pytest.approx(p.reached[g], abs=1e-4)
    rows = float((s.indices >= 0).sum()) / len(s.indices)
    assert rows == pytest.approx(of(p.tokens, p.requests, "per_token"), abs=0.6)


def test_there_are_presets_of_all_five_captures():
    assert len(PRESETS) == 5 and sum(len(p.published) for p in PRESETS.values()) == 10


TARGETS = [
    ("boundary", {2: 1.12, 4: 1.23}), ("boundary:drift=0.01", {2: 1.03, 4: 1.07}),
    ("walk", {2: 1.12}), ("topics:window=16", {4: 1.23}), ("paged", {2: 1.2}),
    ("indexer:heads=4:dim=32", {2: 1.12}), ("boundary", {2: 1.12, 4: 1.23, 32: 1.8}),
]  # fmt: skip


@pytest.mark.parametrize(("law", "target"), TARGETS)
def test_a_fit_reaches_its_target(law, target):
    found = fit(target, tokens=512, topk=256, law=law, context=768, seed=3)
    assert found.close and found.error == pytest.approx(
        max(abs(found.reached[g] - ratio) for g, ratio in target.items())
    )
    again = selections.selection(found.law, [(512, 1280)], 256, seed=3)
    for g, ratio in found.reached.items():
        assert selections.union_ratio(again.indices, again.rows, g) == pytest.approx(ratio)


def test_a_fit_keeps_what_it_was_given():
    found = fit({2: 1.1}, tokens=256, topk=64, law="boundary:pool=3:drift=0.01", context=256)
    assert found.parameters["pool"] == 3.0 and found.parameters["drift"] == 0.01


def test_a_target_out_of_reach_is_told():
    found = fit({2: 1.0, 4: 3.9}, tokens=128, topk=64, context=128)
    assert not found.close and found.error > TOLERANCE


def test_a_curve_is_of_the_requests_apart():
    found = curve("walk", [2, 4], 90, 16, context=50, requests=4, seed=1)
    s = selections.selection("walk", [(n, n + 50) for n in (23, 23, 22, 22)], 16, 1)
    starts = [r.token for r in s.requests]
    assert found == pytest.approx(
        {g: selections.union_ratio(s.indices, s.rows, g, starts) for g in (2, 4)}
    )


@pytest.mark.parametrize("words, told", [
    (["--target", "2=3"], "2 tokens of 3 times one"), (["--target", "1=1"], "1 tokens"),
    (["--target", "2=0.9"], "0.9"), (["--target", "2"], "NAME=VALUE"),
    (["--target", "x=1.1"], "'x'"), (["--target", "2=nan"], "nan"),
    (["--target", "2=1.1", "--law", "uniform"], "no parameter"),
    (["--target", "2=1.1", "--law", "bondary"], "did you mean"),
])  # fmt: skip
def test_a_fit_that_makes_no_sense_is_refused(words, told):
    done = call("fit", *words)
    assert done.exit_code == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1


def test_the_command_stores_what_was_reached_and_show_reads_it(tmp_path):
    file = tmp_path / "new" / "fit.json"
    small = ("--tokens", 256, "--topk", 128, "--context", 100)
    done = call("fit", "--target", "2=1.12,4=1.23", *small, "--to", file, "--json")
    assert done.exit_code == 0, done.output
    held = json.loads(file.read_text())
    assert held == json.loads(done.stdout)
    assert held["reached"]["2"] == pytest.approx(1.12, abs=0.01) and held["error"] < 0.01
    shown = call("show", file, "--json")
    found = json.loads(shown.stdout)
    assert found["law"] == held["law"] and found["tokens"] == 256 and found["rows"] == 356
    for g, ratio in held["reached"].items():
        assert found["union_ratio"][g] == pytest.approx(ratio)
    assert found["pages"]["64"]["touched_per_token"] > 1


def test_a_missed_target_is_exit_code_1():
    done = call("fit", "--target", "2=1.0,4=3.9", "--tokens", 64, "--topk", 32, "--context", 64)
    assert done.exit_code == 1 and "missed by" in done.stdout


def test_show_tells_a_law_in_words():
    done = call("show", "--law", "boundary", "--tokens", 64, "--topk", 40, "--requests", 2)
    assert done.exit_code == 0, done.output
    assert "64 tokens, requests 2" in done.stdout and "union ratio" in done.stdout
    assert call("show", "--law", "topics", "--tokens", 0).exit_code == 0


def test_show_takes_the_shape_of_a_preset():
    done = call("show", "--law", "capture_bs4_2048", "--topk", 64, "--json")
    found = json.loads(done.stdout)
    assert (found["tokens"], found["requests"], found["topk"]) == (8192, 4, 64)


@pytest.mark.parametrize("words, told", [
    ([], "one of them"), (["x.json", "--law", "walk"], "one of them"), (["x.json"], "x.json"),
    (["README.md"], "no result"), (["--law", "zipf"], "zipf"),
])  # fmt: skip
def test_show_refuses_what_it_cannot_show(words, told, monkeypatch):
    monkeypatch.chdir(record.CHECKOUT)
    done = call("show", *words)
    assert done.exit_code == 2 and told in done.stderr
