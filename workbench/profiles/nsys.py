"""Nsight Systems: the SQLite export (`nsys export --type sqlite FILE`), schemas up to 3.

Tables and columns come and go between versions, so each is looked for; one with a version behind
its name (CUPTI_ACTIVITY_KIND_KERNEL_V2) stands in for the plain one. Zeros that old exports write
where a value is missing are missing. Tables of the profiled process (its environment, host, user,
arguments, process names) are never read.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from ._export import Export, Table, opened, pids, renumber
from .events import (
    GPU_ROW,
    LAUNCH_ROW,
    NODE_ROW,
    OPEN,
    RANGE_ROW,
    RANGES,
    UNKNOWN,
    Events,
    Names,
    Unreadable,
    made,
)

SCHEMA = 3  # the newest major version whose columns are known here
CUPTI = "CUPTI_ACTIVITY_KIND_"
GPU = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")  # in the order of events.KINDS
CALLS = ("RUNTIME", "DRIVER")  # RUNTIME holds driver calls, too, since there is an eventClass
TYPES = {  # of NVTX_EVENTS: name -> number, where the export does not say it
    "NvtxPushPopRange": 59,
    "NvtxStartEndRange": 60,
    "NvtxtPushPopRange": 70,
    "NvtxtStartEndRange": 71,
    "NvtxDomainCreate": 75,
}
COPIES = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
PAYLOADS = ("int64Value", "uint64Value", "int32Value", "uint32Value")
WAIT_S = 1  # for one who writes to the file


def read(path: Path) -> Events:
    """The events of an export. Raises Unreadable on what is none, or not a whole one."""
    path = Path(path)
    try:
        address = path.resolve().as_uri() + "?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=WAIT_S)) as db:
            db.text_factory = lambda text: text.decode(errors="replace")  # NVTX takes any bytes
            db.execute("BEGIN")  # one state of the file, whoever writes to it meanwhile
            return _events(path, opened(db))
    except (sqlite3.Error, TypeError, OverflowError) as error:
        raise Unreadable(path, f"not a whole SQLite export: {error}") from None


def _events(path: Path, export: Export) -> Events:
    gpu, calls = ([export.table(CUPTI + name) for name in names] for names in (GPU, CALLS))
    nvtx, nodes = export.table("NVTX_EVENTS"), export.table("CUDA_GRAPH_NODE_EVENTS")
    if not any(table.columns for table in (*gpu, *calls, nvtx)):
        raise Unreadable(path, "no Nsight Systems export: it has no CUPTI and no NVTX table")
    notes = _version(path, export)
    notes += [f"no {t.name} table" for t in (gpu[0], calls[0], nvtx) if not t.columns]
    names = Names()
    try:
        rows = [
            np.concatenate([_gpu(export, t, kind, names) for kind, t in enumerate(gpu)]),
            np.concatenate([_calls(export, t, api, names) for api, t in enumerate(calls)]),
            _ranges(export, nvtx, names),
            _nodes(export, nodes),
        ]
    except ValueError as error:  # numpy's, of a text where a number belongs
        raise Unreadable(path, f"an export with odd values: {error}") from None
    pids(*rows)
    return made("nsys", *rows, names, notes)


def _version(path: Path, export: Export) -> list[str]:
    """Notes on the version of the schema. Raises Unreadable where it is newer than known here."""
    meta = export.tables.get("META_DATA_EXPORT", Table(""))
    if not {"name", "value"} <= meta.columns:
        return ["no META_DATA_EXPORT table: the version of the schema is unknown"]
    sql = "SELECT name, value FROM META_DATA_EXPORT WHERE name LIKE 'EXPORT_SCHEMA_VERSION%'"
    said = dict(export.db.execute(sql))
    version = said.get("EXPORT_SCHEMA_VERSION") or said.get("EXPORT_SCHEMA_VERSION_MAJOR")
    major = re.match(r"\d+", str(version))
    if not major:
        return ["META_DATA_EXPORT names no version of the schema"]
    if int(major[0]) > SCHEMA:
        raise Unreadable(path, f"schema {version} is newer than the {SCHEMA}.x known here")
    return [] if int(major[0]) == SCHEMA else [f"schema {version} is older than {SCHEMA}.x"]


def _times(table: Table, owner: str) -> list[str]:
    """SQL for start, end and process; the latter is the upper part of a globalPid or globalTid."""
    process = f"COALESCE({table.nonzero(owner)} >> 24, {UNKNOWN})"
    return [table.get("start", 0), table.get("end", 0), process]


def _thread(table: Table) -> str:
    return f"COALESCE({table.nonzero('globalTid')} & 16777215, {UNKNOWN})"


def _gpu(export: Export, table: Table, kind: int, names: Names) -> np.ndarray:
    copies = COPIES | export.labels("ENUM_CUDA_MEMCPY_OPER", "label")
    graph = table.first(("graphId", "graphExecId"), 0)
    said, text = (
        (
            table.first(("demangledName", "shortName", "mangledName"), -1),
            lambda i: export.strings.get(i, f"kernel {i}"),
        ),
        (table.get("copyKind", -1), lambda i: f"memcpy {copies.get(i, 'of unknown kind')}"),
        ("0", lambda _: "memset"),
        (graph, lambda i: f"graph {i}"),
    )[kind]
    values = [
        str(kind), said, *_times(table, "globalPid"), table.get("deviceId", UNKNOWN),
        table.get("streamId", UNKNOWN), table.get("correlationId", 0), table.get("bytes", UNKNOWN),
        graph, table.get("graphNodeId", 0),
    ]  # fmt: skip
    rows = export.rows(table, values, GPU_ROW)
    rows["name"] = renumber(rows["name"], names, text)
    return rows


def _calls(export: Export, table: Table, api: int, names: Names) -> np.ndarray:
    """Calls of the runtime and of the driver; both launch: Triton does by cuLaunchKernelEx."""
    classes = {n: i for i, n in export.labels("ENUM_NSYS_EVENT_CLASS", "name").items()}
    driver = classes.get("TRACE_PROCESS_EVENT_CUDA_DRIVER", 1)
    kind = str(api) if api else f"{table.get('eventClass', driver - 1)} = {driver}"
    values = [
        kind, table.get("nameId", -1), *_times(table, "globalTid"), _thread(table),
        table.get("correlationId", 0),
    ]  # fmt: skip
    rows = export.rows(table, values, LAUNCH_ROW)
    rows["name"] = renumber(rows["name"], names, lambda i: export.strings.get(i, f"call {i}"))
    return rows


def _ranges(export: Export, table: Table, names: Names) -> np.ndarray:
    """Closed and open ranges; marks are none. An export without types holds push/pop ranges."""
    said = {name: number for number, name in export.labels("ENUM_NSYS_EVENT_TYPE", "name").items()}
    *types, domain = (said.get(name, number) for name, number in TYPES.items())
    kinds = [RANGES.index(kind) for kind in ("push_pop", "start_end") * 2]
    type_ = table.get("eventType", types[0])
    kind = " ".join(f"WHEN {t} THEN {k}" for t, k in zip(types, kinds, strict=True))
    text = f"NULLIF({table.get('text')}, '')"
    times = _times(table, "globalTid")
    times[1] = table.nonzero("end", OPEN)
    domains = _domains(export, table, f"{type_} = {domain}", text)
    payload = table.first(PAYLOADS)
    values = [
        f"CASE {type_} {kind} END", text, table.get("textId", -1), table.get("domainId", 0), *times,
        _thread(table), f"COALESCE({payload}, 0)", f"{payload} IS NOT NULL",
    ]  # fmt: skip
    if not table.columns:
        return np.empty(0, RANGE_ROW)
    sql = (f'SELECT {", ".join(values)} FROM "{table.name}" e '
           f"WHERE {type_} IN ({', '.join(map(str, types))})")  # fmt: skip
    strings, number = export.strings, names.number
    return np.fromiter(
        (
            (kind, number(strings.get(text_id) if text is None else text),
             number(domains.get((rest[2], domain_id), "")), *rest)
            for kind, text, text_id, domain_id, *rest in export.db.execute(sql)
        ),
        RANGE_ROW,
    )  # fmt: skip


def _domains(export: Export, table: Table, where: str, text: str) -> dict[tuple[int, int], str]:
    """Names of NVTX domains by process and number."""
    if not {"domainId", "eventType"} <= table.columns:
        return {}
    process = _times(table, "globalTid")[2]
    sql = (f'SELECT {process}, e."domainId", {text}, {table.get("textId", -1)} '
           f'FROM "{table.name}" e WHERE {where}')  # fmt: skip
    return {
        (process, number): export.strings.get(text_id, "") if text is None else text
        for process, number, text, text_id in export.db.execute(sql)
    }


def _nodes(export: Export, table: Table) -> np.ndarray:
    """How graph nodes came to be, at capture and by cloning."""
    values = [*_times(table, "globalTid"), _thread(table), table.get("graphNodeId", 0),
              table.get("originalGraphNodeId", 0)]  # fmt: skip
    return export.rows(table, values, NODE_ROW)
