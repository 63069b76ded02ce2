"""The README is true: its commands run, and its links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SHELL = "\n".join(re.findall(r"```bash\n(.*?)```", README, re.S))
COMMANDS = [line.split("#")[0].strip() for line in SHELL.splitlines() if line.strip()]
# what needs nsys ends with 3 where there is none: tests/test_profile_run.py
RUN = [c for c in COMMANDS if not c.startswith("make ") and "--tool nsys" not in c]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder in which the README's commands find what a clone holds."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("notebooks", "sweeps", "traces", "figures", "claims"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "my_kernel.py").write_text(re.search(r"```python\n(.*?)```", README, re.S)[1])
    return folder


def test_the_readme_shows_commands():
    assert len(RUN) >= 15 and {"make demo", "make test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", RUN)
def test_a_command_of_the_readme_runs(command, checkout, monkeypatch):
    program, *words = shlex.split(command)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = subprocess.run(
        [sys.executable, "-m", program, *words], cwd=checkout, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_names_only_files_that_exist():
    links = re.findall(r"\]\((?!http)([^)#]+)\)", README)
    assert links and all((ROOT / link).exists() for link in links)
