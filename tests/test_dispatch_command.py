"""`workbench dispatch`: records become a table, a table a plan, a mix of calls its regret."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_dispatch_records import GPU, blocks
from typer.testing import CliRunner

from workbench import record
from workbench.cli import app
from workbench.models.dispatch_table import Table, read, text

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "traces/records/nvidia_h200/sparse_decode.jsonl"


def call(*words):
    return CliRunner().invoke(app, ["dispatch", *map(str, words)])


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A folder with records of three token counts, and their table."""
    folder = tmp_path_factory.mktemp("records")
    for tokens, times in ((1, (10.0, 12.0)), (8, (12.0, 20.0)), (64, (90.0, 80.0))):
        for variant, us in zip(("split_k", "single_pass"), times, strict=True):
            place = {"tokens": tokens, "padding": "mixed"}
            record.append(folder / "r.jsonl", *blocks(variant, [us, us * 1.01], workload=place))
    assert call(folder / "r.jsonl", "-o", folder / "t.json").exit_code == 0
    return folder


@pytest.fixture
def here(records, tmp_path, monkeypatch):
    """A folder of the test's own with the same records and table."""
    monkeypatch.chdir(tmp_path)
    for name in ("r.jsonl", "t.json"):
        Path(name).write_bytes((records / name).read_bytes())
    return tmp_path


def test_records_become_a_table(here):
    done = call("r.jsonl", "--json")
    assert done.exit_code == 0 and done.stdout == Path("t.json").read_text()
    assert done.stdout == call("table", "r.jsonl", "--json").stdout
    assert [e.workload["tokens"] for e in read("t.json").entries] == [1, 8, 64]
    shown = call("r.jsonl").stdout
    assert "a GPU" in shown and "1.20x" in shown and "single_pass" in shown


def test_the_committed_records_make_a_table():
    done = call(SHIPPED, "--device-name", "NVIDIA H200", "--triton", "3.6.0", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["arch"] == "sm_90"


def test_help_names_every_command():
    for words in ((), ("--help",)):
        said = call(*words).output
        assert all(name in said for name in ("table", "plan", "regret", "RECORDS"))


def test_a_plan_says_which_and_why(here):
    done = call("plan", "-w", "tokens=1,2,64", "--table", "t.json", "--json")
    plans = json.loads(done.stdout)
    assert [p["variant"] for p in plans] == ["split_k", "split_k", "single_pass"]
    assert plans[1]["why"].startswith("measured at 1 and 8 tokens: ")
    assert plans[0]["workload"]["padding"] == "mixed" and plans[0]["config"]["block_h"] == 16
    shown = call("plan", "-w", "tokens=1,2", "--table", "t.json").stdout
    assert "tokens=2" in shown and "next single_pass 1.20x" in shown


def test_a_plan_needs_no_table_and_takes_a_variant():
    plans = json.loads(call("plan", "--suite", "requests", "--arch", "sm_90", "--json").stdout)
    assert len(plans) == 9 and "no table" in plans[0]["why"]
    assert {p["variant"] for p in plans} == {"split_k_registers"}
    done = call("plan", "--variant", "split_k", "-c", "chunks_per_block=8", "--json")
    assert json.loads(done.stdout)[0]["config"]["chunks_per_block"] == 8
    assert "split_k chunks_per_block=8" in call("plan", "--variant", "split_k", "-c",
                                                "chunks_per_block=8").stdout


def test_a_plan_without_its_table_says_so_and_is_made(here):
    with pytest.warns(UserWarning, match=r"t\.json .* not 'another'"):
        done = call("plan", "--table", "t.json", "--device-name", "another", "--json")
    assert done.exit_code == 0 and "no table" in json.loads(done.stdout)[0]["why"]


def test_regret_counts_what_a_choice_loses(here):
    Path("m.csv").write_text("tokens,weight\n1,10\n8,5\n64,1\n9,3\n")
    done = call("regret", "t.json", "--mix", "m.csv", "r.jsonl", "--json")
    told = json.loads(done.stdout)
    assert told["lines"][0]["lost"] == 0 and told["oracle_us"] == told["lines"][0]["us"]
    assert [w["tokens"] for w in told["unmeasured"]] == [9]
    shown = call("regret", "t.json", "--mix", "m.csv", "r.jsonl").stdout
    assert "no record measures tokens=9" in shown and shown.count("not measured") == 2
    held = call("regret", "t.json", "--mix", "m.csv", "r.jsonl", "--held-out").stdout
    # 64 tokens follow from those up to 8, where split_k was faster: 90 us where 80 would do
    assert "held out" in held and "12.5%" in held and "worst calls" in held


def test_regret_names_choices_that_no_record_measures(here):
    table = read("t.json")
    only = [r for r in record.rows("r.jsonl") if r["variant"] == "split_k"]
    record.append_rows(Path("s.jsonl"), only)
    Path("m.json").write_text(json.dumps([{"tokens": 64, "weight": 1}]))
    shown = call("regret", "t.json", "--mix", "m.json", "s.jsonl").stdout
    assert "no record measures single_pass at default" in shown
    assert text(read("t.json")) == text(table)


BAD = {
    "records in its place": (["r.jsonl", "-o", "r.jsonl"], "r.jsonl is no dispatch table: it is"),
    "a folder": (["r.jsonl", "-o", "."], ". is a folder"),
    "no records": (["none.jsonl"], "none.jsonl"),
    "another op": (["r.jsonl", "--op", "sparse_decoding"], "did you mean 'sparse_decode'"),
    "no record of an op": (["r.jsonl", "--op", "page_split"], "'page_split'"),
    "a device": (["r.jsonl", "--device-name", "H200"], "'H200' (known: a GPU)"),
    "a clock": (["r.jsonl", "--clock", "graph_hot"], "'graph_hot'"),
    "a Triton": (["r.jsonl", "--triton", "9"], "'9'"),
    "a field": (["plan", "-w", "T=1"], "'T'"),
    "a variant": (["plan", "--variant", "split"], "'split'"),
    "a config alone": (["plan", "-c", "block_h=16"], "--variant"),
    "two configs": (["plan", "--variant", "split_k", "-c", "block_h=16,32"], "2 configs"),
    "outside": (["plan", "--variant", "split_k_swapped_wgmma", "-w", "heads=64"], "heads=64 excee"),
    "another GPU": (["plan", "--variant", "split_k_wgmma", "--arch", "sm_120"], "sm_120"),
    "an arch": (["plan", "--arch", "sm90"], "'sm90' is neither sm_ and a number"),
    "a mix": (["regret", "t.json", "--mix", "r.jsonl", "r.jsonl"], "neither .csv nor JSON"),
    "no mix": (["regret", "t.json", "--mix", "m.csv", "r.jsonl"], "m.csv"),
    "no table": (["regret", "r.jsonl", "--mix", "m.csv"], "r.jsonl is no dispatch table"),
}  # fmt: skip


@pytest.mark.parametrize("words, said", BAD.values(), ids=BAD)
def test_bad_input_is_told_in_a_line(here, words, said):
    done = call(*words)
    lines = done.stderr.strip().splitlines()
    assert (done.exit_code, len(lines)) == (2, 1) and said in lines[0], done.output


def test_records_of_two_setups_are_to_be_chosen_from(here):
    for name, other in (("device", "another"), ("triton", "3.9.0")):
        path = Path(f"{name}.jsonl")
        environment = replace(GPU, **{name: other})
        record.append_rows(path, record.rows("r.jsonl"))
        record.append(path, *blocks("split_k", [5.0], environment=environment))
        option = "--device-name" if name == "device" else f"--{name}"
        assert f"choose with {option}" in call(path).stderr
        assert call(path, option, other, "-o", "o.json").exit_code == 0
        assert getattr(Table.load("o.json"), name) == other


ODD = {
    "no environment": ({"environment": {}}, "environment.device of a record of sparse_decode is"),
    "no device": ({"environment": {"device": None}}, "device of a record of sparse_decode is miss"),
    "a Triton of numbers": ({"environment": {"triton": 3.6}}, "sparse_decode is 3.6, no text"),
    "no torch": ({"environment": {"torch": None}}, "torch of a record of sparse_decode is missing"),
    "a list as source": ({"environment": {"source": [1]}}, "source of a record is [1], no single"),
    "a list of tokens": ({"workload": {"tokens": [8]}}, "tokens of a record is [8], no single"),
    "a list in a config": ({"config": {"block_h": [16]}}, "block_h of a record is [16], no single"),
    "tokens of another kind": ({"workload": {"tokens": True}}, "that sparse_decode has: tokens=Tr"),
    "a field of another op": ({"workload": {"T": 8}}, "of a workload that sparse_decode has: T=8"),
}  # fmt: skip


@pytest.mark.parametrize("named", [(), ("--device-name", "a GPU")], ids=["any", "named"])
@pytest.mark.parametrize("changes, said", ODD.values(), ids=ODD)
def test_odd_records_are_told_in_a_line_and_make_no_table(here, changes, said, named):
    rows = [r for r in record.rows("r.jsonl") if r["workload"]["tokens"] == 8]
    for name, value in changes.items():
        rows = [r | {name: r[name] | value if name == "environment" and value else value}
                for r in rows]  # fmt: skip
    record.append_rows(Path("odd.jsonl"), rows)
    done = call("odd.jsonl", *named, "-o", "o.json")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1) and said in done.stderr, done.output
    assert not Path("o.json").exists()


def test_odd_records_among_others_are_left_out_and_told_in_a_line(here):
    whole = call("r.jsonl", "--json").stdout
    rows = record.rows("r.jsonl")
    odd = [rows[0] | {"workload": rows[0]["workload"] | {"tokens": [8]}},
           rows[1] | {"environment": rows[1]["environment"] | {"l2_bytes": "50M"}},
           rows[2] | {"environment": rows[2]["environment"] | {"device": None, "torch": 2}}]
    record.append_rows(Path("odd.jsonl"), odd)
    done = call("odd.jsonl", "r.jsonl", "-o", "o.json", "--json")
    assert (done.exit_code, done.stdout) == (0, whole) and Path("o.json").read_text() == whole
    assert done.stderr == (f"workbench: left out 3 of {3 + len(rows)} records, the first in "
                           "odd.jsonl: workload.tokens of a record is [8], no single value\n")
    assert call("r.jsonl").stderr == ""


def test_numbers_beside_an_odd_one_are_still_numbers(here):
    """One that is null is missing where the others are numbers, and not where one is text."""
    first, *others = record.rows("r.jsonl")
    l2 = {value: first | {"environment": first["environment"] | {"l2_bytes": value}}
          for value in (None, "50M")}  # fmt: skip
    record.append_rows(Path("null.jsonl"), [l2[None], *others])
    record.append_rows(Path("odd.jsonl"), [l2["50M"]])
    alone, beside = call("null.jsonl", "--json"), call("null.jsonl", "odd.jsonl", "--json")
    assert alone.exit_code == beside.exit_code == 0 and beside.stdout == alone.stdout


def test_a_cost_that_is_no_number_is_told_in_a_line(here):
    rows = [r | {"cost": {"bytes": "4 kB", "flops": 10}} for r in record.rows("r.jsonl")[:1]]
    record.append_rows(Path("odd.jsonl"), rows)
    done = call("r.jsonl", "odd.jsonl")
    assert done.exit_code == 2
    assert done.stderr.endswith("odd.jsonl:1: its cost.bytes is '4 kB', no number\n")


@pytest.mark.parametrize("count, said", [("many", "'many', no single value"), (None, "missing")])
def test_calibration_needs_the_count_of_multiprocessors(here, count, said):
    rows = [r | {"environment": r["environment"] | {"multiprocessors": count}}
            for r in record.rows("r.jsonl")]  # fmt: skip
    record.append_rows(Path("odd.jsonl"), rows)
    done = call("calibrate", "odd.jsonl")
    assert done.exit_code == 2 and f"multiprocessors of a record is {said}" in done.stderr


def test_records_given_twice_are_read_once(here):
    once = call("r.jsonl", "--json")
    assert call("r.jsonl", here, here / "r.jsonl", "--json").stdout == once.stdout
