"""A claim's result follows from the records it names, and is found out where it does not."""

import copy
import json
import math
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from test_cli import call
from test_records import ENVIRONMENT, made

from workbench import atomic, claims, record
from workbench.ops import OPS

ROOT = Path(__file__).parents[1]
SHIPPED = sorted((ROOT / "claims").glob("*.*.json"))
GPU = replace(ENVIRONMENT, device="a GPU", capability="9.0", driver="1", cuda="13")
ASKED = {"question": "When?", "op": "sparse_prefill", "a": "per_token", "b": "union",
         "clock": "graph_hot", "axis": "tokens", "values": [64, 256, 1024, 4096]}  # fmt: skip


def planted(ratio, values=ASKED["values"], blocks=3, axis="tokens", **changes) -> list:
    """Records of per_token at 100 us and union at `ratio(value)` of it, 0.1 % apart by block."""
    out, workload = [], {"tokens": 64} | changes.pop("workload", {})
    for block in range(blocks):
        for value in values:
            for arm, us in (("per_token", 100.0), ("union", 100.0 * ratio(value))):
                us *= 1 + 0.001 * (block - 1) * (1 if arm == "union" else -1)
                twin = [us * 1.0005] * 4 if arm == "per_token" else []
                fixed = {"environment": GPU, "clock": "graph_hot", "study": "planted"}
                asked = asdict(OPS["sparse_prefill"].variants[arm].config)
                out.append(made(variant=arm, block=block, workload=workload | {axis: value},
                                samples_us=[us] * 4, twin_us=twin, config=asked,
                                config_asked=asked, **fixed | changes))  # fmt: skip
    return out


def crossing(value: float) -> float:
    """A ratio that is 1 at 700 tokens."""
    return (700 / value) ** 0.1


@pytest.fixture
def claim(tmp_path):
    """A claim file with planted records that answer it, and its result."""
    import yaml

    path = tmp_path / "when.yaml"
    path.write_text(yaml.safe_dump(ASKED))
    record.append(tmp_path / "records.jsonl", *planted(crossing))
    done = call("claim", "run", path, "--from", tmp_path / "records.jsonl")
    assert done.exit_code == 0, done.output
    return path


def result_of(path: Path) -> Path:
    (found,) = path.parent.glob(f"{path.stem}.*.json")
    return found


def checked(path: Path):
    return call("claim", "check", path, path.parent / "records.jsonl")


def edited(path: Path, change) -> None:
    """Rewrite the JSON of a result, or the first line of records, by `change`."""
    first, *rest = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    content = json.loads(first)
    change(content)
    path.write_text("\n".join([json.dumps(content), *rest]) + "\n")


# --- the committed claims

@pytest.mark.parametrize("path", SHIPPED, ids=[p.name for p in SHIPPED])
def test_a_committed_result_follows_from_the_committed_records(path):
    name, device = path.name.removesuffix(".json").split(".", 1)
    claim = claims.read_claim(path.with_name(f"{name}.yaml"))
    result = claims.read_result(path)
    rows = claims.named(result, record.rows(ROOT / "traces/records" / device))
    again = claims.derive(claim, OPS[claim.op], rows)
    assert set(again) | {"at"} == set(result)
    assert claims.check(claim, OPS[claim.op], result, rows) == []
    assert result["verdict"] not in ("INVALID", "AMBIGUOUS") and result["blocks"] >= 3


def test_every_committed_claim_has_a_result():
    asked = {p.stem for p in (ROOT / "claims").glob("*.yaml")}
    assert asked == {p.name.split(".")[0] for p in SHIPPED} and len(asked) >= 2


# --- what is found out

def test_an_untouched_result_holds(claim):
    done = checked(claim)
    assert done.exit_code == 0 and done.stdout.strip().endswith("holds")
    result = json.loads(result_of(claim).read_text())
    assert result["verdict"] == "CROSSES" and result["crossings"][0]["between"] == [256, 1024]
    assert result["noise"] == pytest.approx(0.0005) and result["blocks"] == 3


def test_one_changed_digit_of_a_record_is_found(claim):
    def change(row):
        row["samples_us"][2] += 1e-9

    edited(claim.parent / "records.jsonl", change)
    done = checked(claim)
    assert done.exit_code == 1 and "1 of 24 records are not among those" in done.stdout


def test_a_missing_record_is_found(claim):
    path = claim.parent / "records.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert checked(claim).exit_code == 1


def test_records_that_a_result_does_not_name_are_left_aside(claim):
    record.append(claim.parent / "records.jsonl", *planted(lambda v: 5.0, study="a later one"))
    assert checked(claim).exit_code == 0


TOUCHED = {
    "verdict": lambda r: r.update(verdict="FASTER"),
    "said": lambda r: r.update(said=r["said"].replace("1024", "512")),
    "cases[1] high": lambda r: r["cases"][1].update(high=r["cases"][1]["high"] * (1 + 1e-6)),
    "crossings[0] low": lambda r: r["crossings"][0].update(low=690.0),
    "crossings[0] between[1]": lambda r: r["crossings"][0]["between"].__setitem__(1, 900.0),
    "noise": lambda r: r.update(noise=None),
    "flags": lambda r: r.update(flags=["throttled: no"]),
    "blocks": lambda r: r.update(blocks=5),
    "environment device": lambda r: r["environment"].update(device="another GPU"),
    "would_be": lambda r: r.update(would_be="CROSSES"),
    "cases": lambda r: r["cases"].pop(),
}


@pytest.mark.parametrize(("where", "change"), TOUCHED.items(), ids=TOUCHED)
def test_a_changed_result_is_found_with_the_place_and_both_values(where, change, claim):
    edited(result_of(claim), change)
    done = checked(claim)
    assert done.exit_code == 1 and f": {where} is " in done.stdout, done.output
    assert "the records give" in done.stdout


def test_the_last_bit_of_a_logarithm_is_no_fault(claim):
    """Two processors' logarithms differ in it."""

    def change(result):
        for case in result["cases"]:
            case["ratio"] = math.nextafter(case["ratio"], 9)

    edited(result_of(claim), change)
    assert checked(claim).exit_code == 0


# --- what a claim refuses

def test_a_flagged_record_makes_a_claim_invalid(tmp_path, claim):
    path = tmp_path / "flagged.jsonl"
    rows = planted(crossing)
    record.append(path, replace(rows[3], flags=["throttled: heat"]), *rows[:3], *rows[4:])
    done = call("claim", "run", claim, "--from", path, "--result", tmp_path / "r.json", "--json")
    got = json.loads(done.stdout)
    assert done.exit_code == 1 and got["verdict"] == "INVALID" and got["would_be"] == "CROSSES"
    assert got["flags"] == ["throttled: heat"]


@pytest.mark.parametrize("field", ["device", "driver", "torch", "triton"])
def test_records_of_two_setups_are_refused(field, tmp_path, claim):
    other = planted(crossing, environment=replace(GPU, **{field: "other"}))
    record.append(tmp_path / "both.jsonl", *planted(crossing), *other)
    done = call("claim", "run", claim, "--from", tmp_path / "both.jsonl", "--result",
                tmp_path / "r.json")  # fmt: skip
    assert done.exit_code == 2 and f"2 setups, a claim holds on one: {field} " in done.stderr
    assert "other" in done.stderr and not (tmp_path / "r.json").exists()


def test_records_of_other_questions_are_left_aside(tmp_path, claim):
    """Another clock or workload is not named; another config is, and tells nothing."""
    more = [
        *planted(lambda v: 5.0, clock="graph_cold"),
        *planted(lambda v: 5.0, workload={"heads": 64}),
        *[replace(m, config_asked=m.config_asked | {"group": 2})
          for m in planted(lambda v: 5.0, study="g") if m.variant == "union"],
    ]  # fmt: skip
    record.append(tmp_path / "more.jsonl", *more[-12:], *planted(crossing), *more[:-12])
    call("claim", "run", claim, "--from", tmp_path / "more.jsonl", "--result", tmp_path / "r.json")
    got, known = (json.loads(p.read_text()) for p in (tmp_path / "r.json", result_of(claim)))
    assert got["cases"] == known["cases"] and got["crossings"] == known["crossings"]
    assert got["crossings"][0]["faster_beyond"] == "union" and len(got["records"]) == 24 + 12


def test_one_block_decides_nothing_and_leaves_no_nan(tmp_path, claim):
    record.append(tmp_path / "one.jsonl", *planted(crossing, blocks=1))
    done = call("claim", "run", claim, "--from", tmp_path / "one.jsonl", "--result",
                tmp_path / "r.json")  # fmt: skip
    assert done.exit_code == 1
    got = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert got["verdict"] == "AMBIGUOUS" and got["cases"][0]["low"] is None
    assert call("claim", "check", claim, tmp_path / "one.jsonl", "--result",
                tmp_path / "r.json").exit_code == 0  # fmt: skip


BAD = {
    "a list": ("- a\n", "list, not a mapping"),
    "empty": ("", "NoneType, not a mapping"),
    "no YAML": ("a: [", "not YAML"),
    "binary": (bytes(range(256)), "not YAML"),
    "keys that are no text": ("1: 2\n", "question: Field required"),
    "unknown key": ({"colour": "red"}, "colour: Extra inputs are not permitted, got 'red'"),
    "wrong type": ({"blocks": "many"}, "blocks: Input should be a valid integer"),
    "one block": ({"blocks": 1}, "blocks: "),
    "an axis without values": ({"values": []}, "axis tokens with values []"),
    "values without an axis": ({"axis": None}, "axis None with values [64"),
    "an axis that does not vary": ({"values": [64, 64.0]}, "axis tokens with values [64, 64.0]"),
    "an axis that stays": ({"workload": {"tokens": 8}}, "tokens is the axis, and a field"),
    "values that are text": ({"values": ["a", "b"]}, "got 'a'"),
    "nan on the axis": ({"values": [float("nan"), 4]}, "finite"),
    "several lines": ({"workload": {"heads": "8,16"}}, "8 workloads for 4 values of tokens"),
    "unknown op": ({"op": "sparse_prefil"}, "'sparse_prefil'; did you mean 'sparse_prefill'"),
    "unknown arm": ({"b": "onion"}, "'onion'; did you mean 'union'"),
    "unknown config field": ({"b": "union groups=4"}, "'groups'; did you mean 'group'"),
    "unknown field": ({"workload": {"token": 8}}, "unknown workload field 'token'"),
    "the same arm twice": ({"b": "per_token"}, "'per_token' and 'per_token' are the same arm"),
    "by its default": ({"a": "union group=4"}, "are the same arm"),
    "a clock of a GPU": ({}, "'graph_hot' needs a GPU"),
    "unknown clock": ({"clock": "sundial"}, "unknown clock 'sundial'"),
}


@pytest.mark.parametrize(("content", "told"), BAD.values(), ids=BAD)
def test_a_bad_claim_is_told_in_one_line_before_anything_runs(content, told, tmp_path):
    import yaml

    path = tmp_path / "claim.yaml"
    if isinstance(content, dict):
        asked = {k: v for k, v in (ASKED | content).items() if v is not None}
        content = yaml.safe_dump(asked)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = call("claim", "run", path, "--device", "cpu", "--to", tmp_path / "r.jsonl")
    assert done.exit_code == 2 and told in done.stderr, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["claim.yaml"]


NO_RESULT = {
    "no JSON": (b"{", "is no JSON"), "binary": (bytes(range(256)), "is no JSON"),
    "deep": (b"[" * 100_000, "is no JSON"), "a list": (b"[]", "schema 1"),
    "another schema": ({"schema": 2}, "schema 1"),
    "no records": ({"records": []}, "records"), "odd records": ({"records": 5}, "got 5"),
    "no verdict": ({"verdict": None}, "verdict"), "odd cases": ({"cases": [1]}, "cases: 0"),
    "odd machine": ({"environment": [1]}, "environment"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "told"), NO_RESULT.values(), ids=NO_RESULT)
def test_what_is_no_result_is_told(content, told, claim):
    path, whole = claim.parent / "odd", result_of(claim)
    if isinstance(content, dict):
        content = json.dumps(json.loads(whole.read_text()) | content).encode()
    path.write_bytes(content)
    for words in (["check", claim, claim.parent / "records.jsonl", "--result", path],
                  ["diff", path, whole], ["diff", whole, path]):  # fmt: skip
        done = call("claim", *words)
        assert done.exit_code == 2 and told in done.stderr, done.output
        assert len(done.stderr.strip().splitlines()) == 1


# --- two results of one claim

def differing(claim: Path, change) -> Path:
    other = claim.parent / "other"
    shutil.copy(result_of(claim), other)
    edited(other, change)
    return other


def test_a_diff_abstains_across_machines_and_says_why(claim):
    other = differing(claim, lambda r: r["environment"].update(device="B200", driver="2"))
    done = call("claim", "diff", result_of(claim), other)
    assert done.exit_code == 2 and done.stdout == ""
    assert "not comparable, the machines differ: device: a GPU and B200; driver: 1 and 2" in (
        done.stderr
    )


def test_a_diff_of_what_is_invalid_abstains(claim):
    done = call("claim", "diff", result_of(claim), differing(claim, lambda r: r.update(
        verdict="INVALID")))  # fmt: skip
    assert done.exit_code == 2 and "the second result is INVALID" in done.stderr


def test_a_diff_of_two_claims_is_refused(claim):
    other = differing(claim, lambda r: r.update(b="union group=8"))
    done = call("claim", "diff", result_of(claim), other)
    assert done.exit_code == 2 and "not the same claim: b is 'union' and" in done.stderr


def test_a_diff_finds_a_real_difference_and_no_other(claim, tmp_path):
    same = call("claim", "diff", result_of(claim), result_of(claim))
    assert same.exit_code == 0 and "no difference" in same.stdout
    record.append(tmp_path / "later.jsonl", *planted(lambda v: crossing(v) * 0.97))
    call("claim", "run", claim, "--from", tmp_path / "later.jsonl", "--result", tmp_path / "r")
    done = call("claim", "diff", result_of(claim), tmp_path / "r", "--json")
    found = json.loads(done.stdout)
    assert len(found) == 4 and "1.270" in found[0] and "1.232" in found[0], "all moved by 3 %"


def test_a_crossing_that_moved_past_its_neighbours_is_a_difference(claim):
    def change(result):
        result["crossings"][0]["between"] = [2000.0, 4096.0]

    one = json.loads(result_of(claim).read_text())
    other = copy.deepcopy(one)
    change(other)
    assert claims.difference(one, other) == [
        "crossing: between 256.0 and 1024.0, and between 2000.0 and 4096.0"]  # fmt: skip


def test_a_failed_write_leaves_the_old_result(claim, monkeypatch):
    path = result_of(claim)
    before = path.read_bytes()
    monkeypatch.setattr(atomic.os, "replace", lambda *a: (_ for _ in ()).throw(OSError("!")))
    with pytest.raises(OSError, match="!"):
        claims.write_result(path, {"verdict": "SAME"})
    assert path.read_bytes() == before and not list(claim.parent.glob("*.partial"))
