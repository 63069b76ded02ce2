"""`workbench profile import`: the totals that files are known for, one line about what is none."""

import gzip
import json
import sqlite3
from contextlib import closing

import planted
import pytest
from test_cli import call
from test_profiles import DATA, unpacked

KERNELS = {  # (rows, ns) in a range, outside every range, without a launch row
    "h100_2gpu_1s": [(1632, 23_147_229), (0, 0), (1810, 21_682_293)],
    "no_nvtx": [(0, 0), (111, 1_729_481), (319, 6_239_748)],
}


@pytest.fixture(scope="module", params=KERNELS)
def export(request, tmp_path_factory):
    return request.param, unpacked(request.param, tmp_path_factory.mktemp("exports"))


def test_an_export_has_the_totals_that_it_is_known_for(export):
    name, path = export
    done = call("profile", "import", path, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    totals = [(r["rows"], r["gpu_ns"]) for r in said["totals"] if r["kind"] == "kernel"]
    assert totals == KERNELS[name]
    assert sum(r["self_ns"] for r in said["ranges"]) == totals[0][1]


def test_the_table_says_the_totals_in_all_digits(export):
    name, path = export
    done = call("profile", "import", path)
    for rows, ns in KERNELS[name]:
        assert f"{rows:,} ({ns:,} ns)" in done.stdout
    assert ("no ranges: all that was launched is outside" in done.stdout) == (name == "no_nvtx")
    assert ("shorter ranges" in done.stdout) == (name == "h100_2gpu_1s")
    if name == "h100_2gpu_1s":
        assert "3,442 (44,829,522 ns)" in done.stdout


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json.gz")), ids=lambda p: p.name[:20])
def test_every_committed_trace_imports(path):
    done = call("profile", "import", path)
    assert done.exit_code == 0, done.output


def test_a_collected_trace_shows_plan_and_kernel_and_who_it_was(tmp_path):
    path = planted.trace(tmp_path / "union.json.gz")
    said = json.loads(call("profile", "import", path, "--json").stdout)
    (case,) = said["cases"]
    assert case["middle"]["span_us"] == 2150.0 and case["passes"] == 5
    assert case["middle"]["ranges"] == {"plan": 578.0, "kernel": 1569.0}
    assert case["middle"]["kernels"]["_union_kernel"] == [1, 1569.0]
    by_name = {r["name"]: r for r in said["ranges"]}
    assert by_name["call"]["inclusive_ns"] == 5 * 2_147_000 and not by_name["call"]["self_ns"]
    assert by_name["plan"]["share"] == pytest.approx(578 / 2147)
    done = call("profile", "import", path)
    assert "union: 2,150.0 us from first start to last end" in done.stdout


def test_a_cleaned_trace_holds_no_place_host_or_environment(tmp_path):
    path = planted.trace(tmp_path / "union.json.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    assert planted.SECRET not in text and "/home" not in text
    first = json.loads(text)["traceEvents"][0]
    assert first["ts"] == 0 and first["args"] == {"domain": "workbench", "payload": planted.CASE}
    again = planted.trace(tmp_path / "again.json.gz")
    assert again.read_bytes() == path.read_bytes()


def test_a_driver_that_numbers_the_process_as_the_host_does_is_the_same_process(tmp_path):
    """tests/data/profiles/triton_example: its only launch is of no process that has a range."""
    plain = planted.trace(tmp_path / "plain.json.gz")
    other = planted.trace(tmp_path / "other.json.gz", driver=3_100_453)
    assert plain.read_bytes() == other.read_bytes()


def truncated(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def newer(path):
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE META_DATA_EXPORT SET value = '4.0.0' "
                   "WHERE name LIKE 'EXPORT_SCHEMA_VERSION%'")  # fmt: skip


def foreign(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE mine (x INTEGER)")


def empty(path):
    path.write_bytes(b"")


def missing(path):
    path.unlink()


@pytest.mark.parametrize(("harm", "why"), [
    (truncated, "not a whole SQLite export"), (newer, "newer than the 3.x"),
    (foreign, "no Nsight Systems export"), (empty, "an empty file"), (missing, "No such file"),
])  # fmt: skip
def test_what_is_no_whole_export_is_one_line(tmp_path, harm, why):
    path = unpacked("no_nvtx", tmp_path)
    harm(path)
    refused(path, why)


def test_a_locked_export_is_one_line(tmp_path):
    path = unpacked("no_nvtx", tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        refused(path, "locked")


@pytest.mark.parametrize("cut", ["inside", "around"])
def test_cut_json_is_one_line(tmp_path, cut):
    path = tmp_path / "cut.json.gz"
    whole = gzip.decompress(planted.trace(path).read_bytes())
    (tmp_path / "raw.json").unlink()
    half = len(whole) // 2
    packed = gzip.compress(whole)
    content = gzip.compress(whole[:half]) if cut == "inside" else packed[: len(packed) // 2]
    path.write_bytes(content)
    refused(path, "not JSON" if cut == "inside" else "not a whole gzip file")


def refused(path, why: str) -> None:
    before = sorted(path.parent.iterdir())
    for words in (["import", path], ["compare", path, "no.jsonl"]):
        done = call("profile", *words)
        assert done.exit_code == 2, done.output
        (line,) = done.stderr.strip().splitlines()
        assert path.name in line and not done.stdout
        assert why in line or words[0] == "compare", line
    assert sorted(path.parent.iterdir()) == before
