"""Kineto: the Chrome trace that torch.profiler writes, as JSON or gzipped.

Its times are microseconds in decimals. They are read as text: a double holds 16 digits and a time
since 1970 in nanoseconds has 19. A GPU row names its device, not its process: that is the one whose
launch has its correlation. Who ran the trace, where and how is not read.
"""

import gzip
import json
import zlib
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np

from .events import (
    APIS,
    GPU_ROW,
    KINDS,
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

# Categories in lower case: traces before 2022 write "Kernel" and "Runtime".
GPU = {"kernel": "kernel", "gpu_memcpy": "copy", "memcpy": "copy", "gpu_memset": "memset",
       "memset": "memset"}  # fmt: skip
CALLS = {"cuda_runtime": "runtime", "runtime": "runtime", "cuda_driver": "driver"}
RANGE = "user_annotation"  # gpu_user_annotation, its shadow on a stream, is no event
GZIP = b"\x1f\x8b"


def read(path: Path) -> Events:
    """The events of a trace. Raises Unreadable where it is none, or not a whole one."""
    path = Path(path)
    gpu, calls, ranges, names = [], [], [], Names()
    events = 0

    def take(found: dict) -> dict | None:
        """Keep the rows of an event and let go of the event itself: most of a trace is not used."""
        nonlocal events
        if "ph" not in found:
            return found
        events += 1
        if found["ph"] == "X":
            kind = str(found.get("cat", "")).lower()
            if kind in GPU:
                gpu.append(_gpu(found, KINDS.index(GPU[kind]), names))
            elif kind in CALLS:
                calls.append(_call(found, APIS.index(CALLS[kind]), names))
            elif kind == RANGE:
                ranges.append(_range(found, names))
        return None

    text = _text(path)
    try:
        json.loads(text, object_hook=take, parse_float=str)
    except json.JSONDecodeError as error:
        raise Unreadable(path, f"not JSON from character {error.pos} on: {error.msg}") from None
    except (KeyError, TypeError, ValueError, AttributeError, InvalidOperation) as error:
        raise Unreadable(path, f"event {events} has odd values: {error!r}") from None
    except RecursionError:
        raise Unreadable(path, "JSON that is nested too deep for a trace") from None
    if not events:
        raise Unreadable(path, "JSON without events: no Chrome trace")
    try:
        rows = [np.array(part, dtype) for part, dtype in
                ((gpu, GPU_ROW), (calls, LAUNCH_ROW), (ranges, RANGE_ROW))]  # fmt: skip
    except (OverflowError, TypeError, ValueError) as error:
        raise Unreadable(path, f"an event with odd values: {error}") from None
    return made("kineto", *rows, np.empty(0, NODE_ROW), names)


def _text(path: Path) -> str:
    content = path.read_bytes()
    if content.startswith(GZIP):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise Unreadable(path, f"not a whole gzip file: {error}") from None
    return content.decode("utf-8-sig", errors="replace")  # a name with an odd byte is still a name


def nanoseconds(microseconds: int | str) -> int:
    """Exactly, from an integer or from decimals as text; digits below a nanosecond are rounded."""
    if isinstance(microseconds, int):
        return microseconds * 1000
    whole, _, part = microseconds.partition(".")
    if len(part) <= 3 and part.isdecimal():
        below = int(part) * 10 ** (3 - len(part))
        return int(whole) * 1000 + (-below if whole.startswith("-") else below)
    return round(Decimal(microseconds) * 1000)


def _times(event: dict) -> tuple[int, int]:
    start = nanoseconds(event["ts"])
    return start, start + nanoseconds(event["dur"]) if "dur" in event else OPEN


def _number(value: object) -> int:
    """A number of a process, thread, device or stream; old traces have texts there."""
    return value if isinstance(value, int) else UNKNOWN


def _gpu(event: dict, kind: int, names: Names) -> tuple:
    args = event.get("args", {})
    device, stream = args.get("device", event.get("pid")), args.get("stream", event.get("tid"))
    return (
        kind, names.number(event["name"]), *_times(event), UNKNOWN, _number(device),
        _number(stream), args.get("correlation") or 0, args.get("bytes", UNKNOWN),
        args.get("graph id") or 0, args.get("graph node id") or 0,
    )  # fmt: skip


def _call(event: dict, api: int, names: Names) -> tuple:
    correlation = event.get("args", {}).get("correlation") or 0
    return (api, names.number(event["name"]), *_times(event), _number(event.get("pid")),
            _number(event.get("tid")), correlation)  # fmt: skip


def _range(event: dict, names: Names) -> tuple:
    """An annotation; a trace that this workbench cleaned has domain and case of it."""
    thread = _number(event.get("pid")), _number(event.get("tid"))
    args = event.get("args", {})
    kind, payload = RANGES.index("annotation"), args.get("payload")
    has = isinstance(payload, int)
    return (kind, names.number(event["name"]), names.number(args.get("domain", "")),
            *_times(event), *thread, payload if has else 0, has)  # fmt: skip
