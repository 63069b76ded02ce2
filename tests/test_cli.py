"""Bad input is one clear line with the value in hand and exit code 2, and loses nothing."""

import json

import pytest
import torch
from typer.testing import CliRunner

from workbench.cli import app
from workbench.cli.notebooks import joined

TINY = ["-w", "pages=3", "-w", "batch=1"]


def call(*words: str):
    return CliRunner().invoke(app, joined([str(w) for w in words]))


@pytest.fixture
def notebook(tmp_path):
    def write(source: str, tags=("parameters",)):
        import nbformat

        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
        book.cells[0].metadata["tags"] = list(tags)
        nbformat.write(book, tmp_path / "book.ipynb")
        return tmp_path / "book.ipynb"

    return write


BAD = {
    "unknown op": (["check", "page_spilt"], ["'page_spilt'", "page_split"]),
    "unknown variant": (["check", "page_split", "--variant", "mask"], ["'mask'", "masked"]),
    "unknown suite": (["check", "page_split", "--suite", "edge"], ["'edge'", "edges"]),
    "unknown workload field": (["check", "page_split", "-w", "page=3"], ["'page'", "pages"]),
    "unknown config field": (["check", "page_split", "-c", "warps=3"], ["'warps'", "num_warps"]),
    "not a number": (["check", "page_split", "-w", "pages=many"], ["pages='many'", "int"]),
    "a fraction": (["check", "page_split", "-w", "pages=2.5"], ["pages='2.5'", "int"]),
    "no value": (["check", "page_split", "-w", "pages"], ["'pages'", "NAME=VALUE"]),
    "given twice": (["check", "page_split", "-w", "pages=1", "-w", "pages=2"], ["pages", "twice"]),
    "topk below 1": (["check", "sparse_prefill", "-w", "topk=0"], ["topk=0"]),
    "heads below 1": (["check", "sparse_prefill", "-w", "heads=0"], ["heads=0"]),
    "page size": (["check", "page_split", "-w", "page_size=100"], ["page_size=100", "64"]),
    "unknown law": (["check", "sparse_prefill", "-w", "law=walks"], ["law='walks'", "walk"]),
    "unknown clock": (["measure", "page_split", "--clock", "sundial"], ["'sundial'", "graph_hot"]),
    "unknown device": (["check", "page_split", "--device", "tpu"], ["'tpu'"]),
    "unknown arch": (["compile", "page_split", "--arch", "sm_12"], ["'sm_12'", "sm_90"]),
    "missing module": (["check", "page_split", "--module", "no.py"], ["no.py"]),
    "missing records": (["show", "no.jsonl"], ["no.jsonl"]),
    "missing notebook": (["run", "no.ipynb"], ["no.ipynb"]),
    "missing sweep": (["sweep", "run", "no.yaml", "--to", "x"], ["no.yaml"]),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_line(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call(*words)
    assert done.exit_code == 2, done.output
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.output
    assert all(piece in lines[0] for piece in told), lines[0]
    assert not list(tmp_path.iterdir()), "a refused command left files behind"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("device", ["cuda", "cuda:3"])
def test_a_gpu_that_is_not_here_is_refused(device):
    done = call("check", "page_split", *TINY, "--device", device)
    assert done.exit_code == 2
    assert repr(device) in done.stderr


def test_a_graph_clock_on_a_cpu_is_refused(tmp_path):
    done = call("measure", "page_split", "--device", "cpu", "--clock", "graph_hot", "--to",
                tmp_path / "r.jsonl")  # fmt: skip
    assert done.exit_code == 2
    assert "graph_hot" in done.stderr and not (tmp_path / "r.jsonl").exists()


def test_records_that_cannot_be_written_are_refused_before_anything_runs(tmp_path):
    (tmp_path / "file").write_text("in the way")
    done = call("measure", "page_split", *TINY, "--to", tmp_path / "file" / "r.jsonl")
    assert done.exit_code == 2 and str(tmp_path / "file") in done.stderr


@pytest.mark.parametrize("command", ["show", "figures"])
def test_records_of_another_schema_are_refused(command, tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps({"schema": 99}) + "\n")
    done = call(command, path)
    assert done.exit_code == 2 and "old.jsonl:1" in done.stderr and "99" in done.stderr


def test_a_notebook_without_parameters_is_refused(notebook, tmp_path):
    path = notebook("x = 1", tags=())
    done = call("run", path, "-o", tmp_path / "out.ipynb")
    assert done.exit_code == 2 and "parameters" in done.stderr
    assert not (tmp_path / "out.ipynb").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-p", "token", "8"], ["'token'", "tokens"]),
        (["-p", "tokens", "eight"], ["tokens='eight'"]),
        (["-p", "shared", "maybe"], ["shared='maybe'"]),
    ],
)
def test_notebook_parameters_are_checked_before_it_runs(words, told, notebook, tmp_path):
    path = notebook("tokens = 4\nname = 'a'\nshared = False")
    done = call("run", path, *words, "-o", tmp_path / "out.ipynb")
    assert done.exit_code == 2 and all(piece in done.stderr for piece in told), done.output
    assert not (tmp_path / "out.ipynb").exists()


def test_an_executed_notebook_cannot_replace_its_source(notebook):
    path = notebook("x = 1")
    before = path.read_bytes()
    assert call("run", path, "-o", path).exit_code == 2
    assert path.read_bytes() == before


def test_a_notebook_that_fails_says_where_and_keeps_its_output(notebook, tmp_path):
    path, out = notebook("x = 1"), tmp_path / "out.ipynb"
    book = json.loads(path.read_text())
    failing = {"id": "b", "metadata": {}, "source": "assert x == 2, 'is 1'"}
    book["cells"].append(book["cells"][0] | failing)
    path.write_text(json.dumps(book))
    done = call("run", path, "-o", out)
    assert done.exit_code == 1 and "AssertionError" in done.stderr and "is 1" in done.stderr
    assert out.exists()


def test_check_says_what_passed_and_exits_zero():
    done = call("check", "page_split", *TINY, "--json")
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)["results"]
    assert {r["status"] for r in results} == {"passed"} and len(results) == 7


def test_check_of_nothing_but_unsupported_is_not_well():
    words = ["--variant", "union", "-w", "heads=12", "-w", "tokens=4", "-w", "topk=8"]
    done = call("check", "sparse_prefill", *words)
    assert done.exit_code == 1 and "48" in done.stdout


def test_a_list_of_values_is_one_workload_each(tmp_path):
    words = ["-w", "pages=2,3", "--variant", "eager_full", "--device", "cpu", "--repeats", "2"]
    done = call("measure", "page_split", *words, "--to", tmp_path / "r.jsonl", "--json")
    assert done.exit_code == 0, done.output
    assert [r["workload"]["pages"] for r in json.loads(done.stdout)] == [2, 3]
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2


def test_list_names_every_variant():
    done = call("list", "--json")
    names = {(v["op"], v["variant"]) for v in json.loads(done.stdout)["variants"]}
    assert ("page_split", "masked") in names and ("sparse_prefill", "union") in names


def test_doctor_says_what_runs_here():
    done = call("doctor", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["probe"]["status"] == "passed"


def test_a_module_that_ends_the_process_or_prints_is_told(tmp_path):
    (tmp_path / "ends.py").write_text("import sys\nsys.exit(0)")
    (tmp_path / "prints.py").write_text("print('hello')")
    done = call("list", "--module", tmp_path / "ends.py")
    assert done.exit_code == 2 and "ends.py: SystemExit" in done.stderr
    done = call("list", "--module", tmp_path / "prints.py", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)


def test_a_record_that_lacks_a_field_is_told_with_its_line(tmp_path):
    path = tmp_path / "r.jsonl"
    words = ["-w", "pages=2", "--variant", "eager_full", "--device", "cpu", "--repeats", "1"]
    assert call("measure", "page_split", *words, "--to", path).exit_code == 0
    row = json.loads(path.read_text())
    for name in ("op", "config_asked", "samples_us", "flags", "environment", "verdict"):
        path.write_text(json.dumps(row | {name: None}) + "\n")
        for command in ("show", "figures"):
            done = call(command, path)
            assert done.exit_code == 2 and f"r.jsonl:1: its {name} is None" in done.stderr


def test_a_file_that_holds_no_records_is_left_alone(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("one line")
    done = call("measure", "page_split", "-w", "pages=2", "--device", "cpu", "--to", path)
    assert done.exit_code == 2 and "notes.md" in done.stderr and path.read_text() == "one line"


def test_none_is_a_word_where_a_field_is_text():
    words = ["-w", "sink=none", "-w", "length=none", "-w", "rows=none", "-w", "topk=4"]
    done = call("check", "sparse_prefill", "--variant", "eager", "-w", "tokens=3", *words)
    assert done.exit_code == 0, done.output
