"""`workbench profile OP`: passes behind the gate, a trace that imports, nsys here and elsewhere."""

import json
import os
import shlex
import stat
import warnings
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from test_cli import call
from test_profiles import synthetic_export

from workbench import profiles, ranges
from workbench.profiles import nsys_run
from workbench.timing import passes

TINY = ["-w", "pages=3", "-w", "batch=1", "--device", "cpu"]
WRONG = """
import torch
from workbench.ops.page_split import page_split


@page_split.variant()
def wrong(x, config):
    \"\"\"Copy nothing.\"\"\"
    return page_split.variants["eager_full"].run(x, None)._replace(destination=x.destination * 0)
"""


def test_a_profile_on_a_cpu_has_ranges_with_their_case(tmp_path):
    words = ["--variant", "eager_full", "--variant", "eager_masked", "--variant", "masked"]
    done = call("profile", "page_split", *words, *TINY, "--to", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    assert "masked: unsupported" in done.stderr and "interpreter" in done.stderr
    said = json.loads(done.stdout)
    cases = {case["label"]: case["case"] for case in said["cases"]}
    assert set(cases) == {"eager_full", "eager_masked"}
    events = profiles.read(tmp_path / said["trace"])
    calls = events.ranges[events.ranges["name"] == "call"]
    assert calls["payload"].value_counts().to_dict() == dict.fromkeys(cases.values(), passes.PASSES)
    assert set(calls["domain"]) == {"workbench"}
    assert {r["name"] for r in said["ranges"]} == {
        f"{label}: {name}" for label in cases for name in ("call", "warm_up")
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "page_split.json.gz", "page_split.summary.json"
    ]  # fmt: skip
    shown = call("profile", "import", tmp_path / said["trace"])
    assert shown.exit_code == 0 and "this is the CPU side alone" in shown.stdout


def test_a_variant_that_fails_the_gate_is_told_and_not_profiled(tmp_path):
    (tmp_path / "wrong.py").write_text(WRONG)
    words = ["--module", tmp_path / "wrong.py", "--variant", "wrong", *TINY]
    done = call("profile", "page_split", *words, "--to", tmp_path / "out")
    assert done.exit_code == 1 and "wrong: " in done.stderr, done.output
    assert not list((tmp_path / "out").iterdir())


BAD = {
    "unknown tool": (["page_split", "--tool", "nsight"], ["'nsight'", "kineto"]),
    "unknown op": (["page_spilt"], ["'page_spilt'", "page_split"]),
    "neither": (["--tool", "kineto"], ["operation", "--notebook"]),
    "both": (["page_split", "--notebook", "n.ipynb"], ["operation", "--notebook"]),
    "two workloads": (["page_split", "-w", "pages=3,4"], ["one workload", "2"]),
    "rotating": (["page_split", "--clock", "graph_rotating", "--device", "cpu"], ["rotat"]),
    "a GPU's clock": (["page_split", "--clock", "graph_hot", "--device", "cpu"], ["needs a GPU"]),
    "-p of an op": (["page_split", "-p", "pages", "3"], ["pages=3", "-w"]),
    "a notebook's tool": (["--notebook", "n.ipynb", "--tool", "cupti"], ["'cupti'", "nsys"]),
    "missing notebook": (["--notebook", "n.ipynb"], ["n.ipynb"]),
}


@pytest.mark.parametrize(("words", "told"), BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_line(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("profile", *words)
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.strip().splitlines()
    assert all(piece in line for piece in told), line
    assert not list(tmp_path.iterdir())


def test_cupti_names_the_package_that_it_needs(tmp_path):
    done = call("profile", "page_split", *TINY, "--tool", "cupti", "--to", tmp_path / "out")
    assert done.exit_code == 3 and "cupti-python" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not (tmp_path / "out").exists()


FLAGS = ("-t cuda,nvtx --capture-range=cudaProfilerApi --capture-range-end=stop "
         "--cuda-graph-trace=node")  # fmt: skip


def test_without_nsys_the_command_to_run_elsewhere_is_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    to = tmp_path / "of a user"
    words = ["--variant", "eager_full", "-w", "pages=3", "-w", "batch=1"]
    done = call("profile", "page_split", *words, "--tool", "nsys", "--to", to)
    assert done.exit_code == 3 and "no nsys on the PATH" in done.stderr
    profile, export, read = done.stdout.strip().splitlines()
    assert FLAGS in profile and not to.exists()
    typed = shlex.split(profile)
    program = typed[typed.index("python") :]
    assert program[:4] == ["python", "-m", "workbench", "profile"]
    assert program[4:10] == ["page_split", *words[:5]]
    assert program[-4:] == ["--tool", "none", "--to", str(to)]
    assert shlex.split(export)[-1] == f"{to / 'page_split'}.nsys-rep"
    assert shlex.split(read) == ["workbench", "profile", "import", f"{to / 'page_split'}.sqlite"]
    path = Path(__file__).parents[1] / "notebooks/02_union_overlap.ipynb"
    words = ["-p", "churn", "0.1,0.2", "--tool", "nsys", "--to", to]
    book = call("profile", "--notebook", path, *words)
    assert book.exit_code == 3 and "-p churn=0.1,0.2" in book.stdout
    assert "--capture-range" not in book.stdout and "--cuda-flush-interval" in book.stdout


NSYS = """#!/bin/bash
# nsys, as it behaves on a machine of our own: $LEAVES says what it leaves behind
echo "$@" >> "$(dirname "$0")/said"
while [ "$1" != "-o" ]; do capture="$capture $1"; shift; done
base="$2"; shift 2
if [[ "$capture" == *export* ]]; then cp "$EXPORT" "$base"; exit; fi
if [[ "$LEAVES" != nothing ]]; then "$@" || exit $?; fi
case "$LEAVES" in
  report) touch "$base.nsys-rep" ;;
  whole) if [[ "$capture" != *capture-range* ]]; then touch "$base.nsys-rep"; fi ;;
  recording) touch "$base.qdstrm"; echo "Importer error status: importation failed." ;;
  nothing) echo "No reports were generated" ;;
esac
"""


@pytest.fixture
def nsys(tmp_path, monkeypatch):
    """A folder whose `nsys` leaves what it is told to; the export that it makes."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nsys").write_text(NSYS)
    (folder / "nsys").chmod(stat.S_IRWXU)
    synthetic_export.write(folder / "export.sqlite", 40)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("EXPORT", str(folder / "export.sqlite"))

    def leaves(what: str) -> Path:
        monkeypatch.setenv("LEAVES", what)
        return folder / "said"

    return leaves


def nothing(folder: Path) -> list[str]:
    return ["true"]


def test_nsys_is_run_exported_and_imported(nsys, tmp_path):
    said = nsys("report")
    done = call("profile", "page_split", "--variant", "eager_full", *TINY, "--tool", "nsys", "--to",
                tmp_path / "out", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert FLAGS in said.read_text()
    summary = json.loads(done.stdout)
    assert summary["source"] == "nsys" and summary["tool"] == "nsys"
    assert [case["label"] for case in summary["cases"]] == ["eager_full"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
        f"page_split.{kind}" for kind in ("nsys-rep", "passes.json", "sqlite", "summary.json")
    ]


def test_I14_a_capture_without_a_report_is_made_again_whole(nsys, tmp_path):
    said = nsys("whole")
    path = nsys_run.run(nothing, tmp_path / "out/x")
    assert path.is_file() and len(said.read_text().splitlines()) == 3


def test_I14_no_report_at_all_is_an_error(nsys, tmp_path):
    nsys("nothing")
    with pytest.raises(nsys_run.NoReport, match="no report: No reports were generated"):
        nsys_run.run(nothing, tmp_path / "out/x")
    assert not list((tmp_path / "out").iterdir())


def test_I15_a_recording_that_was_not_imported_is_no_report(nsys, tmp_path):
    nsys("recording")
    with pytest.raises(nsys_run.NoReport, match=r"only a recording .*x\.qdstrm.*importation fail"):
        nsys_run.run(nothing, tmp_path / "out/x")
    assert not list((tmp_path / "out").iterdir())


def test_what_the_profiled_command_refuses_is_refused(nsys, tmp_path):
    nsys("report")
    done = call("profile", "page_split", *TINY[:-2], "--device", "tpu", "--tool", "nsys", "--to",
                tmp_path / "out")  # fmt: skip
    assert done.exit_code == 2 and "'tpu'" in done.stderr and not done.stdout


class Graph:
    """A CUDA graph that holds what was noted while it was captured."""

    capturing = None

    def capture_begin(self, pool):
        assert Graph.capturing is None
        self.held, Graph.capturing = [], self

    def capture_end(self):
        Graph.capturing = None
        if not self.held:
            warnings.warn("The CUDA Graph is empty.", stacklevel=1)

    def replay(self):
        Graph.log.append(self.held)


def test_a_call_is_captured_in_pieces_cut_at_its_ranges(monkeypatch):
    fakes = {"synchronize": lambda: None, "empty_cache": lambda: None, "CUDAGraph": Graph,
             "graph_pool_handle": lambda: (0, 1), "Stream": lambda: None,
             "stream": lambda s: nullcontext()}  # fmt: skip
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    Graph.log = log = []

    class Listener:
        def push(self, name, case):
            log.append((name, case))

        def pop(self):
            log.append("end")

    def union():
        with ranges.span("plan"):
            Graph.capturing.held += ["sort", "search"]
        with ranges.span("kernel"):
            Graph.capturing.held.append("attend")
        Graph.capturing.held.append("merge")

    with ranges.told(Listener()):
        replay = passes.in_pieces(union)
        assert not log, "ranges of a capture are not those of a replay"
        with ranges.of_case(7), ranges.span("call"):
            replay()
    assert log == [("call", 7), ("plan", 7), ["sort", "search"], "end", ("kernel", 7), ["attend"],
                   "end", ["merge"], "end"]  # fmt: skip
