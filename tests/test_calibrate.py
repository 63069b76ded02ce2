"""The chunk model out of records: its constants come back, and go into a table."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from planted_splits import H200, OTHERS, REAL, SIX, SMS, call, swept, timed
from test_dispatch_records import one

from workbench import record
from workbench.models.dispatch_table import read
from workbench.models.makespan import Constants
from workbench.models.splits import COUNTS, PLACES


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    record.append(Path("r.jsonl"), *SIX)
    return tmp_path


def constants(done) -> dict[str, Constants]:
    return {row["variant"]: Constants(**row["constants"]) for row in json.loads(done.stdout)}


def close(found: Constants, real: Constants, to: float) -> bool:
    return all(getattr(found, n) == pytest.approx(getattr(real, n), rel=to) for n in vars(real))


def test_constants_come_back_from_six_noisy_times(here):
    done = call("calibrate", "r.jsonl", "--json")
    (told,) = json.loads(done.stdout)
    assert done.exit_code == 0 and close(constants(done)["split_k_wgmma"],
                                         REAL["split_k_wgmma"][0], 0.15)  # fmt: skip
    assert (told["layout"], told["multiprocessors"], told["refused"]) == ("inline_656", SMS, None)
    assert len(told["points"]) == 6 and told["relative_rms"] < 0.03
    assert all(p["modelled_us"] == pytest.approx(p["us"], rel=0.1) for p in told["points"])
    shown = call("calibrate", "r.jsonl").stdout
    assert "a GPU" in shown and "132 multiprocessors" in shown and "split_k_wgmma" in shown


def test_the_merge_is_known_from_an_empty_kernel_and_a_copy_of_the_device(here):
    """Of the H200 a copy is known; its rate and the launch are in the table beside the three."""
    gpu = replace(H200, device="NVIDIA H200")
    record.append(Path("h.jsonl"), *(replace(m, environment=gpu, floor_us=1.5) for m in SIX))
    (told,) = json.loads(call("calibrate", "h.jsonl", "--json").stdout)
    assert told["constants"]["merge_s"] == pytest.approx(1.5e-6)
    assert 1e-9 / told["constants"]["merge_s_per_byte"] == pytest.approx(4155.86, rel=1e-4)
    (unknown,) = json.loads(call("calibrate", "r.jsonl", "--json").stdout)
    assert unknown["constants"]["merge_s"] == unknown["constants"]["merge_s_per_byte"] == 0.0


def test_a_rate_that_no_point_reached_is_not_shown(here, monkeypatch):
    assert "not reached" not in call("calibrate", "r.jsonl").stdout
    slow = replace(REAL["split_k"][0], program_s_per_byte=9e-10)
    monkeypatch.setitem(REAL, "split_k", (slow, 16))
    record.append(Path("s.jsonl"), *(m for p in PLACES for m in swept("split_k", p, COUNTS)))
    assert "not reached" in call("calibrate", "s.jsonl").stdout


def test_each_variant_has_constants_of_its_own_whatever_else_was_timed(here):
    place = PLACES[0]
    other_tile = timed("split_k", place, COUNTS[0], 9.0)
    config = other_tile.config | {"block_h": 32}
    other_tile = replace(other_tile, config=config, config_asked=config)
    by_rule = timed("split_k", place, 0, 9.0)
    eager = one("eager", 900.0, workload={**place, "padding": "mixed"}, config={}, environment=H200)
    record.append(Path("r.jsonl"), by_rule, eager,
                  *(m for place in PLACES for m in swept("split_k", place, COUNTS)),
                  other_tile)  # fmt: skip
    found = constants(call("calibrate", "r.jsonl", "--json"))
    assert close(found["split_k"], REAL["split_k"][0], 0.01) and len(found) == 2
    only = call("calibrate", "r.jsonl", "--variant", "split_k", "--json")
    assert set(constants(only)) == {"split_k"}


def test_without_the_named_places_three_others_are_taken(here):
    record.append(Path("o.jsonl"), *(m for p in OTHERS for m in swept("split_k", p)))
    (told,) = json.loads(call("calibrate", "o.jsonl", "--json").stdout)
    taken = [(p["tokens"], p["heads"], p["topk"], p["chunks_per_block"]) for p in told["points"]]
    assert [t[2:] for t in taken] == [(2048, 1), (2048, 32)] * 3
    assert [t[:2] for t in taken[::2]] == [(1, 16), (96, 16), (96, 128)]
    assert close(Constants(**told["constants"]), REAL["split_k"][0], 0.05)


def test_constants_go_into_a_table_and_leave_the_rest_of_it(here):
    assert call("calibrate", "r.jsonl", "-o", "new.json").exit_code == 0
    made = read("new.json")
    assert len(made.entries) == len(PLACES) and made.model.multiprocessors == SMS
    assert made.model.layouts["split_k_wgmma inline_656"].good
    record.append(Path("k.jsonl"), *(m for p in PLACES for m in swept("split_k", p, COUNTS)))
    assert call("k.jsonl", "-o", "t.json").exit_code == 0
    before = read("t.json")
    for path in ("k.jsonl", "r.jsonl"):
        assert call("calibrate", path, "-o", "t.json").exit_code == 0
    after = read("t.json")
    assert after.entries == before.entries
    assert set(after.model.layouts) == {"split_k inline_656", "split_k_wgmma inline_656"}


def test_a_table_that_is_made_again_keeps_the_constants_of_its_setup(here):
    assert call("calibrate", "r.jsonl", "-o", "t.json").exit_code == 0
    model = read("t.json").model
    record.append(Path("k.jsonl"), *(m for p in OTHERS for m in swept("split_k", p)))
    shown = call("k.jsonl", "-o", "t.json", "--json").stdout
    made = read("t.json")
    assert made.model == model and shown == Path("t.json").read_text()
    assert len(made.entries) == len(OTHERS)
    for name, other in (("device", "another"), ("triton", "3.9.0")):
        path = Path(f"{name}.jsonl")
        m = timed("split_k", PLACES[0], 1)
        record.append(path, replace(m, environment=replace(H200, **{name: other})))
        Path("o.json").write_bytes(Path("t.json").read_bytes())
        assert call(path, "-o", "o.json").exit_code == 0 and read("o.json").model is None


def test_a_model_that_does_not_hold_is_refused_in_a_line(here):
    wild = [timed("split_k", p, n, 5.0 ** (-1) ** (i + n // 16)) for i, p in enumerate(PLACES)
            for n in COUNTS]  # fmt: skip
    record.append(Path("w.jsonl"), *wild)
    done = call("calibrate", "w.jsonl", "-o", "t.json")
    (said,) = done.stderr.strip().splitlines()
    assert done.exit_code == 1 and "split_k inline_656: a relative rms of" in said
    assert not Path("t.json").exists() and "refused" in done.stdout
    both = call("calibrate", "w.jsonl", "r.jsonl", "-o", "t.json")
    assert both.exit_code == 1 and set(read("t.json").model.layouts) == {"split_k_wgmma inline_656"}


def test_too_few_points_are_told_in_a_line(here):
    record.append(Path("f.jsonl"), *swept("split_k", PLACES[0], COUNTS))
    done = call("calibrate", "f.jsonl")
    assert done.exit_code == 2 and "2 times with a chunks_per_block do not" in done.stderr
    both = call("calibrate", "f.jsonl", "r.jsonl")
    assert both.exit_code == 1 and "too few" in both.stdout
    assert len(both.stderr.strip().splitlines()) == 1


def test_one_record_without_the_count_of_multiprocessors_refuses_no_calibration(here):
    (first, *_), odd = record.rows("r.jsonl"), []
    for count in (None, "many"):
        odd.append(first | {"environment": first["environment"] | {"multiprocessors": count}})
    record.append_rows(Path("odd.jsonl"), odd)
    done = call("calibrate", "odd.jsonl", "r.jsonl", "--json")
    (told,) = json.loads(done.stdout)
    assert done.exit_code == 0 and told["multiprocessors"] == SMS
    assert "left out 1 of 8 records, the first in odd.jsonl: environment.multi" in done.stderr


BAD = {
    "no counts": (["calibrate", "none.jsonl"], "none.jsonl"),
    "no GPU": (["calibrate", "--measure", "--device", "cpu"], "--measure needs a GPU"),
    "another variant": (["calibrate", "r.jsonl", "--variant", "split"], "'split'"),
    "a folder": (["calibrate", "r.jsonl", "-o", "."], ". is a folder"),
    "no table": (["calibrate", "r.jsonl", "-o", "r.jsonl"], "r.jsonl is no dispatch table"),
    "nothing else": (["splits", "r.jsonl"], "no place is left"),
    "a clock": (["splits", "r.jsonl", "--clock", "events"], "'events'"),
    "only rules": (["calibrate", "z.jsonl"], "no time with a chunks_per_block"),
    "a processor": (["calibrate", "p.jsonl"], "0 multiprocessors"),
    "another device's": (["calibrate", "p.jsonl", "r.jsonl", "-o", "t.json"], "--device-name"),
}


@pytest.mark.parametrize("words, said", BAD.values(), ids=BAD)
def test_bad_input_is_told_in_a_line(here, words, said):
    record.append(Path("z.jsonl"), timed("split_k", PLACES[0], 0))
    slow = replace(H200, multiprocessors=0, device="a processor")
    record.append(Path("p.jsonl"), *(replace(m, environment=slow) for m in SIX))
    done = call(*words)
    lines = done.stderr.strip().splitlines()
    assert (done.exit_code, len(lines)) == (2, 1) and said in lines[0], done.output


def test_a_table_of_another_device_is_left_as_it_is(here):
    assert call("calibrate", "r.jsonl", "-o", "t.json").exit_code == 0
    before = Path("t.json").read_bytes()
    record.append(Path("o.jsonl"), *(replace(m, environment=replace(H200, device="another"))
                                     for m in SIX))  # fmt: skip
    done = call("calibrate", "o.jsonl", "-o", "t.json")
    assert done.exit_code == 2 and "is of device 'a GPU', these records of 'another'" in done.stderr
    assert Path("t.json").read_bytes() == before


def test_measuring_goes_through_a_study_and_asks_for_six_points(here, monkeypatch):
    """The study is a stand-in that times by the model: no GPU is here."""
    from workbench import machine, study

    asked = []

    def run(arms, workloads, *, clocks, device, budget_s, to, **rest):
        for w in workloads:
            for arm in arms:
                asked.append((w.tokens, w.heads, dict(arm.changes)["chunks_per_block"]))
                m = timed(arm.variant.name, {"tokens": w.tokens, "heads": w.heads}, asked[-1][2])
                record.append(to, m)
                yield m

    monkeypatch.setattr(study, "run", run)
    monkeypatch.setattr(machine, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(machine, "environment", lambda device: H200)
    done = call("calibrate", "--measure", "--variant", "split_k", "--json")
    assert done.exit_code == 0 and close(constants(done)["split_k"], REAL["split_k"][0], 0.01)
    assert sorted(asked) == sorted((p["tokens"], p["heads"], n) for p in PLACES for n in COUNTS)
    assert len(record.rows("runs/calibration.jsonl")) == 6
    refused = call("calibrate", "--measure", "--variant", "single_pass")
    assert refused.exit_code == 2 and "'single_pass'" in refused.stderr
