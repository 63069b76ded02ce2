"""Notebooks are thin, stripped, and run; sweeps resume; parameters keep their types."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from workbench.sweeps import execute, parameters, read_sweep, run_sweep
from workbench.sweeps.notebook import typed
from workbench.sweeps.run import JOURNAL

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SMALL = {
    "01_page_split": {"suite": "edges", "variants": ["eager_full", "eager_masked"]},
    "02_union_overlap": {"suite": "edges", "churn": [0.25]},
    "03_prefill_latency": {"suite": "edges", "variants": ["eager", "eager_union"], "churn": [0.3]},
    "04_swapab": {"variants": ["eager"], "tokens": [2, 4], "heads": [8], "blocks": 1},
    "05_decode_crossover": {"variants": ["eager"], "tokens": [1, 2], "heads": [16], "blocks": 1,
                            "counts": []},
}  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_is_thin_and_stripped(path):
    cells = nbformat.read(path, as_version=4).cells
    code = [c for c in cells if c.cell_type == "code"]
    assert len(code) <= 12 and parameters(path)
    for cell in code:
        assert not cell.outputs and cell.execution_count is None, cell.source
        assert len(cell.source.splitlines()) <= 10 or "parameters" in cell.metadata.get("tags", [])
        nodes = {type(node) for node in ast.walk(ast.parse(cell.source))}
        assert not nodes & {ast.FunctionDef, ast.ClassDef, ast.Lambda}, cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_shows_committed_records_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    execute(path, Path("out.ipynb"), {})
    assert list(Path("runs/figures").glob("*.svg"))


MEASURING = [path for path in NOTEBOOKS if path.stem in SMALL]


@pytest.mark.parametrize("path", [  # one here, the rest in `make test-slow`
    pytest.param(path, marks=[pytest.mark.slow] * (i > 0), id=path.stem)
    for i, path in enumerate(MEASURING)
])  # fmt: skip
def test_a_notebook_measures_here(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    given = {"measure": True, "device": "cpu", "clock": "wall_clock", "repeats": 1, "to": "r.jsonl"}
    execute(path, Path("out.ipynb"), given | SMALL[path.stem])
    rows = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert rows and {r["verdict"]["status"] for r in rows} <= {"passed", "unsupported"}


CLAIM = """
question: Does copying touched pages alone pay on this processor?
op: page_split
a: eager_full
b: eager_masked
clock: wall_clock
workload: {pages: 4}
blocks: 2
repeats: 5
"""


@pytest.mark.slow
def test_the_crossover_notebook_measures_a_claim_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("mine.yaml").write_text(CLAIM)
    given = {"measure": True, "device": "cpu", "claim_file": "mine.yaml", "to": "r.jsonl"}
    execute(ROOT / "notebooks/07_crossover.ipynb", Path("out.ipynb"), given)
    rows = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert sorted((r["block"], r["variant"]) for r in rows) == [
        (0, "eager_full"), (0, "eager_masked"), (1, "eager_full"), (1, "eager_masked")
    ]  # fmt: skip
    assert "Does copying touched pages alone pay" in Path("out.ipynb").read_text()


def write_notebook(folder: Path, source: str, body: str = "") -> Path:
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_code_cell(s) for s in (source, body) if s]
    book.cells[0].metadata["tags"] = ["parameters"]
    folder.mkdir(exist_ok=True)
    nbformat.write(book, folder / "book.ipynb")
    return folder / "book.ipynb"


def test_text_takes_the_type_of_the_default_and_no_other(tmp_path):
    source = "sha = ''\nT = 1\nshare = 0.5\non = False\nG = [1]\nmaybe = None"
    path = write_notebook(tmp_path, source)
    given = {"sha": "12345e6", "T": "8", "share": "1", "on": "true", "G": "2,4", "maybe": "x"}
    assert typed(path, given) == {
        "sha": "12345e6", "T": 8, "share": 1.0, "on": True, "G": [2, 4], "maybe": "x"
    }  # fmt: skip
    for name, value in (("T", "1e3"), ("T", 2.5), ("on", "2"), ("G", "a,b")):
        with pytest.raises(ValueError, match=name):
            typed(path, {name: value})


def test_numpy_numbers_are_numbers(tmp_path):
    import numpy as np

    path = write_notebook(tmp_path, "T = 1\nshare = 0.5\nG = [1]")
    given = typed(path, {"T": np.int64(8), "share": np.float32(0.5), "G": np.array([2, 4])})
    assert given == {"T": 8, "share": 0.5, "G": [2, 4]}
    assert json.loads(json.dumps(given)) == given


def test_an_interrupted_or_failed_point_runs_again_and_a_finished_one_does_not(tmp_path):
    body = "from pathlib import Path\nassert Path(gate).exists() or T == 1, 'closed'\n"
    body += "with Path(gate + '.log').open('a') as file:\n    file.write(f'{T} ')"
    write_notebook(tmp_path / "src", "T = 0\ngate = ''", body)
    gate = tmp_path / "open"
    sweep_file = tmp_path / "src" / "s.yaml"
    text = f"notebook: book.ipynb\nparameters: {{gate: {gate}}}\ngrid: {{T: [1, 2]}}\n"
    sweep_file.write_text(text)
    sweep, to = read_sweep(sweep_file), tmp_path / "out"
    assert [p.status for p in run_sweep(sweep, to)] == ["finished", "failed"]
    gate.touch()
    with (to / JOURNAL).open("a") as file:
        file.write('{"id": "torn')
    assert [p.status for p in run_sweep(sweep, to)] == ["kept", "finished"]
    assert [p.status for p in run_sweep(sweep, to)] == ["kept", "kept"]
    assert Path(f"{gate}.log").read_text() == "1 2 "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("notebook: book.ipynb\ngrid: {TT: [1]}", "TT"),
        ("notebook: book.ipynb\ngrid: {T: [one]}", "one"),
        ("notebook: book.ipynb\ngrid: {T: []}", "grid.T"),
        ("notebook: book.ipynb\ngrids: {T: [1]}", "grids"),
        ("notebook: book.ipynb\nparameters: {T: 1}\ngrid: {T: [2]}", "T stands in"),
        ("notebook: none.ipynb", "none.ipynb"),
        ("grid: {T: [1]}", "notebook"),
        ("[1, 2]", "list"),
        ("a: [", "not YAML"),
    ],
)
def test_a_sweep_file_is_refused_with_what_is_wrong(text, told, tmp_path):
    write_notebook(tmp_path, "T = 0")
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=told):
        list(run_sweep(read_sweep(tmp_path / "s.yaml"), tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_committed_sweeps_name_real_parameters(path):
    assert read_sweep(path).points()


@pytest.mark.slow
def test_plain_papermill_runs_a_notebook(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [str(NOTEBOOKS[0]), "out.ipynb", "-p", "clock", "graph_cold", "--log-level", "ERROR"]
    done = subprocess.run(
        [sys.executable, "-m", "papermill", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("body", "told"),
    [("import os; os._exit(3)", "DeadKernelError"), ("raise ValueError('no')", "ValueError: no")],
)
def test_a_notebook_that_dies_is_a_failed_point_and_the_sweep_goes_on(body, told, tmp_path):
    write_notebook(tmp_path / "src", "T = 0", f"if T == 1:\n    {body}")
    (tmp_path / "src" / "s.yaml").write_text("notebook: book.ipynb\ngrid: {T: [1, 2]}")
    points = list(run_sweep(read_sweep(tmp_path / "src" / "s.yaml"), tmp_path / "out"))
    assert [p.status for p in points] == ["failed", "finished"] and told in points[0].why
