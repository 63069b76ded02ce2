"""Compiles variants in processes of their own, on all cores: rows of what the compiler made.

Nothing here imports Triton: the processes do, free of its interpreter, whatever the caller does.
"""

import os
import queue
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ..isolate import Died, Worker
from . import cache
from .targets import arch_numbers

LIMIT_S = 300.0  # for one task and architecture
ROOT = Path(__file__).parents[2]


class Compiler:
    """Compiling processes for the package under `root`. Use as a context manager."""

    def __init__(self, root: Path = ROOT, cache_folder: Path | None = None):
        self.root = Path(root).resolve()
        self.where = str((cache_folder or cache.folder()).absolute())
        self._scratch = tempfile.TemporaryDirectory(prefix="workbench_compile_")
        self._first = self._worker(0)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._first.stop()
        self._scratch.cleanup()

    def tasks(
        self, ops: Sequence[str], *, variants: Sequence[str] = (), suite: str | None = None,
        workload: dict | None = None, config: dict | None = None, modules: Sequence[str] = (),
        lenient: bool = False,
    ) -> list[dict]:  # fmt: skip
        """Every arm and workload of a request; no ops: all. Raises ValueError where it is wrong.

        `lenient` leaves out ops and variants that the package does not have.
        """
        asked = {"do": "tasks", "ops": list(ops), "variants": list(variants), "suite": suite,
                 "workload": workload or {}, "config": config or {}, "modules": list(modules),
                 "lenient": lenient}  # fmt: skip
        reply = self._first.call(asked, LIMIT_S)
        if "refused" in reply:
            raise ValueError(reply["refused"])
        return reply["tasks"]

    def rows(
        self, tasks: list[dict], archs: Sequence[int],
        done: Callable[[str], None] = lambda what: None,
    ) -> list[dict]:  # fmt: skip
        """A row for each kernel, task and architecture, in that order; `done` is told of each."""
        found: dict[tuple[int, int], list[dict]] = {}
        for i, task in enumerate(tasks):
            known = self._known(task, archs)
            for arch, rows in zip(archs, known, strict=True):
                if rows is not None:
                    found[i, arch] = rows
                    done(task["label"])
        missing = [(i, arch) for arch in archs for i in range(len(tasks)) if (i, arch) not in found]
        for place, rows in self._compiled(tasks, missing, done):
            found[place] = rows
        return [row for i in range(len(tasks)) for arch in archs for row in found[i, arch]]

    def _known(self, task: dict, archs: Sequence[int]) -> list[list[dict] | None]:
        asked = {"do": "known", "task": task, "archs": list(archs), "cache": self.where}
        try:
            return self._first.call(asked, LIMIT_S)["rows"]
        except Died as died:
            return [[_failed(task, arch, died)] for arch in archs]

    def _compiled(self, tasks: list[dict], missing: list[tuple[int, int]], done):
        """Yield ((number of the task, arch), its rows) as they come."""
        count = min(len(missing), len(os.sched_getaffinity(0)))
        workers = [self._first, *(self._worker(n) for n in range(1, count))]
        idle: queue.SimpleQueue = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def compile_one(place: tuple[int, int]):
            worker, (i, arch) = idle.get(), place
            asked = {"do": "compile", "task": tasks[i], "arch": arch, "cache": self.where}
            try:
                return place, worker.call(asked, LIMIT_S)["rows"]
            except Died as died:
                return place, [_failed(tasks[i], arch, died)]
            finally:
                idle.put(worker)

        pool = ThreadPoolExecutor(max(1, count))
        try:
            for future in as_completed([pool.submit(compile_one, place) for place in missing]):
                place, rows = future.result()
                done(tasks[place[0]]["label"])
                yield place, rows
        finally:  # also where the user interrupts: nothing new is begun
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in workers:
                worker.stop()

    def _worker(self, number: int) -> Worker:
        scratch = Path(self._scratch.name) / str(number)
        child = str(Path(__file__).with_name("child.py"))
        return Worker("", command=(sys.executable, child, str(self.root), str(scratch)))


def table(
    *ops: str, arch: str = "sm_90", cache_folder: Path | None = None, **asked
) -> list[dict]:
    """Rows of what the compiler makes of `ops` (none: all) for `arch`, such as "sm_90,sm_120".

    `asked` is as `Compiler.tasks` has it. Raises ValueError on names and values that do not exist,
    RuntimeError where no process starts.
    """
    with Compiler(cache_folder=cache_folder) as compiler:
        return compiler.rows(compiler.tasks(ops, **asked), arch_numbers(arch))


def _failed(task: dict, arch: int, died: Died) -> dict:
    return {"op": task["op"], "variant": task["label"], "arch": f"sm_{arch}",
            "workload": task["workload"], "fits": False, "why": str(died),
            "cached": False}  # fmt: skip
