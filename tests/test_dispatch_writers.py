"""Eight writers of one table, one that waits, one that is killed: the table is always whole."""

import json
import os
import signal
import warnings
from dataclasses import replace

import pytest
from filelock import FileLock
from test_dispatch_table import KNOWN, TEXT

from workbench.dispatch import save
from workbench.models import dispatch_table as t


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
