"""An SQLite export whose tables and columns come and go from version to version."""

import re
import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from .events import UNKNOWN, Names


class Table(NamedTuple):
    """A table and its columns; none where the export has no such table."""

    name: str
    columns: frozenset[str] = frozenset()

    def get(self, column: str, absent: object = "NULL") -> str:
        """SQL for a column of `e`; `absent` where it is NULL or not there."""
        return f'COALESCE(e."{column}", {absent})' if column in self.columns else str(absent)

    def nonzero(self, column: str, absent: object = "NULL") -> str:
        """The same, where 0 is what old exports write for a missing value."""
        return f"COALESCE(NULLIF({self.get(column)}, 0), {absent})"

    def first(self, columns: tuple[str, ...], absent: object = "NULL") -> str:
        """SQL for the first of some columns that holds something."""
        return f"COALESCE({', '.join(map(self.get, columns))}, {absent})"


@dataclass(frozen=True)
class Export:
    """An open export."""

    db: sqlite3.Connection
    tables: dict[str, Table]
    strings: dict[int, str]  # StringIds

    def table(self, name: str) -> Table:
        """The table of that name, or else the newest that has it with a version behind."""
        if name in self.tables:
            return self.tables[name]
        found = (re.fullmatch(rf"{name}_V(\d+)", other) for other in self.tables)
        newest = max((m for m in found if m), key=lambda m: int(m[1]), default=None)
        return self.tables[newest[0]] if newest else Table(name)

    def rows(self, table: Table, values: list[str], dtype: np.dtype, where: str = "") -> np.ndarray:
        """A row of `dtype` for each of the table's; `values` are SQL for its fields."""
        if not table.columns:
            return np.empty(0, dtype)
        sql = f'SELECT {", ".join(values)} FROM "{table.name}" e {where}'
        return np.fromiter(self.db.execute(sql), dtype)

    def labels(self, name: str, column: str) -> dict[int, str]:
        """An ENUM table: what its numbers stand for; empty where it is missing."""
        if not {"id", column} <= self.tables.get(name, Table(name)).columns:
            return {}
        return dict(self.db.execute(f'SELECT id, "{column}" FROM "{name}"'))


def opened(db: sqlite3.Connection) -> Export:
    """The export behind a connection."""
    kinds = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    tables = {}
    for (name,) in db.execute(kinds).fetchall():
        columns = db.execute("SELECT name FROM pragma_table_info(?)", (name,))
        tables[name] = Table(name, frozenset(column for (column,) in columns))
    known = {"id", "value"} <= tables.get("StringIds", Table("")).columns
    return Export(db, tables, dict(db.execute("SELECT id, value FROM StringIds")) if known else {})


def renumber(ids: np.ndarray, names: Names, text) -> np.ndarray:
    """Numbers of `names` in place of ids, `text` being the name of an id."""
    codes, distinct = pd.factorize(ids)
    return np.array([names.number(text(int(i))) for i in distinct], dtype="i8")[codes]


def pids(*rows: np.ndarray) -> None:
    """Replace serialized processes by process ids, unless two of them have the same."""
    serialized = np.unique(np.concatenate([pd.unique(part["process"]) for part in rows]))
    serialized = serialized[serialized != UNKNOWN]
    if len(np.unique(serialized & 0xFFFFFF)) < len(serialized):
        return  # of several machines
    for part in rows:
        known = part["process"] != UNKNOWN
        part["process"] = np.where(known, part["process"] & 0xFFFFFF, UNKNOWN)
