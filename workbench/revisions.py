"""Two versions of this workbench, measured here in turns, each in processes of its own.

A version is a git revision, checked out into a temporary folder, or the folder itself. What is
called is its own `workbench measure`, so that two versions need to agree on nothing but the command
line and the schema of records.
"""

import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path

from . import record

WORKING_TREE = "."  # stands for the files as they are


def measured(
    sides: tuple[str, str], what: dict, blocks: int, to: Path, report: Callable[[str], None]
) -> tuple[list[Path], str]:
    """Measure both versions, forward and backward by block; their record files in `to`, the study.

    `what` holds op, variant, workload, config, clock and device as `workbench measure` takes them.
    Blocks are numbered alike on both sides and belong to one study, so they are paired. Raises
    ValueError on a revision that git does not know, RuntimeError where a version fails.
    """
    if not what["op"]:
        raise ValueError(f"{sides[0]!r} and {sides[1]!r} are not both files: where they are git "
                         "revisions, name what to measure, with --op")  # fmt: skip
    study = uuid.uuid4().hex[:12]
    files = [to / f"{name}.jsonl" for name in ("base", "new")]
    for file in files:
        record.append(file)  # a file that cannot be written is found before anything runs
    with ExitStack() as stack:
        trees = [stack.enter_context(checked_out(side)) for side in sides]
        for block in range(blocks):
            for i in (0, 1) if block % 2 == 0 else (1, 0):
                report(sides[i])
                with tempfile.TemporaryDirectory() as folder:
                    part = Path(folder) / "part.jsonl"
                    _run(sides[i], trees[i], what, part)
                    rows = record.read(part)
                marks = {"study": study, "block": block}
                record.append_rows(files[i], [row | marks for row in rows])
    return files, study


@contextmanager
def checked_out(revision: str):
    """The folder of a version: a temporary work tree of a git revision, or this checkout."""
    if revision == WORKING_TREE:
        yield record.CHECKOUT
        return
    with tempfile.TemporaryDirectory(prefix="workbench_tree_") as folder:
        add = ["git", "worktree", "add", "--detach", "--force", "--", folder, revision]
        try:
            done = subprocess.run(add, cwd=record.CHECKOUT, capture_output=True, text=True)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["git failed"])[-1]
                raise ValueError(f"{revision!r} is no git revision: {said}")
            yield Path(folder)
        finally:
            remove = ["git", "worktree", "remove", "--force", folder]
            subprocess.run(remove, cwd=record.CHECKOUT, capture_output=True)


def _run(name: str, tree: Path, what: dict, to: Path) -> None:
    words = ["measure", what["op"], "--to", str(to), "--device", what["device"]]
    for option, key in (("--variant", "variant"), ("-w", "workload"), ("-c", "config")):
        for value in what[key] or ():
            words += [option, value]
    if what["clock"]:
        words += ["--clock", what["clock"]]
    paths = [str(tree), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-m", "workbench", *words], cwd=tree, env=environment,
                          capture_output=True, text=True)  # fmt: skip
    if not to.exists() or not record.read(to):
        said = (done.stderr.strip().splitlines() or done.stdout.strip().splitlines() or [""])[-1]
        raise RuntimeError(f"{name} made no record: {said}")
