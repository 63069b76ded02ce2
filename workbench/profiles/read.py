"""Any profile by what is in it."""

import gzip
import zlib
from pathlib import Path

from . import cupti, kineto, nsys
from .events import Events, Unreadable

SQLITE = b"SQLite format 3\x00"
REPORTS = {".nsys-rep", ".qdrep"}
PEEK = 1 << 12  # bytes that tell what a file is


def read(path: Path | str) -> Events:
    """The events of a profile: an SQLite export of Nsight Systems, a Kineto trace, CUPTI lines.

    Raises Unreadable, a ValueError of one line with file and reason, on everything else.
    """
    path = Path(path)
    try:
        return _reader(path)(path)
    except OSError as error:
        raise Unreadable(path, error.strerror or error) from None


def _reader(path: Path):
    with path.open("rb") as file:
        start = file.read(PEEK)
    if start.startswith(SQLITE):
        return nsys.read
    if path.suffix in REPORTS:
        raise Unreadable(path, f"a report: export it first: nsys export --type sqlite {path.name}")
    if path.suffix == ".qdstrm":
        raise Unreadable(path, "a recording that Nsight Systems could not make a report of")
    if not start:
        raise Unreadable(path, "an empty file")
    if start.startswith(kineto.GZIP):
        start = _unpacked(path)
    if start.startswith(SQLITE):
        raise Unreadable(path, "a gzipped export: unpack it first")
    text = start.decode("utf-8-sig", errors="replace").lstrip()
    if not text.startswith(("{", "[")):
        raise Unreadable(path, "neither an SQLite export of Nsight Systems nor a JSON trace")
    return cupti.read if cupti.HEADER["format"] in text.partition("\n")[0] else kineto.read


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as file:
            return file.read(PEEK)
    except (EOFError, OSError, zlib.error) as error:
        raise Unreadable(path, f"not a whole gzip file: {error}") from None
