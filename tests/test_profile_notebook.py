"""%%gpu_profile, Kineto around a notebook, and the timeline picture."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import planted
import pytest
from test_cli import call
from test_notebooks import write_notebook

from workbench import figures, notebook, profiles
from workbench.profiles.cases import window

ROOT = Path(__file__).parents[1]
CELL = """import torch
from workbench import ranges
with ranges.span("plan"):
    square = torch.ones(20, 20) @ torch.ones(20, 20)
int(square.sum())"""


@pytest.fixture(scope="module")
def shell():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def displayed(shell, monkeypatch):
    """What a cell displays, in order."""
    from IPython import display

    shown = []
    monkeypatch.setattr(display, "display", lambda *values: shown.extend(values))
    shell.run_line_magic("load_ext", "workbench")
    yield shown
    shell.run_line_magic("unload_ext", "workbench")


def test_the_magic_shows_ranges_and_a_timeline_and_gives_the_value(shell, displayed, tmp_path):
    trace = tmp_path / "cell.json.gz"
    done = shell.run_cell_magic("gpu_profile", str(trace), CELL)
    assert done == 8000 and shell.user_ns["square"].shape == (20, 20)
    table, picture = displayed
    assert set(table["name"]) == {"cell", "plan"} and (table["CPU ms"] > 0).all()
    assert picture.data.startswith("<?xml") or "<svg" in picture.data
    assert set(profiles.read(trace).ranges["name"]) == {"cell", "plan"}


def test_an_error_in_the_cell_is_the_cells(shell, displayed):
    with pytest.raises(ZeroDivisionError):
        shell.run_cell_magic("gpu_profile", "", "1 / 0")
    with pytest.raises(SyntaxError):
        shell.run_cell_magic("gpu_profile", "", "if True print")
    with pytest.raises(ValueError, match=r"notes\.txt.*json\.gz"):
        shell.run_cell_magic("gpu_profile", "notes.txt", "1")
    assert not displayed


def test_loading_needs_ipython_only_where_it_is_used():
    code = ("import sys, workbench, workbench.notebook; "
            "sys.exit('IPython' in sys.modules or 'torch' in sys.modules)")  # fmt: skip
    assert not subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode


def test_a_notebook_is_profiled_cell_by_cell(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = write_notebook(tmp_path / "src", "T = 1", f"T += 1\n{CELL}")
    done = call("profile", "--notebook", book, "-p", "T", "8", "--to", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    events = profiles.read(tmp_path / "out/book.json.gz")
    cells = events.ranges[events.ranges["name"] == "cell"]
    plan = events.ranges[events.ranges["name"] == "plan"]
    assert cells["payload"].tolist() == [1, 2, 3, 4]  # parameters, those injected, body, the end
    assert plan["payload"].tolist() == [3]
    executed = json.loads((tmp_path / "out/book.ipynb").read_text())
    assert len(executed["cells"]) == 3 and "_workbench" not in json.dumps(executed)
    assert executed["metadata"]["papermill"]["input_path"] == str(book)
    text = gzip.decompress((tmp_path / "out/book.json.gz").read_bytes()).decode()
    assert str(tmp_path) not in text
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        "book.ipynb", "book.json.gz", "book.summary.json"
    ]  # fmt: skip


def test_a_notebook_that_fails_leaves_no_trace(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = write_notebook(tmp_path / "src", "T = 1", "assert T == 2, 'is 1'")
    done = call("profile", "--notebook", book, "--to", tmp_path / "out")
    assert done.exit_code == 1 and "is 1" in done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["book.ipynb"]


def drawn(path: Path, found, *more) -> str:
    return figures.save(figures.timeline(found, *more), path.stem, path.parent).read_text()


def colors(svg: str) -> set[str]:
    return set(re.findall(r"fill: (#[0-9a-f]{6})", svg)) - {"#ffffff", "#262626"}


def test_a_timeline_has_lanes_for_streams_and_ranges_in_one_set_of_colors(tmp_path):
    found = profiles.attribute(profiles.read(planted.trace(tmp_path / "union.json.gz")))
    svg = drawn(tmp_path / "a", found)
    assert {"stream 7", "CPU", "CPU +1", "plan", "kernel", "call"} <= set(
        re.findall(r"<!-- (.*?) -->", svg)
    )
    assert len(colors(svg)) == 3
    assert drawn(tmp_path / "b", found) == svg
    begin, end = window(found)
    assert end - begin == 2_350_000  # from the opening of the call to its last kernel's end
    assert drawn(tmp_path / "c", found, (begin, end)) != svg
    with pytest.raises(ValueError, match="no GPU rows"):
        figures.timeline(found, (-10, -5))


def test_work_outside_of_ranges_and_without_a_launch_is_grey(tmp_path):
    from test_profiles import DATA

    path = DATA / "trace_file_list__inference_rank_1.json.gz"
    svg = drawn(tmp_path / "a", profiles.attribute(profiles.read(path)))
    assert "outside every range" in svg and colors(svg) == {"#c4c4c4"}


def test_a_table_for_people_is_in_milliseconds(tmp_path):
    found = profiles.attribute(profiles.read(planted.trace(tmp_path / "union.json.gz")))
    table = notebook.by_range(found).set_index("name")
    assert table.loc["plan", "GPU ms"] == 2.89 and table.loc["kernel", "GPU rows"] == 5
