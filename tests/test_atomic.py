"""Files that are there whole or not at all, and nothing but files."""

import os

import pytest

from workbench import atomic


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_no_regular_file_stays(tmp_path, make):
    path = tmp_path / "out.json"
    make(path)
    before = path.stat()
    with pytest.raises(ValueError, match=r"out\.json is no regular file"):
        atomic.write(path, "{}")
    assert path.stat() == before and list(tmp_path.iterdir()) == [path]


def test_a_device_stays(monkeypatch):
    monkeypatch.setattr(atomic.os, "replace", pytest.fail)
    with pytest.raises(ValueError, match="/dev/null is no regular file"):
        atomic.write(atomic.Path(os.devnull), "{}")


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "out.json"
    for content in ("long text\n", b"b"):
        atomic.write(path, content)
    assert path.read_bytes() == b"b" and list(tmp_path.iterdir()) == [path]
