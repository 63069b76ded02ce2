"""Nsight Systems around a command: the command lines, and what may come of them.

`nsys` ends with a report, or without one and without an error: then the same is run once more with
the whole process in place of what lies between cudaProfilerStart and Stop. A recording (.qdstrm)
that it could not make a report of is no report.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

PROFILE = ("nsys", "profile", "-t", "cuda,nvtx")
CAPTURED = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
# What a process that is killed saw has to be written before.
WHOLE = ("--cuda-flush-interval=100",)
NODES = ("--cuda-graph-trace=node", "--force-overwrite=true")


class NoReport(RuntimeError):
    """Nsight Systems ran and left nothing that can be read."""


def profile(program: list[str], base: Path, whole: bool = False) -> list[str]:
    """The command that profiles `program` into `base`.nsys-rep."""
    return [*PROFILE, *(WHOLE if whole else CAPTURED), *NODES, "-o", str(base), *program]


def export(base: Path) -> list[str]:
    """The command that makes `base`.sqlite of it."""
    return ["nsys", "export", "--type", "sqlite", "--force-overwrite=true", "-o",
            f"{base}.sqlite", f"{base}.nsys-rep"]  # fmt: skip


def lines(program: list[str], base: Path, whole: bool = False) -> list[str]:
    """What to type where `nsys` is, to get and to read an export of `program`."""
    said = (profile(program, base, whole), export(base),
            ["workbench", "profile", "import", f"{base}.sqlite"])  # fmt: skip
    return [shlex.join(words) for words in said]


def here() -> bool:
    """Whether there is an `nsys` on the PATH."""
    return shutil.which("nsys") is not None


def run(
    program: Callable[[Path], list[str]], base: Path, *, whole: bool = False, say=lambda what: None
) -> Path:
    """Profile and export the command `program(folder)`; return `base`.sqlite.

    The program writes into `folder`; all its files and the report come to stand beside `base` once
    everything went well. Raises NoReport where there is no report or no export, and ValueError with
    what the program said where it refused its input.
    """
    base.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=base.parent, prefix=".nsys") as name:
        inner = Path(name) / base.name
        said = _reported(program(inner.parent), inner, whole, say)
        done = _run(export(inner))
        made = inner.with_name(f"{base.name}.sqlite")
        if not made.is_file():
            raise NoReport(f"nsys export made no SQLite file: {_last(done) or said}")
        for path in sorted(p for p in inner.parent.iterdir() if p.is_file()):
            os.replace(path, base.parent / path.name)
    return base.with_name(made.name)


def _reported(program: list[str], base: Path, whole: bool, say) -> str:
    """Profile until there is a report; return the last line that was said."""
    for as_whole in (whole,) if whole else (False, True):
        say("nsys: the whole process" if as_whole else "nsys")
        done = _run(profile(program, base, as_whole))
        if base.with_name(f"{base.name}.nsys-rep").is_file():
            return _last(done)
        if refused := _refused(done):
            raise ValueError(refused)
    left = sorted(p.name for p in base.parent.glob("*.qdstrm"))
    why = f"only a recording that it could not import ({left[0]})" if left else "no report"
    raise NoReport(f"nsys left {why}: {_last(done) or f'exit code {done.returncode}'}")


def _run(words: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, errors="replace",
                          stdin=subprocess.DEVNULL)  # fmt: skip


def _refused(done: subprocess.CompletedProcess) -> str | None:
    """The line in which this command line says why it refused its input."""
    told = [x for x in done.stderr.splitlines() if x.startswith("workbench: ")]
    return told[-1].removeprefix("workbench: ") if done.returncode == 2 and told else None


def _last(done: subprocess.CompletedProcess) -> str:
    told = [x.strip() for x in (done.stdout + done.stderr).splitlines() if x.strip()]
    return told[-1][:300] if told else ""
