"""The layers import downwards only; this list is the architecture."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import workbench

LAYERS = [
    {"__main__"},
    {"cli"},
    {"notebook", "capture"},
    {"sweeps", "claims", "revisions", "refinement"},
    {"figures", "exchange"},
    {"study", "comparison", "collect"},
    {"bench", "evidence", "regret", "runner"},
    {"worker", "reader"},
    {"compiled"},
    {"isolate", "record", "gate", "digest", "timing", "dispatch"},
    {"modules", "machine", "monitor", "watch", "replay", "models", "profiles", "answers"},
    {"ops"},
    {"layouts", "selections", "compare", "interpreter", "arms"},
    {"op", "fields", "ranges", "columns", "flags", "random_bytes", "atomic"},
    {"__init__"},  # imports nothing of the package until a name is asked for
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
ROOT = Path(workbench.__file__).parent


def targets(path: Path) -> set[tuple[str, ...]]:
    """Dotted paths inside the package that the file at `path` imports, relative or absolute."""
    package = path.relative_to(ROOT.parent).parts[:-1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [a.name for a in getattr(node, "names", ()) if isinstance(a, ast.alias)]
        if isinstance(node, ast.Import):
            found |= {tuple(name.split(".")) for name in names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found |= {(*base, name) for name in names}
    return {dots[1:] for dots in found if dots[0] == "workbench" and len(dots) > 1}


FILES = sorted(ROOT.rglob("*.py"))


def test_every_module_has_a_layer():
    here = {p.stem for p in ROOT.glob("*.py")} | {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert here == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for dots in targets(path):
        other = dots[0]
        if other not in RANK:
            other = "__init__" if own in ("cli", "__main__") else other
        upward = other != own and other in RANK and RANK[other] <= RANK[own]
        assert not upward, f"{path.relative_to(ROOT)} imports {'.'.join(dots)}"


@pytest.mark.parametrize("path", sorted(ROOT.glob("ops/*/kernels/[!_]*.py")), ids=lambda p: p.stem)
def test_a_kernel_file_imports_its_definition_its_blocks_and_one_other_ops_variant(path):
    op = path.relative_to(ROOT).parts[1]
    inside = [dots for dots in targets(path) if dots[0] == "ops"]
    siblings = {d for d in inside if d[1] == op and d[2:3] == ("kernels",) and d[3][0] != "_"}
    assert not siblings, f"{path.stem} imports its sibling {siblings}"
    others = {(d[1], d[3]) for d in inside if d[1] != op and d[2] == "kernels"}
    assert len(others) <= 1, f"{path.stem} imports variants {others}"


BLOCKED = '''
import sys

class Blocker:
    """Absent for this package; typer may still use pydantic itself."""

    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while "importlib" in frame.f_globals.get("__name__", ""):
            frame = frame.f_back
        ours = frame.f_globals.get("__name__", "").startswith("workbench")
        if ours and name.split(".")[0] in {"nvtx", "papermill", "pydantic", "duckdb", "nbformat"}:
            raise ImportError(name)

sys.meta_path.insert(0, Blocker())
sys.argv = ["workbench", *sys.argv[1:]]
from workbench.cli import main
main()
'''
NEEDS_NOTHING = {
    "check": ["check", "page_split", "--variant", "eager_full", "-w", "pages=3"],
    "measure": ["measure", "page_split", "--variant", "eager_full", "-w", "pages=3", "--device",
                "cpu", "--repeats", "1", "--to", "r.jsonl"],
    "compile": ["compile", "page_split", "--variant", "full", "-w", "pages=3"],
}  # fmt: skip


@pytest.mark.parametrize("words", NEEDS_NOTHING.values(), ids=NEEDS_NOTHING)
def test_kernel_commands_run_without_the_notebook_packages(words, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT.parent))
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
