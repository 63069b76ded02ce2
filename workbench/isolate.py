"""A child process that runs variants: a fault or a hang there is a result here.

A CUDA fault poisons its process and a hung kernel cannot be stopped from within, so every variant
runs in a worker (`workbench.worker`) that is killed at its limit and started afresh after it died.
Tasks and replies are JSON lines; a reply may be preceded by `turn` lines that say what runs.
"""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

START_S = 120.0  # to import torch and open the device; longer is a broken machine


class Died(RuntimeError):
    """The worker ended or was killed; `timeout` says which, `turn` what it said it was running."""

    def __init__(self, why: str, timeout: bool, turn: Any):
        super().__init__(why)
        self.timeout, self.turn = timeout, turn

    @property
    def status(self) -> str:
        """What a record says of whom it met."""
        return "timeout" if self.timeout else "error"


class Worker:
    """A worker process for one device; starts when it is first asked. Use as a context manager.

    `command` starts another program that keeps to the same protocol.
    """

    def __init__(
        self, device: str, modules: tuple[str, ...] = (), command: tuple[str, ...] = ()
    ):  # fmt: skip
        self.device, self.modules = device, modules
        self.command = command or (sys.executable, "-m", "workbench.worker", device, *modules)
        self.environment: dict | None = None
        self._child: subprocess.Popen | None = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()

    def start(self) -> dict:
        """Start the process where none runs; return its environment. Raises Died."""
        if self._child is None:
            environment = dict(os.environ)
            environment.pop("TRITON_INTERPRET", None)
            if self.device == "cpu":
                environment["TRITON_INTERPRET"] = "1"
                # threads that spin while they wait lose whole time slices on a busy machine
                environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
            root = str(Path(__file__).parents[1])
            paths = [root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115, closed in stop
            self._buffer = b""
            self._child = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
                env=environment, start_new_session=True,
            )  # fmt: skip
            self.environment = self._reply(START_S)
        return self.environment

    def call(self, task: dict, limit_s: float) -> dict:
        """Send a task, return its reply. Every step of it has `limit_s`. Raises Died."""
        self.start()
        try:
            self._child.stdin.write(json.dumps(task).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            raise self._dead(None) from None
        return self._reply(limit_s)

    def end(self, limit_s: float = 20.0) -> None:
        """Let the process end by itself, so that a profiler around it writes what it saw."""
        if self._child is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(limit_s)
        self.stop()

    def stop(self) -> None:
        """End the process and all that it started."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        with contextlib.suppress(BrokenPipeError):  # what it was never able to read
            self._child.stdin.close()
        self._child.stdout.close()
        self._errors.close()
        self._child = None

    def _reply(self, limit_s: float) -> dict:
        turn = None
        deadline = time.monotonic() + limit_s
        while True:
            line = self._line(deadline)
            if line is None:
                self.stop()
                raise Died(f"killed after {limit_s:g} s without an answer", True, turn)
            if not line:
                raise self._dead(turn)
            try:
                message = json.loads(line)
            except ValueError:
                self.stop()
                raise Died("wrote into the channel of its replies", False, turn) from None
            if "turn" not in message:
                return message
            turn, deadline = message["turn"], time.monotonic() + limit_s

    def _line(self, deadline: float) -> bytes | None:
        """The next line; b"" at the end of the stream, None at the deadline."""
        out = self._child.stdout.fileno()
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not ready.select(max(0.0, deadline - time.monotonic())):
                    return None
                chunk = os.read(out, 1 << 16)
                if not chunk:
                    return b""
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _dead(self, turn: Any) -> Died:
        code = self._child.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        last = next((x.strip() for x in reversed(said) if _tells(x)), "")
        self.stop()
        return Died(f"its process died ({how}){': ' + last[:300] if last else ''}", False, turn)


def _tells(line: str) -> bool:
    """Whether a line of standard error says what happened: `SomeError: ...`, `Fatal ...`."""
    head = line.split(":")[0]
    return not line.startswith(" ") and ("Error" in head or "Exception" in head or
                                         line.startswith("Fatal"))  # fmt: skip
