"""A session of CUPTI's activity API, by cupti-python: its rows as they come, ranges by us."""

import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path

from .. import ranges
from ..profiles.cupti import HEADER, lines

BUFFER_BYTES = 8 << 20


class _Noted:
    """Ranges on CUPTI's own clock, as annotations of this process."""

    def __init__(self, now):
        self.now, self.opened, self.rows = now, [], []

    def push(self, name: str, case: int | None) -> None:
        self.opened.append((name, case, self.now()))

    def pop(self) -> None:
        name, case, start = self.opened.pop()
        row = {"start": start, "end": self.now(), "name": name, "process": os.getpid(),
               "thread": threading.get_native_id(), "payload": case}  # fmt: skip
        self.rows += lines("annotation", [row])


@contextmanager
def cupti(device: str, to: str):
    """Profile the block; write its activities to `to` as profiles.cupti reads them."""
    from cupti import cupti as api

    of_gpu = {api.ActivityKind.CONCURRENT_KERNEL: "kernel", api.ActivityKind.MEMCPY: "copy",
              api.ActivityKind.MEMSET: "memset"}  # fmt: skip
    of_calls = {api.ActivityKind.RUNTIME: ("runtime", api.CallbackDomain.RUNTIME_API),
                api.ActivityKind.DRIVER: ("driver", api.CallbackDomain.DRIVER_API)}  # fmt: skip
    rows = []

    def completed(activities) -> None:
        for a in activities:  # theirs only until this returns
            if a.kind in of_gpu:
                rows.extend(lines(of_gpu[a.kind], [a]))
            elif a.kind in of_calls:
                kind, domain = of_calls[a.kind]
                call = {"start": a.start, "end": a.end, "process": a.process_id,
                        "name": api.get_callback_name(domain, a.cbid), "thread": a.thread_id,
                        "correlation": a.correlation_id}  # fmt: skip
                rows.extend(lines(kind, [call]))

    api.set_thread_id_type(api.ActivityThreadIdType.SYSTEM)  # what get_native_id gives, too
    api.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), completed)
    noted, kinds = _Noted(api.get_timestamp), (*of_gpu, *of_calls)
    for kind in kinds:
        api.activity_enable(kind)
    try:
        with ranges.told(noted):
            yield
    finally:
        api.activity_flush_all(1)
        for kind in kinds:
            api.activity_disable(kind)
    text = json.dumps(HEADER) + "\n" + "".join([*rows, *noted.rows])
    Path(to).write_text(text, encoding="utf-8")
