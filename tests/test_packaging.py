"""One list of packages: pyproject.toml; the conda file and the constraints agree with it."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def wanted() -> dict[str, str]:
    lists = [PROJECT["dependencies"], *EXTRAS.values()]
    found = [Requirement(text) for part in lists for text in part]
    return {r.name: str(r.specifier) for r in found}


def test_the_conda_file_asks_for_the_same_versions():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [item["pip"] for item in conda if isinstance(item, dict)]
    names = [t for t in [*conda, *pip] if isinstance(t, str) and not t.startswith("-")]
    listed = [Requirement(t) for t in names]
    found = {r.name: str(r.specifier) for r in listed if r.name not in ("python", "pip")}
    assert found == wanted()
    (python,) = [r for r in listed if r.name == "python"]
    assert str(python.specifier) == PROJECT["requires-python"]


@pytest.mark.parametrize("name", ["constraints-cpu.txt", "constraints-cuda.txt"])
def test_constraints_lie_inside_the_ranges(name):
    lines = [x for x in (ROOT / name).read_text().splitlines() if x and not x.startswith("#")]
    pins = [Requirement(x) for x in lines]
    assert {"torch", "triton"} <= {p.name for p in pins}
    for pin in pins:
        (spec,) = pin.specifier
        assert spec.operator == "==" and spec.version in SpecifierSet(wanted()[pin.name])


def test_every_import_of_the_package_is_declared():
    import sys

    imported = set()
    for path in (ROOT / "workbench").rglob("*.py"):
        text = path.read_text()
        imported |= set(re.findall(r"^\s*(?:import|from) ([a-z]\w+)", text, re.M))
    own = {"workbench", *sys.stdlib_module_names}
    renamed = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py"}
    third = {renamed.get(name, name) for name in imported - own}
    third.remove("cupti")  # needs a driver: whoever profiles with it installs it
    assert third <= set(wanted()), third - set(wanted())


def test_nothing_tracked_tells_of_a_machine():
    done = subprocess.run(
        ["git", "grep", "-nIE", r"(^|[^A-Za-z0-9_.])/(home|root|work|farm|Users)/[a-z.]"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    lines = [x for x in done.stdout.splitlines() if "test_packaging.py" not in x]
    assert not lines, "\n".join(lines)
