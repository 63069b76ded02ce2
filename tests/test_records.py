"""Records on disk: appended and never rewritten, read whole or refused by name and line.

What a killed writer leaves (a torn last line) costs that record and no other; two writers at once
lose nothing; what was never computed is absent; every derived column is as its definition says.
"""

import json
import math
import multiprocessing
import warnings
from dataclasses import fields, replace

import pytest

from workbench.machine import Environment
from workbench.op import Verdict
from workbench.record import (
    SCHEMA,
    SINCE,
    Measurement,
    RecordError,
    append,
    as_row,
    files,
    load,
    read,
)

ENVIRONMENT = Environment(
    device="a processor", uuid="", capability="", driver="", cuda="", torch="2", triton="3",
    python="3.11", l2_bytes=0, multiprocessors=0, commit="", source="0123", interpreted=True,
)  # fmt: skip
PASSED = Verdict("passed", 0.0019, 0.0033)


def made(number: int = 0, **changes) -> Measurement:
    """A record that passed; `number` is its workload's seed."""
    plain = Measurement(
        op="sparse_prefill", variant="union", config={"group": 4}, config_asked={"group": 4},
        workload={"tokens": 8, "seed": number}, verdict=PASSED, cost={"bytes": 4000, "flops": 10},
        statistics={"union_ratio": {"2": 1.25}}, ledger={"rows": 12}, clock="wall_clock",
        cache="hot", calls_per_sample=1, samples_us=[3.0, 1.5, 2.25], twin_us=[], floor_us=None,
        index_sets=1, reuse_bytes=None, profile=None, state=None, flags=[], study="a study",
        block=0, environment=ENVIRONMENT,
    )  # fmt: skip
    return replace(plain, **changes)


def seeds(path) -> list[int]:
    return [row["workload"]["seed"] for row in read(path)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder that is not there yet" / "records.jsonl"


def test_what_was_appended_is_read_in_its_order(path):
    append(path, made(0), made(1))
    append(path, made(2))
    assert read(path) == [as_row(made(i, at=row["at"])) for i, row in enumerate(read(path))]
    assert read(path)[0]["samples_us"] == [3.0, 1.5, 2.25], "samples are raw and in order"
    assert path.read_bytes().count(b"\n") == 3


def test_what_was_not_computed_is_null_in_the_file_and_missing_in_the_table(path):
    failed = made(verdict=Verdict("error", why="no"), samples_us=[], cost=None, statistics=None)
    append(path, failed, made(1))
    row = json.loads(path.read_text().splitlines()[0], parse_constant=pytest.fail)
    assert row["verdict"]["error"] is None and row["cost"] is None and row["samples_us"] == []
    table = load(path)
    for column in ("verdict.error", "verdict.budget", "cost.bytes", "median_us", "gb_per_s"):
        assert table[column].isna().tolist() == [True, False], column
        assert table[column].dtype == float, f"{column} is {table[column].dtype}"


def test_a_table_of_failures_alone_has_no_numbers(path):
    append(path, made(verdict=Verdict("timeout"), samples_us=[], cost=None, statistics=None))
    table = load(path)
    for column in ("verdict.error", "median_us", "low_us", "high_us", "gb_per_s"):
        assert table[column].isna().all(), column
    assert table["samples_us"].tolist() == [[]]


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_no_file_holds_what_json_does_not(path, number):
    append(path, made(verdict=replace(PASSED, error=number), statistics={"ratio": [number]}))
    row = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert row["verdict"]["error"] is None and row["statistics"] == {"ratio": [None]}


def test_a_torn_last_line_costs_no_other_record(path):
    append(path, made(0), made(1), made(2))
    whole = path.read_bytes()
    begins = whole.rindex(b"\n", 0, -1) + 1
    for cut in {begins + 1, begins + 2, (begins + len(whole)) // 2, len(whole) - 2}:
        path.write_bytes(whole[:cut])
        with pytest.warns(UserWarning, match=r"records\.jsonl:3: .*torn"):
            assert seeds(path) == [0, 1]
        with pytest.warns(UserWarning, match="torn"):
            append(path, made(7), made(8))
        assert seeds(path) == [0, 1, 7, 8], f"cut at byte {cut - begins} of the line"
        assert path.read_bytes().startswith(whole[:begins]), "complete records were rewritten"


def test_a_file_that_is_one_torn_line_can_be_written_on(path):
    path.parent.mkdir()
    path.write_bytes(b'{"op":"spar')
    with pytest.warns(UserWarning, match="torn"):
        append(path, made(5))
    assert seeds(path) == [5]


def test_a_last_line_that_lacks_only_its_newline_is_kept(path):
    append(path, made(0), made(1))
    path.write_bytes(path.read_bytes()[:-1])
    assert seeds(path) == [0, 1]
    append(path, made(2))
    assert seeds(path) == [0, 1, 2]


@pytest.mark.parametrize("last", [False, True], ids=["in the middle", "last, with its newline"])
@pytest.mark.parametrize("broken", ["{", "records", '{"op": nan}', "\x00\x00"])
def test_a_broken_line_is_an_error_with_file_and_line(path, broken, last):
    append(path, made(0))
    with path.open("a") as file:
        file.write(broken + "\n")
    if not last:
        append(path, made(1))
    with pytest.raises(RecordError, match=r"records\.jsonl:2: not a record"):
        read(path)
    with pytest.raises(RecordError, match=r"records\.jsonl:2"):
        load(path)


@pytest.mark.parametrize("row, told", [
    ({"schema": SCHEMA + 7}, f"schema {SCHEMA + 7}"), ({}, "schema None"), ([1], "schema None"),
])  # fmt: skip
def test_another_schema_is_refused_by_its_number(path, row, told):
    append(path, made(0))
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(RecordError, match=rf"records\.jsonl:2: .*{told}.* schemas .*{SCHEMA}"):
        read(path)


@pytest.mark.parametrize("status", ["incorrect", "unsupported", "error", "timeout"])
def test_a_measurement_refuses_times_of_what_did_not_pass(status):
    with pytest.raises(ValueError, match="the pad was written"):
        made(verdict=Verdict(status, why="the pad was written"))
    assert made(verdict=Verdict(status), samples_us=[]).samples_us == []


@pytest.mark.parametrize("name", ["clock", "cache", "verdict", "environment", "config_asked"])
def test_a_measurement_cannot_leave_out_how_it_was_taken(name):
    given = {f.name: getattr(made(), f.name) for f in fields(Measurement)}
    del given[name]
    with pytest.raises(TypeError, match=name):
        Measurement(**given)


def test_what_is_not_there_is_said(path):
    for reader in (load, files):
        with pytest.raises(FileNotFoundError, match=r"records\.jsonl"):
            reader(path)
    path.parent.mkdir()
    with pytest.raises(RecordError, match="no records"):
        load(path.parent)


def test_a_folder_is_every_record_file_below_it(tmp_path):
    for place, number in (("a.jsonl", 0), ("b/c.jsonl", 1), ("b/d/e.jsonl", 2)):
        append(tmp_path / place, made(number))
    (tmp_path / "b/notes.txt").write_text("not a record")
    table = load(tmp_path)
    assert sorted(table["workload.seed"]) == [0, 1, 2]
    assert sorted(table["file"]) == ["a.jsonl", "c.jsonl", "e.jsonl"]
    assert sorted(load(tmp_path / "b", tmp_path / "a.jsonl")["workload.seed"]) == [0, 1, 2]


def fill(path, first: int, ready) -> None:
    """Append 50 records one by one once both writers are there."""
    ready.wait(60)
    for number in range(first, first + 50):
        append(path, made(number))


def test_two_writers_lose_nothing(path):
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(2)
    writers = [context.Process(target=fill, args=(path, first, ready)) for first in (0, 50)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = seeds(path)
    assert sorted(written) == list(range(100))
    for first in (0, 50):
        assert [n for n in written if first <= n < first + 50] == list(range(first, first + 50))


def as_schema(schema: int, row: dict) -> dict:
    """`row` as a workbench of an older schema wrote it."""
    kept = {name: value for name, value in row.items() if SINCE.get(name, 1) <= schema}
    if schema == 1:
        kept["environment"] = {k: v for k, v in row["environment"].items() if k != "uuid"}
    return kept | {"schema": schema}


def test_schema_1_is_read_and_what_it_lacks_is_absent(path):
    path.parent.mkdir()
    path.write_text(json.dumps(as_schema(1, as_row(made()))) + "\n")
    row = load(path).iloc[0]
    assert (row["block"], row["study"], row["twin_us"], row["flags"]) == (0, "", [], [])
    assert row["state"] is None and row["profile"] is None and math.isnan(row["floor_us"])


@pytest.mark.parametrize("name, value", [
    ("twin_us", ["1"]), ("cost", [1]), ("ledger", "x"), ("block", "0"), ("floor_us", "1"),
    ("samples_us", ["1"]), ("samples_us", [None]), ("flags", [1]), ("study", 3), ("verdict", {}),
    ("cost", {"bytes": "4 kB"}), ("cost", {"bytes": 1, "flops": True}),
])  # fmt: skip
def test_a_field_of_another_type_is_refused(path, name, value):
    path.parent.mkdir()
    path.write_text(json.dumps(as_row(made()) | {name: value}) + "\n")
    with pytest.raises(RecordError, match=rf"records\.jsonl:1: its {name}[ .]"):
        read(path)
