"""DuckDB's reader gives the table of the Python reader, or leaves the file to that one.

What is compared is the whole table; where DuckDB must not give up, `_exactly` is taken away.
"""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from test_records import ENVIRONMENT, as_schema, made

from workbench import reader, record
from workbench.op import Verdict

pytest.importorskip("duckdb")
ROOT = Path(__file__).parents[1]
PROFILE = {"span_us": 2.5, "kernels": {"kernel <µ>": [1, 2.5]}}
READING = {"sm_mhz": 1980, "power_w": 401.5, "throttles": ["power cap"], "others": None}
STATE = {"before": READING, "during": [READING], "after": READING}
MADE = [
    made(0, profile=PROFILE, state=STATE, twin_us=[1.0, 2.0], floor_us=1, reuse_bytes=2**40),
    made(1, profile=PROFILE, samples_us=[1, 2.5, 1e-07, 4e300, 5], config_asked={"group": 2}),
    made(2, samples_us=[], verdict=Verdict("error", why='a "quoted" \\ line\nµs 漢 \U0001f600')),
    made(3, samples_us=[0.0] * 9, flags=["throttled: power cap"], cost=None, statistics=None),
    made(4, ledger=None, study="another", block=3, config={}, config_asked={}, variant="eager"),
    made(5, op="page_split", workload={"pages": 3, "wide": True, "rows": None, "big": 2**70}),
    made(6, statistics={"a": {"b": {"c": [1, None]}}, "0.5": "x, ]", "other": {}}),
    made(7, environment=replace(ENVIRONMENT, device="ein Gerät", interpreted=False)),
]


def same(path, *paths) -> pd.DataFrame:
    """The table of both readers, which must be equal."""
    exact = record.load(path, *paths)
    for samples in (True, False):
        kept = exact if samples else exact.drop(columns=["samples_us", "twin_us"])
        pd.testing.assert_frame_equal(
            reader.load(path, *paths, samples=samples), kept, check_exact=True
        )
    return exact


@pytest.fixture
def duckdb_alone(monkeypatch):
    """Fail where a file is left to Python."""
    monkeypatch.setattr(reader, "_exactly", lambda path, _: pytest.fail(f"DuckDB left {path}"))


@pytest.fixture
def path(tmp_path):
    record.append(tmp_path / "records.jsonl", *MADE)
    return tmp_path / "records.jsonl"


def test_committed_records_are_the_same_table(duckdb_alone):
    assert len(same(ROOT / "traces/records")) > 100


def test_records_of_all_kinds_are_the_same_table(path, duckdb_alone):
    table = same(path)
    assert table["profile"][0] == PROFILE and table["state"][2] is None
    assert table["workload.big"][5] == 2**70 and table["verdict.why"][2] == MADE[2].verdict.why
    assert table["arm"].tolist()[:2] == ["union group=4", "union group=2"]


def test_schemas_in_one_file_are_the_same_table(path, duckdb_alone):
    old = [as_schema(schema, row) for schema in (1, 2) for row in record.read(path)]
    with path.open("a") as file:
        file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in old)
    assert same(path)["schema"].tolist() == [n for n in (3, 1, 2) for _ in MADE]


def test_files_keep_their_order_and_their_names(tmp_path, duckdb_alone):
    names = ["z.jsonl", "a*.jsonl", "ab.jsonl", "b[1].jsonl", "b1.jsonl", "c?.jsonl", "{a,b}.jsonl",
             "it's \"so\".jsonl", "x=1.jsonl", "back\\slash.jsonl", "r.jsonl.gz"]  # fmt: skip
    for i, name in enumerate(names):
        record.append(tmp_path / name, made(2 * i), made(2 * i + 1))
    table = same(*(tmp_path / name for name in names))
    assert table["workload.seed"].tolist() == list(range(2 * len(names)))
    assert table["file"].tolist() == [name for name in names for _ in range(2)]


def test_thousands_of_records_keep_their_order(tmp_path, duckdb_alone):
    lines = [record.as_row(made(i, samples_us=[float(i)] * (i % 7))) for i in range(5000)]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in lines)
    (tmp_path / "many.jsonl").write_text(text)
    assert same(tmp_path)["workload.seed"].tolist() == list(range(5000))


def test_equal_texts_are_one_object(path):
    table = reader.load(path)
    assert table["profile"][0] is table["profile"][1]


def line(**changes) -> str:
    return json.dumps(record.as_row(made()) | changes, separators=(",", ":"))


@pytest.mark.parametrize("broken", [
    "{", "records", '{"op": nan}', "\x00\x00", "[1]", "5", "{}", line() + line(), line() + " x",
    line(schema=9), line(schema="2"), line(schema=None), line(op=None), line(op=5), line(clock=[]),
    line(samples_us=["1.5"]), line(samples_us=[1.5, None]), line(samples_us=[[1]]),
    line(samples_us="1"), line(samples_us={}), line(samples_us=None), line(twin_us=["1"]),
    line(samples_us=[1.5, "2"]).replace("_us", "_\\u0075s"),
    line(verdict={}), line(verdict={"status": 1}), line(workload=[]), line(cost=[1]),
    line(environment='{"device":"x"}'), line(block="1"), line(floor_us="1"), line(profile=[1]),
    line(flags={}), line(calls_per_sample="1"), line().replace("2.25]", "2.25,]"),
    line().replace("2.25]", "2.25, ]"), line().replace("2.25]", "nan]"), line()[:-1],
    line().replace('"seed":0}', '"seed":0,}'), line().replace('"seed":0}', '"seed":inf}'),
    line().replace('"op"', '"Op"'), line().replace('"cache":"hot",', ""), "\ufeff", line() + ",",
])  # fmt: skip
def test_what_python_refuses_is_refused_with_the_same_words(path, broken):
    with path.open("a") as file:
        file.write(broken + "\n" + line() + "\n")
    with pytest.raises(record.RecordError) as exact:
        record.load(path)
    with pytest.raises(record.RecordError) as told:
        reader.load(path)
    assert str(told.value) == str(exact.value) and f":{len(MADE) + 1}: " in str(told.value)


@pytest.mark.parametrize("odd", [
    line().replace(":", " : "), line() + "\r", "\n   \n\x0b\n" + line(), "\ufeff" + line(),
    line(samples_us=[True, 2.0]), line().replace("2.25]", "NaN]"), line(extra={"a": 1}),
    line().replace("2.25]", "1e999]"), line().replace('"op":', '"op":"first","op":'),
    line(study="\ud800"), line(study="a\x00b"), line(study='"twin_us":["1"]'),
    line(study="x ,] y"), line(workload={"why": "," * 9 + "}"}), line(twin_us=None),
    line(statistics={"samples_us": ["1"]}), line(study="x" * 3_000_000),
    line(statistics={"deep": json.loads("[" * 300 + "]" * 300)}),
])  # fmt: skip
def test_what_python_reads_is_read_the_same(path, odd):
    with path.open("a") as file:
        file.write(odd + "\n" + line() + "\n")
    assert len(same(path)) == len(MADE) + 2


def test_a_torn_last_line_is_left_out_with_the_same_warning(path):
    whole = path.read_bytes()
    begins = whole.rindex(b"\n", 0, -1) + 1
    for cut in (begins + 1, (begins + len(whole)) // 2, len(whole) - 2):
        path.write_bytes(whole[:cut])
        with pytest.warns(UserWarning, match=rf"records\.jsonl:{len(MADE)}: left out a torn"):
            assert len(reader.load(path)) == len(MADE) - 1
    path.write_bytes(whole[:-1])  # only its newline is missing
    assert len(same(path)) == len(MADE)


def test_the_first_fault_is_told_where_several_files_have_one(path, tmp_path):
    (tmp_path / "b.jsonl").write_text("{}\n")
    (tmp_path / "a.jsonl").write_text("[]\n")
    for first, other in (("b", "a"), ("a", "b")):
        with pytest.raises(record.RecordError, match=rf"{first}\.jsonl:1: "):
            reader.load(path, tmp_path / f"{first}.jsonl", tmp_path / f"{other}.jsonl")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        reader.load(tmp_path / "none.jsonl")
    with pytest.raises(record.RecordError, match=rf"no records in .*{tmp_path.name}"):
        reader.load(tmp_path)
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(record.RecordError, match="no records"):
        reader.load(tmp_path)


def test_without_duckdb_python_reads(path, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    same(path)


def test_no_file_is_left_behind(path, monkeypatch):
    monkeypatch.chdir(path.parent)
    before = sorted(path.parent.iterdir()), sorted(Path(tempfile.gettempdir()).glob("duckdb*"))
    reader.load(path)
    after = sorted(path.parent.iterdir()), sorted(Path(tempfile.gettempdir()).glob("duckdb*"))
    assert after == before
