"""Many records at once: DuckDB reads them, `record.read` whatever DuckDB is not sure of.

200,000 records of 100 samples are a table in seconds and within 2 GB. DuckDB takes more than JSON
allows and turns "1" into 1, so a file on which it might differ from `record.read` is read by that
instead, which gives the exact table, warning or RecordError. Without DuckDB every file is.
"""

import gc
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from . import record
from .columns import of_rows, of_samples
from .columns import table as table_of

TEXTS = [name for name in record.FIELDS if name not in record.SAMPLES]
# Lines come through the CSV reader with everything of CSV turned off: several times faster than
# read_json, and the line stays at hand for what JSON functions are lenient about.
LINES = r"""read_csv($path, columns = {'line': 'VARCHAR'}, delim = '\x01', quote = '', escape = '',
    header = false, auto_detect = false, new_line = '\n', compression = 'none',
    hive_partitioning = false)""".replace(r"\x01", "\x01")  # JSON holds no such character
STEP = 1 << 22  # bytes of a file that are looked at at a time


class _Unsure(ValueError):
    """DuckDB's reading may not be that of `record.read`."""


def load(*paths: Path | str, samples: bool = False):
    """As `record.load`, by DuckDB where it is installed; `samples`: with samples_us and twin_us.

    Raises RecordError and FileNotFoundError as that does.
    """
    found = record.files(*paths)
    if not found:
        raise record.RecordError(f"no records in {', '.join(map(str, paths)) or 'no files'}")
    return table(found, samples)


def table(paths: list[Path], samples: bool = False):
    """The table of `record.table` for the records of these files, in their order.

    Without the raw samples_us and twin_us unless `samples`. Raises RecordError as `record.read`
    does, and where there are no records.
    """
    turn = Lock()  # DuckDB takes one file at a time, while Python parses the texts of another
    with _without_collector(), ThreadPoolExecutor(2) as pool:
        found = pool.map(lambda path: _read(Path(path), samples, turn), paths)
        parts = [part for part in found if part is not None]
        if not parts:
            raise record.RecordError(f"no records in {', '.join(map(str, paths)) or 'no files'}")
        return table_of(*_joined(parts))


@contextmanager
def _without_collector():
    """Nothing made here is cyclic, and looking for that costs a fifth of the time."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _read(path: Path, samples: bool, turn: Lock) -> tuple[dict, dict] | None:
    """Fields and derived columns of one file; None where it has no record."""
    try:
        import duckdb
    except ImportError:
        return _exactly(path, samples)
    try:
        return _fast(duckdb, path, samples, turn)
    except (duckdb.InvalidInputException, duckdb.ConversionException, duckdb.IOException,
            duckdb.OutOfMemoryException, ValueError, RecursionError):  # fmt: skip
        return _exactly(path, samples)


def _exactly(path: Path, samples: bool) -> tuple[dict, dict] | None:
    rows = [row | {"file": path.name} for row in record.read(path)]
    if not rows:
        return None
    found, derived = of_rows(rows, record.FIELDS)
    return {n: v for n, v in found.items() if samples or n not in record.SAMPLES}, derived


def _fast(duckdb, path: Path, samples: bool, turn: Lock) -> tuple[dict, dict] | None:
    """As `_exactly`, by DuckDB. Raises _Unsure or DuckDB's errors where it may not be the same."""
    import numpy as np
    import pandas as pd

    # no spilling, no extensions fetched: nothing is left behind
    settings = {"temp_directory": "", "autoinstall_known_extensions": "false"}
    with turn, duckdb.connect(":memory:", config=settings) as connection:
        columns = connection.execute(_query(), {"path": _literal(path)}).fetchnumpy()
    _sure(path, columns.pop("old"), columns.pop("sound"), columns.pop("loose"))
    if not len(columns["op"]):
        return None
    found, taken = {}, [columns.pop(name) for name in record.SAMPLES]
    derived = of_samples(*taken)
    for name in record.FIELDS:
        if name in TEXTS:
            codes, texts = pd.factorize(columns.pop(name))
            found[name] = (_parsed(name, texts), codes)
        elif samples:
            lists = [v.tolist() for v in taken[name == "twin_us"]]
            found[name] = (lists, np.arange(len(lists)))
    found["file"] = ([path.name], np.zeros(len(taken[0]), dtype=int))
    return found, derived


def _query() -> str:
    """SQL from the lines of a file to JSON texts, samples, and doubts about each line."""
    kinds = {name: ["DOUBLE"] if name in record.SAMPLES else "JSON" for name in record.FIELDS}
    forms = {schema: {name: kind for name, kind in kinds.items()
                      if record.SINCE.get(name, 1) <= schema}
             for schema in record.READABLE}  # fmt: skip
    of_forms = {name: [f's{s}."{name}"' for s, form in forms.items() if name in form]
                for name in kinds}  # fmt: skip
    picked = {name: f"coalesce({', '.join(found)})" for name, found in of_forms.items()}
    texts = [f"coalesce({picked[name]}, 'null') AS \"{name}\"" for name in TEXTS]
    sound = " AND ".join(
        f"list_count({s}) = len({s}) AND coalesce(isfinite(list_sum({s})), true)"
        for s in record.SAMPLES
    )
    ends = [f"""WHEN ends_with(line, '"schema":{s}}}') THEN {s}""" for s in forms]
    structs = {s: f"json_transform_strict(line, '{json.dumps(form)}')" for s, form in forms.items()}
    read = [f"CASE WHEN schema = {s} THEN {struct} END AS s{s}" for s, struct in structs.items()]
    return f"""
WITH lines AS (
    SELECT line, CASE {" ".join(ends)} ELSE {record.SCHEMA} END AS schema
    FROM {LINES} WHERE line IS NOT NULL
), found AS (
    SELECT line, schema = 1 AS old, {", ".join(read)} FROM lines
), fields AS (
    SELECT old, CASE WHEN regexp_matches(line, ',\\s*[\\]}}]') THEN line END AS loose,
        {", ".join(texts)}, {picked["samples_us"]} AS samples_us,
        CASE WHEN old THEN [] ELSE {picked["twin_us"]} END AS twin_us
    FROM found
)
SELECT *, coalesce({sound}, false) AS sound FROM fields"""


def _literal(path: Path) -> str:
    """The path as DuckDB takes it: what would be a pattern stands for itself."""
    name = str(path.resolve())
    if "\\" in name and re.search(r"[*?[]", name):
        raise _Unsure(f"{name} cannot be written as a pattern")
    return re.sub(r"[*?[]", r"[\g<0>]", name)


def _sure(path: Path, old, sound, loose) -> None:
    """Raise _Unsure where DuckDB may have read what `record.read` refuses or reads otherwise."""
    import numpy as np

    for line in np.ma.compressed(loose):
        json.loads(line)  # a comma before a bracket: within a string, or no JSON
    if not sound.all() or _lists_of_numbers(path) != 2 * len(old) - int(old.sum()):
        raise _Unsure(f"{path}: not written by this workbench")


def _lists_of_numbers(path: Path) -> int:
    """How many lists of samples, as `record.append` writes them, hold no string."""
    lists, rest, begins = 0, b"", b'_us":['
    with path.open("rb") as file:
        while block := file.read(STEP):
            block = rest + block
            cut = block.rfind(b"\n") + 1
            rest = block[cut:]
            at = block.find(begins, 0, cut)
            while at >= 0:
                end = block.find(b"]", at, cut)
                lists += block.find(b'"', at + len(begins), end) < 0
                at = block.find(begins, end, cut)
    return lists


def _parsed(name: str, texts) -> list:
    """The values of distinct JSON texts, each such as the field `name` may hold."""
    values = json.loads(f"[{','.join(texts)}]")  # at once: equal keys are one string in memory
    for value in values:
        unread = name == "schema" and value not in record.READABLE
        if unread or record.misfit(name, value):
            raise _Unsure(f"{name} is {value!r:.40}")
    return values


def _joined(parts: list[tuple[dict, dict]]) -> tuple[dict, dict]:
    """The parts of several files as one."""
    import numpy as np

    found = {}
    for name in parts[0][0]:
        values, codes = [], []
        for part, _ in parts:
            codes.append(part[name][1] + len(values))
            values += part[name][0]
        found[name] = (values, np.concatenate(codes))
    return found, {n: np.concatenate([p[n] for _, p in parts]) for n in parts[0][1]}
