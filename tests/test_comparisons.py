"""Comparisons on the command line: what is told, which exit code, what is never left behind."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from test_claims import GPU, crossing, planted
from test_cli import call

from workbench import record
from workbench.op import Verdict

ROOT = Path(__file__).parents[1]
AB = ["-a", "per_token", "-b", "union"]
ALONG = [*AB, "-x", "tokens"]
in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git checkout")


@pytest.fixture
def file(tmp_path):
    """Write measurements into a file of records."""

    def write(measurements, name: str = "records"):
        path = tmp_path / f"{name}.jsonl"
        record.append(path, *measurements)
        return path

    return write


@pytest.fixture
def good(file):
    return file(planted(crossing))


def read(done) -> object:
    return json.loads(done.stdout, parse_constant=pytest.fail)


# --- two arms, two files

def test_two_arms_of_one_file(good):
    done = call("compare", good, *AB)
    assert done.exit_code == 0 and done.stdout.count("union / per_token") == 4
    assert "SLOWER" in done.stdout and "FASTER" in done.stdout and "±0.05%" in done.stdout
    assert "of 4 cases: 2 below 1, 2 above" in done.stdout
    cases = read(call("compare", good, *AB, "--json"))
    assert [c["verdict"] for c in cases["cases"]] == ["SLOWER"] * 2 + ["FASTER"] * 2
    assert (cases["geomean"]["below"], cases["geomean"]["above"]) == (2, 2)


def test_a_file_with_itself_is_an_a_a_comparison(good):
    done = call("compare", good, good)
    assert done.exit_code == 0 and "this is an A/A comparison" in done.stderr
    assert "geometric mean 1.000 of 8 cases: 0 below 1, 0 above" in done.stdout


@pytest.mark.parametrize("words", [["compare", *AB], ["crossover", *ALONG]])
def test_one_block_has_no_interval_and_no_nan(words, file):
    path = file(planted(crossing, blocks=1))
    done = call(words[0], path, *words[1:])
    assert done.exit_code == 0 and "nan" not in done.output
    assert "one block" in done.stdout or "neither is shown to be faster anywhere" in done.stdout
    found = read(call(words[0], path, *words[1:], "--json"))
    case = (found if isinstance(found, dict) else found[0])["cases"][0]
    assert case["ratio"]["low"] is None and case["verdict"] == "AMBIGUOUS"


def test_rows_of_two_devices_name_theirs(file):
    two = [*planted(crossing), *planted(crossing, environment=replace(GPU, device="B200"))]
    out = call("compare", file(two), *AB).stdout
    assert out.count("a GPU ") >= 4 and out.count("B200 ") >= 4


REFUSED = {
    "the same arm": (["-a", "union", "-b", "union"], "'union' is both arms"),
    "unknown arm": (["-a", "onion", "-b", "union"], "'onion'; did you mean 'union'"),
    "one arm": (["-a", "union"], "name two files or revisions"),
    "unknown clock": ([*AB, "--clock", "sundial"], "'sundial' (known: graph_hot)"),
    "no picture": ([*AB, "--figure", "x.png"], "x.png does not end in .svg"),
}


@pytest.mark.parametrize(("words", "told"), REFUSED.values(), ids=REFUSED)
def test_a_comparison_is_refused_with_the_value(words, told, good):
    done = call("compare", good, *words)
    assert done.exit_code == 2 and told in done.stderr and not done.stdout


@pytest.mark.parametrize("content", [b"", bytes(range(256)), b'{"schema":99}\n', None, "folder"])
@pytest.mark.parametrize("words", [["compare", *AB], ["crossover", *ALONG],
                                   ["crossover", *ALONG, "--refine"], ["regress"]])  # fmt: skip
def test_what_holds_no_records_is_told_in_one_line(words, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "odd.jsonl"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    done = call(words[0], path, *([path] if words[0] == "regress" else words[1:]))
    assert done.exit_code == 2 and len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout and (content in (None, "folder") or path.read_bytes() == content)


# --- crossings

def test_a_crossing_is_told_with_its_interval_and_the_noise(good):
    done = call("crossover", good, *ALONG)
    assert done.exit_code == 0 and "union is faster from tokens=1024 on, not yet at 256" in (
        done.stdout
    )
    assert "A/A ±0.05%" in done.stdout
    (line,) = read(call("crossover", good, *ALONG, "--json"))
    (found,) = line["found"]["crossings"]
    assert found["low"] <= 700 <= found["high"] and line["said"] in done.stdout


def test_a_line_for_each_device_and_clock(file):
    cold = planted(lambda v: crossing(v / 2), clock="graph_cold")
    two = planted(crossing, environment=replace(GPU, device="B200"))
    path = file([*planted(crossing), *cold, *two])
    assert len(call("crossover", path, *ALONG).stdout.splitlines()) == 3
    assert len(call("crossover", path, *ALONG, "--clock", "graph_cold").stdout.splitlines()) == 1


def test_flags_are_told_below_a_line(file):
    rows = planted(crossing)
    done = call("crossover", file([replace(rows[0], flags=["throttled: heat"]), *rows[1:]]), *ALONG)
    assert "  flagged: throttled: heat" in done.stdout


@pytest.mark.parametrize(
    ("axis", "values", "told"),
    [("colour", [1, 2], "unknown axis 'colour'"), ("law", ["walk", "uniform"], "law="),
     ("tokens", [64], "no line along tokens"), ("heads", [8], "no line along heads")],
)  # fmt: skip
def test_an_axis_that_is_none_is_told(axis, values, told, file):
    path = file(planted(lambda v: 0.9, values, axis=axis if axis != "colour" else "tokens"))
    done = call("crossover", path, *AB, "-x", axis)
    assert done.exit_code == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1


def test_figures_are_written_where_they_are_asked_for(file, tmp_path):
    rows = [m for i, churn in enumerate((0.0, 0.1, 0.3)) for m in
            planted(crossing, workload={"churn": churn}, study=f"study {i}")]  # fmt: skip
    path, new = file(rows), tmp_path / "new" / "folder"
    done = call("crossover", path, *ALONG, "-y", "churn", "--figure", new / "map.svg")
    assert done.exit_code == 0 and str(new / "map.svg") in done.stderr  # 0.1 is the default
    assert call("crossover", path, *ALONG, "--figure", new / "line.svg").exit_code == 0
    assert call("compare", path, *AB, "--figure", new / "forest.svg").exit_code == 0
    assert sorted(p.name for p in new.iterdir()) == [
        "forest.svg", "line_1.svg", "line_2.svg", "line_3.svg", "map.svg"]  # fmt: skip
    for words, told in ((["-y", "law"], "law=walk is no number"), (["-y", "no"], "field 'no'"),
                        (["-y", "heads"], "heads=8 is given twice")):  # fmt: skip
        done = call("crossover", path, *ALONG, *words, "--figure", new / "no.svg")
        assert done.exit_code == 2 and told in done.stderr and not (new / "no.svg").exists()
    done = call("crossover", path, *ALONG, "-y", "churn")
    assert done.exit_code == 2 and "--figure" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [(ALONG, "measures here, on "), ([*AB, "-x", "union_ratio.2"], "'union_ratio.2' is none of"),
     ([*ALONG, "--clock", "events"], "'events' (known: graph_hot)")],
)  # fmt: skip
def test_refinement_of_what_is_not_measured_here_changes_nothing(words, told, good):
    before = good.read_bytes()
    done = call("crossover", good, *words, "--refine")
    assert done.exit_code == 2 and told in done.stderr and good.read_bytes() == before
    assert call("crossover", good, good, *words, "--refine").exit_code == 2


def test_refinement_adds_points_like_those_of_the_file(file, monkeypatch):
    """The machine of the records is this one; their workload and configs are asked for again."""
    from workbench import machine, refinement, study

    path, asked = file(planted(crossing, workload={"heads": 16})), []

    def run(arms, workloads, *, clocks, blocks, modules, to):
        asked.extend(workloads)
        assert [a.variant.name for a in arms] == ["per_token", "union"]
        assert dict(arms[1].changes)["group"] == 4 and (clocks, blocks) == (["graph_hot"], 3)
        found = planted(crossing, [w.tokens for w in workloads], workload={"heads": 16},
                        study=f"study {len(asked)}")  # fmt: skip
        record.append(to, *found)
        return found

    monkeypatch.setattr(study, "run", run)
    monkeypatch.setattr(refinement, "environment", lambda device: GPU)
    assert refinement.environment is not machine.environment
    done = call("crossover", path, *ALONG, "--refine", "--to-within", "0.2")
    assert done.exit_code == 0, done.output
    assert 2 <= len(asked) <= 8 and {w.heads for w in asked} == {16}
    assert all(256 < w.tokens < 1024 for w in asked)


# --- a gate

def test_the_gate_closes_on_a_confirmed_slowdown_alone(file):
    base = file(planted(lambda v: 0.8), "base")
    slow = file(planted(lambda v: 0.9, study="later"), "slow")
    noisy = file(planted(lambda v: 0.81, study="later"), "a percent")
    once = file(planted(lambda v: 0.9, blocks=1, study="later"), "once")
    done = call("regress", base, slow)
    assert done.exit_code == 1 and "4 of 8 cases are slower, confirmed" in done.stdout
    assert "union tokens=256 (graph_hot): slower by 12.5% (" in done.stdout
    assert read(call("regress", base, slow, "--json"))["slower"][0]["ratio"]["low"] > 1
    for new, words in ((base, []), (noisy, []), (slow, ["--relative", "0.2"]),
                       (slow, ["--absolute", "20"])):  # fmt: skip
        done = call("regress", base, new, *words)
        assert done.exit_code == 0 and "0 of 8 cases are slower" in done.stdout, done.output
    done = call("regress", base, once)
    assert done.exit_code == 0 and "8 cases have one process block" in done.stderr
    assert call("regress", slow, base).exit_code == 0


def test_the_gate_closes_on_a_variant_that_fails_now(file):
    base = file(planted(lambda v: 0.8), "base")
    rows = planted(lambda v: 0.8, study="later")
    wrong = {"verdict": Verdict("incorrect", why="x"), "samples_us": [], "twin_us": []}
    failed = [replace(m, **wrong) if (m.variant, m.workload["tokens"]) == ("union", 64) else m
              for m in rows]  # fmt: skip
    done = call("regress", base, file(failed, "failed"))
    assert done.exit_code == 1
    assert "union tokens=64 (graph_hot): incorrect, timed in" in done.stdout
    fewer = file([m for m in rows if m.workload["tokens"] > 64], "fewer")
    done = call("regress", base, fewer)
    assert done.exit_code == 0 and "2 cases of" in done.stderr
    assert len(read(call("regress", base, fewer, "--json"))["absent"]) == 2


# --- two revisions

def worktrees() -> list[str]:
    done = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines()


@in_git
def test_a_revision_that_is_none_is_told_before_anything_runs(tmp_path):
    before = worktrees()
    done = call("compare", "HEAD", "no-such-revision", "--op", "page_split", "--to", tmp_path)
    assert done.exit_code == 2 and "'no-such-revision' is no git revision" in done.stderr
    done = call("compare", "HEAD", "no.jsonl", "--to", tmp_path)
    assert done.exit_code == 2 and "'no.jsonl' are not both files" in done.stderr
    assert worktrees() == before


@in_git
def test_one_revision_twice_is_an_a_a_comparison_and_leaves_nothing_behind(tmp_path, monkeypatch):
    """Its records are those of this comparison alone: an earlier one's are left aside."""
    from workbench import revisions

    ran, before = [], worktrees()

    def run(name, tree, what, to):
        assert (tree / "workbench/cli").is_dir() and tree != ROOT
        ran.append(tree)
        record.append(to, *planted(lambda v: 0.9, [64], blocks=1))

    monkeypatch.setattr(revisions, "_run", run)
    old = planted(lambda v: 2.0, [128], blocks=2, study="earlier")
    record.append(tmp_path / "base.jsonl", *old)
    record.append(tmp_path / "new.jsonl", *old)
    words = ["HEAD", "HEAD", "--op", "sparse_prefill", "--blocks", "3", "--to", tmp_path]
    done = call("compare", *words)
    assert done.exit_code == 0, done.output
    assert "this is an A/A comparison" in done.stderr and "tokens=128" not in done.stdout
    assert "geometric mean 1.000 of 2 cases: 0 below 1, 0 above" in done.stdout
    first, second = dict.fromkeys(ran)
    assert ran == [first, second, second, first, first, second], "in turns, forward and backward"
    rows = [r for r in record.read(tmp_path / "new.jsonl") if r["study"] != "earlier"]
    assert [r["block"] for r in rows] == [0, 0, 1, 1, 2, 2] and len({r["study"] for r in rows}) == 1
    assert worktrees() == before and not first.exists() and not second.exists()


@pytest.mark.slow
def test_a_version_measures_with_its_own_command_line(tmp_path):
    from workbench.revisions import _run

    what = {"op": "page_split", "variant": ["eager_full"], "workload": ["pages=4"], "config": None,
            "clock": None, "device": "cpu"}  # fmt: skip
    _run("here", ROOT, what, tmp_path / "r.jsonl")
    (row,) = record.read(tmp_path / "r.jsonl")
    assert row["workload"]["pages"] == 4 and row["samples_us"]
    with pytest.raises(RuntimeError, match=r"here made no record: .*'page_spilt'"):
        _run("here", ROOT, what | {"op": "page_spilt"}, tmp_path / "none.jsonl")


# --- quality

def outcomes(path: Path, right) -> Path:
    path.write_text("item,correct\n" + "".join(f"q{i},{int(right(i))}\n" for i in range(1319)))
    return path


def test_fourteen_against_fifteen_of_1319(tmp_path):
    """sglang#32320: candidate only 14, control only 15."""
    a = outcomes(tmp_path / "a.csv", lambda i: i < 1234 + 15)
    b = outcomes(tmp_path / "b.csv", lambda i: i < 1234 or 1249 <= i < 1263)
    done = call("quality", a, b)
    assert done.exit_code == 0
    assert "both right 1234, only A 15, only B 14, both wrong 56: p = 1\n" in done.stdout
    assert "B - A: -1 of 1319 items, 95 % from -12 to +10" in done.stdout
    found = read(call("quality", a, b, "--json"))
    assert found["p"] == 1.0 and (found["low"], found["high"]) == (-12 / 1319, 10 / 1319)


ODD = {
    "missing items": (b"item,correct\nq0,1\n", "B lacks 1318 items of the other run: q1, q2, q3"),
    "given twice": (b"item,correct\nq0,1\nq0,0\n", "b:3: item 'q0' is given twice"),
    "odd outcome": (b"item,correct\nq0,perhaps\n", "b:2: 'perhaps' is none of"),
    "empty": (b"", "b holds no items"),
    "binary": (bytes(range(256)), "b is no text"),
    "an item that is a list": (b'{"item": [1], "correct": true}', "b:1: item [1] is neither"),
    "deep": (b'{"item": ' + b"[" * 100_000, "b:1: "),
    "endless": (b"item,correct\n" + b"x" * 200_000 + b",1\n", "b:2: field larger"),
    "nan": (b'{"item": "q0", "correct": NaN}', "b:1: nan is none of"),
}


@pytest.mark.parametrize(("content", "told"), ODD.values(), ids=ODD)
def test_outcomes_that_are_none_are_told_in_one_short_line(content, told, tmp_path):
    (tmp_path / "b").write_bytes(content)
    done = call("quality", outcomes(tmp_path / "a.csv", lambda i: True), tmp_path / "b")
    assert done.exit_code == 2 and told in done.stderr and len(done.stderr) < 400
    assert len(done.stderr.splitlines()) == 1 and not done.stdout


# --- ceilings and ledger

def test_ceilings_of_the_committed_records():
    done = call("ceilings", ROOT / "traces/records/nvidia_h200/ceilings.jsonl")
    assert done.exit_code == 0 and "GB/s" in done.stdout and "TFLOP/s" in done.stdout
    found = read(call("ceilings", ROOT / "traces/records", "--json"))["NVIDIA H200"]
    assert 3000 < found["copy_gb_per_s"] < 4800 and found["bf16_tflop_per_s"] < 990  # data sheet


def test_records_without_a_ceiling_are_told(good):
    done = call("ceilings", good)
    assert done.exit_code == 2 and "hold no ceiling" in done.stderr and not done.stdout


def test_a_ledger_counts_without_running():
    words = ["sparse_prefill", "-w", "tokens=8", "-w", "topk=16", "--variant", "union"]
    done = call("ledger", *words, "-c", "group=2,4")
    assert done.exit_code == 0 and "union group=2" in done.stdout and "gathered rows" in done.stdout
    two, four = (r["ledger"] for r in read(call("ledger", *words, "-c", "group=2,4", "--json")))
    assert two["gathered_rows"] > four["gathered_rows"] >= four["unique_rows"]
    floor = read(call("ledger", *words, "--json"))[0]["floor"]
    assert floor["us"] == max(floor["limits_us"].values())
    assert read(call("ledger", *words, "--device-name", "no device", "--json"))[0]["floor"] is None


@pytest.mark.parametrize(
    ("words", "told"),
    [(["device_copy"], "'device_copy' (known: "), (["nope"], "unknown op 'nope'"),
     (["sparse_prefill", "-w", "tokens=-1"], "tokens=-1"),
     (["sparse_prefill", "-c", "groups=2"], "'groups'; did you mean 'group'")],
)  # fmt: skip
def test_a_ledger_is_refused_with_the_value(words, told):
    done = call("ledger", *words)
    assert done.exit_code == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1
