"""Eight writers of one table, one that waits, one that is killed: the table is always whole."""

import json
import os
import signal
import time
import warnings
from dataclasses import replace

import pytest
from filelock import FileLock
from planted_splits import OP, SIX
from test_dispatch_table import KNOWN, TEXT

from workbench import atomic, record
from workbench.cli.calibrate import _write as write
from workbench.cli.dispatch_tables import calibrations
from workbench.dispatch import save, update
from workbench.models import dispatch_table as t
from workbench.models.makespan import Constants, Fit


def in_child(work) -> int:
    """The process id of a fork that does `work` and ends with 0, or with 1 where that raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn beside threads
        pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def test_eight_writers_never_leave_a_torn_table(tmp_path):
    path = tmp_path / "t.json"
    texts = [t.text(replace(KNOWN, torch=f"writer {i}")) for i in range(8)]
    save(t.parsed(json.loads(texts[0])), path)

    def write(i):
        for _ in range(8):
            save(t.parsed(json.loads(texts[i])), path)

    running = [in_child(lambda i=i: write(i)) for i in range(8)]
    seen = set()
    while running:
        seen.add(path.read_text())
        done, status = os.waitpid(running[0], os.WNOHANG)
        if done:
            assert running.pop(0) and status == 0
    assert seen | {path.read_text()} <= set(texts) and len(seen) > 1
    assert {p.name for p in tmp_path.iterdir()} <= {"t.json", "t.json.lock"}


def test_a_writer_waits_for_the_lock_of_another(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    save(KNOWN, path)
    monkeypatch.setattr("workbench.dispatch.LOCK_S", 0.01)
    with FileLock(tmp_path / "t.json.lock"), pytest.raises(TimeoutError):
        save(replace(KNOWN, torch="another"), path)
    assert path.read_text() == TEXT


def slow(monkeypatch):
    """Between reading a table and writing it there is time for everybody else to read it."""
    own = atomic.write
    monkeypatch.setattr(atomic, "write", lambda *given: (time.sleep(0.02), own(*given)))


def ended(children) -> list[int]:
    return [os.waitpid(child, 0)[1] for child in children]


def test_what_eight_processes_add_at_once_is_all_there(tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    slow(monkeypatch)

    def add(i, before):
        fits = before.model.layouts if before else {}
        model = t.Model(132, {**fits, f"kernel {i}": Fit(Constants(5e-13, 1e-10, 6e-6), 0.01 * i)})
        return replace(before or KNOWN, model=model)

    adding = [in_child(lambda i=i: update(path, lambda b: add(i, b))) for i in range(8)]
    assert not any(ended(adding))
    found = {name: fit.relative_rms for name, fit in t.read(path).model.layouts.items()}
    assert found == {f"kernel {i}": 0.01 * i for i in range(8)}
    assert t.read(path).entries == KNOWN.entries


def test_the_constants_of_calibrations_at_once_are_all_there(tmp_path, monkeypatch):
    record.append(tmp_path / "r.jsonl", *SIX)
    asked = dict.fromkeys(("clock", "device", "triton"))
    rows, _, (made,) = calibrations([tmp_path / "r.jsonl"], OP, asked, None)
    path, names = tmp_path / "t.json", [f"kernel_{i}" for i in range(3)]
    slow(monkeypatch)
    adding = [in_child(lambda n=n: write(path, rows, OP, [replace(made, variant=n)]))
              for n in names]  # fmt: skip
    assert not any(ended(adding))
    assert set(t.read(path).model.layouts) == {f"{name} {made.layout}" for name in names}


def test_what_is_no_table_is_left_as_it_is(tmp_path):
    for content in ("", "{}", '{"op": "sparse_decode"}\n'):
        (tmp_path / "r.jsonl").write_text(content)
        with pytest.raises(ValueError, match=r"r\.jsonl is no dispatch table: its? "):
            save(KNOWN, tmp_path / "r.jsonl")
        assert (tmp_path / "r.jsonl").read_text() == content


def test_a_change_that_is_refused_changes_nothing(tmp_path):
    save(KNOWN, tmp_path / "t.json")
    with pytest.raises(KeyError):
        update(tmp_path / "t.json", lambda table: {}[table.op])
    assert (tmp_path / "t.json").read_text() == TEXT
    assert vars(update(tmp_path / "t.json", lambda table: table)) == vars(KNOWN)


def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_after(count: int):
    """`Path.write_bytes` of a process that is killed when so many bytes are written."""
    def write_bytes(path, content):
        with open(path, "wb") as file:
            file.write(content[:count])
            file.flush()
            kill()
    return write_bytes


REPLACE = os.replace
KILLS = {
    "before it writes": ("pathlib.Path.write_bytes", kill),
    **{f"after {n} bytes": ("pathlib.Path.write_bytes", killed_after(n))
       for n in (0, 1, 1000, len(TEXT))},
    "before it replaces": ("os.replace", kill),
    "after it replaced": ("os.replace", lambda *paths: (REPLACE(*paths), kill())),
}  # fmt: skip


@pytest.mark.parametrize("name", KILLS)
def test_a_writer_that_is_killed_leaves_a_whole_table(tmp_path, monkeypatch, name):
    path, old = tmp_path / "t.json", replace(KNOWN, torch="old")
    save(old, path)
    with monkeypatch.context() as planted:
        planted.setattr(*KILLS[name])
        _, status = os.waitpid(in_child(lambda: save(KNOWN, path)), 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    left = KNOWN if name.startswith("after it") else old
    assert path.read_text() == t.text(left) and vars(t.Table.load(path)) == vars(left)
    save(KNOWN, path)  # its lock died with it
    assert path.read_text() == TEXT
