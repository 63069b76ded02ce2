"""Exports of any version are read; a file that is no whole export is refused in one line."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from test_profiles import outcomes, synthetic_export

from workbench.profiles import Unreadable, attribute, by_range, read

RIGHT = 40  # kernels: a step for each process
KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NODES = "CUDA_GRAPH_NODE_EVENTS"
OPEN = "'open', globalTid, 0, 0, 0, 0 FROM NVTX_EVENTS"  # what follows start, end, eventType


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "export.sqlite"
    synthetic_export.write(path, RIGHT)
    return path


def changed(path: Path, *statements: str):
    """The export after some SQL, read and attributed."""
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return attribute(read(path))


def answers(path: Path) -> dict:
    return synthetic_export.measured(path)["answers"]


@pytest.mark.parametrize("suffixes", [("_V2",), ("_V3", "_V10"), ("", "_V4")])
def test_a_table_with_a_version_stands_in_for_the_plain_one(path, suffixes):
    """The plain one wins; of versions the newest does, 10 after 3."""
    truth = answers(path)
    used = suffixes[-1] if suffixes[0] else ""
    changed(path, f"ALTER TABLE {KERNEL} RENAME TO kept",
            *(f"CREATE TABLE {KERNEL}{s} AS SELECT * FROM kept WHERE 0" for s in suffixes),
            f"INSERT INTO {KERNEL}{used} SELECT * FROM kept")  # fmt: skip
    assert answers(path) == truth


def test_names_stand_in_the_row_or_among_the_strings(path):
    ranges = read(path).ranges
    assert sorted(ranges["name"].astype(str)) == sorted(
        ["step", "plan", "kernel", "gather", "attend"] * 2
    )
    steps = ranges[ranges["name"] == "step"]
    assert list(steps["payload"]) == [0, 0] and ranges["payload"].isna().sum() == 8


def test_types_of_ranges_are_known_by_name(path):
    """By the ENUM table, else by the usual numbers; marks are no ranges."""
    truth = answers(path)
    assert changed(path, "UPDATE ENUM_NSYS_EVENT_TYPE SET id = 159 WHERE id = 59").range.max() == -1
    changed(path, "UPDATE NVTX_EVENTS SET eventType = 159",
            "INSERT INTO NVTX_EVENTS SELECT start, end, 34, 'mark', globalTid, NULL, NULL, 0, NULL "
            "FROM NVTX_EVENTS")  # fmt: skip
    assert answers(path) == truth
    changed(path, "DROP TABLE ENUM_NSYS_EVENT_TYPE",
            "UPDATE NVTX_EVENTS SET eventType = 60 WHERE eventType = 159")  # fmt: skip
    assert answers(path) == truth
    assert set(read(path).ranges["kind"]) == {"start_end"}


def test_ranges_carry_their_domain(path):
    found = changed(
        path,
        "UPDATE NVTX_EVENTS SET domainId = 3",
        f"""INSERT INTO NVTX_EVENTS VALUES
        (0, NULL, 75, 'workbench', {synthetic_export.process(0) + 9}, NULL, NULL, 3, NULL)""",
    )
    assert by_range(found, each=True).groupby("process")["domain"].first().to_dict() == {
        1000: "workbench", 1001: ""
    }  # fmt: skip


@pytest.mark.parametrize(("table", "column"), [
    ("NVTX_EVENTS", "eventType"), ("NVTX_EVENTS", "endGlobalTid"), ("NVTX_EVENTS", "int64Value"),
    ("NVTX_EVENTS", "domainId"), (KERNEL, "demangledName"), (KERNEL, "deviceId"),
    (RUNTIME, "eventClass"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyKind"),
])  # fmt: skip
def test_columns_that_a_version_lacks_are_done_without(path, table, column):
    truth = answers(path)
    changed(path, f"ALTER TABLE {table} DROP COLUMN {column}")
    assert answers(path) == truth


@pytest.mark.parametrize(("table", "what"), [
    (KERNEL, 0), (RUNTIME, 2), ("NVTX_EVENTS", 1), ("StringIds", 0), ("META_DATA_EXPORT", 0),
    ("CUDA_GRAPH_NODE_EVENTS", 0), ("CUPTI_ACTIVITY_KIND_MEMCPY", 0),
])  # fmt: skip
def test_tables_that_an_export_lacks_are_noted(path, table, what):
    whole = attribute(read(path))
    found = changed(path, f"DROP TABLE {table}")
    if table in (KERNEL, RUNTIME, "NVTX_EVENTS"):
        assert f"no {table} table" in found.notes
        empty = (0, 0) if table == KERNEL else outcomes(found)[what]
        assert outcomes(found)[what] == empty
        assert sum(rows for rows, _ in outcomes(found)) == (0 if table == KERNEL else RIGHT)
    else:
        assert outcomes(found) == outcomes(whole)


def test_processes_are_told_apart_by_machine(path):
    """Two machines may have the same process id; else it is the id that one knows."""
    assert set(read(path).gpu["process"]) == {1000, 1001}
    truth = {k: v for k, v in answers(path).items() if not k.startswith("100")}
    first, other = synthetic_export.process(0), synthetic_export.process(1)
    moved = first + (1 << 56) - other
    found = changed(path, *(
        f"UPDATE {table} SET {column} = {column} + {moved} WHERE {column} >= {other}"
        for table, column in ((KERNEL, "globalPid"), ("CUPTI_ACTIVITY_KIND_MEMCPY", "globalPid"),
                              ("CUPTI_ACTIVITY_KIND_MEMSET", "globalPid"), (RUNTIME, "globalTid"),
                              ("NVTX_EVENTS", "globalTid"), ("CUDA_GRAPH_NODE_EVENTS", "globalTid"))
    ))  # fmt: skip
    assert set(found.events.gpu["process"]) == {first >> 24, first + (1 << 56) >> 24}
    assert {k: v for k, v in answers(path).items() if not k.startswith("281")
            and not k[0].isdecimal()} == truth  # fmt: skip


def test_a_call_of_the_driver_is_one(path):
    launches = read(path).launches
    driver = launches[launches["kind"] == "driver"]["name"].astype(str)
    assert set(driver) == {"cuLaunchKernelEx"}
    changed(path, f"CREATE TABLE CUPTI_ACTIVITY_KIND_DRIVER AS SELECT * FROM {RUNTIME}",
            f"DELETE FROM {RUNTIME}")  # fmt: skip
    assert set(read(path).launches["kind"]) == {"driver"}


def test_I08_ranges_without_an_end_are_noted(path):
    before = outcomes(attribute(read(path)))
    found = changed(path, f"INSERT INTO NVTX_EVENTS SELECT start, NULL, 60, {OPEN}")
    assert outcomes(found) == before
    assert "left out ranges that were never closed: 10" in found.notes


def test_I13_zeros_of_old_exports_are_missing_values(path):
    """Columns were NOT NULL once, with 0 or '' where a value is missing."""
    truth = answers(path)
    found = changed(
        path,
        "UPDATE NVTX_EVENTS SET text = '' WHERE text IS NULL",
        f"INSERT INTO NVTX_EVENTS SELECT start, 0, 59, {OPEN}",
        f"UPDATE {KERNEL} SET graphNodeId = 0 WHERE graphNodeId IS NULL",
        f"UPDATE {NODES} SET originalGraphNodeId = 0 WHERE originalGraphNodeId IS NULL",
        f"INSERT INTO {RUNTIME} SELECT start, end, 0, globalTid, 0, nameId, 0 FROM {RUNTIME}",
        f"UPDATE {KERNEL} SET correlationId = 0 WHERE correlationId = 10",
    )
    assert answers(path) == truth, "10 has no launch row anyhow"
    assert "left out ranges that were never closed: 10" in found.notes


def test_gpu_rows_without_times_or_backwards_are_noted(path):
    found = changed(path, f"UPDATE {KERNEL} SET start = 0, end = 0 WHERE rowid = 1",
                    f"UPDATE {KERNEL} SET end = start - 1 WHERE rowid IN (2, 3)")  # fmt: skip
    assert {"left out GPU rows without times: 1",
            "left out GPU rows that end before they start: 2"} <= {*found.notes}  # fmt: skip
    assert len(found.events.gpu) == RIGHT + 2 + 2 - 3


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")
        db.commit()


def damaged(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def edited(statement: str):
    def edit(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db:
            db.execute(statement)
            db.commit()

    return edit


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


NEWER = "UPDATE META_DATA_EXPORT SET value = '4.0.1' WHERE name = 'EXPORT_SCHEMA_VERSION'"


@pytest.mark.parametrize(("harm", "reason"), [
    (cut, "malformed"), (emptied, "an empty file"), (foreign, "no CUPTI and no NVTX table"),
    (damaged, "malformed"), (edited(NEWER), "schema 4.0.1 is newer than the 3.x known here"),
    (edited(f"UPDATE {KERNEL} SET start = 'soon'"), "odd values"), (missing, "No such file"),
    (folder, "Is a directory"),
])  # fmt: skip
def test_what_is_no_whole_export_is_refused_in_one_line(path, harm, reason):
    harm(path)
    with pytest.raises(Unreadable) as refused:
        read(path)
    said = str(refused.value)
    assert path.name in said and reason in said and "\n" not in said
    assert isinstance(refused.value, ValueError)


def test_a_locked_export_is_refused_and_read_once_it_is_free(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unreadable, match=r"export\.sqlite: .*locked"):
            read(path)
        db.rollback()
        assert len(read(path).gpu) == RIGHT + 4


def test_reading_changes_nothing(path):
    before = path.read_bytes()
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        read(path)
        assert [p.name for p in path.parent.iterdir()] == [path.name]
    finally:
        path.parent.chmod(0o755)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("name", "content", "reason"), [
    ("run.nsys-rep", b"\x01report", "nsys export --type sqlite run.nsys-rep"),
    ("run.qdstrm", b"\x01stream", "could not make a report of"),  # I15: its import failed
    ("run.txt", b"once upon a time", "neither an SQLite export"),
])  # fmt: skip
def test_I15_other_files_are_told_what_to_do(tmp_path, name, content, reason):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(Unreadable, match=reason):
        read(tmp_path / name)
