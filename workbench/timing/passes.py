"""Profile passes: calls of each case under a profiler, every one inside a range with its number.

A replay runs no Python, so a graph has one range. A call is therefore captured in pieces, cut where
it opens or closes a range of its own, and each piece is replayed inside the range that it was
captured in: plan and kernel of a union are two graphs. A pass is a look inside, never a sample.
"""

import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

import torch

from .. import ranges
from .cupti import cupti
from .evict import evictor
from .graph import warmed
from .samples import Clock, uncollected

PASSES = 5  # of a case, behind one that warms it up
HOLD_CYCLES = 400_000  # some 0.2 ms in which the host launches what follows
PLAIN = 2  # calls of a case that is not warmed on a stream of its own


@dataclass
class Piece:
    """What was captured inside one range: graphs, and the pieces of ranges inside of it."""

    name: str
    parts: list = field(default_factory=list)

    def replay(self) -> None:
        for part in self.parts:
            if isinstance(part, Piece):
                with ranges.span(part.name):
                    part.replay()
            else:
                part.replay()


class _Cutter:
    """Listens to ranges while a call is captured, and ends a graph at each boundary."""

    def __init__(self):
        self.pool, self.every = torch.cuda.graph_pool_handle(), []
        self.whole = Piece("")
        self.open = [self.whole]

    def begin(self) -> None:
        # all are kept, empty ones too: memory of the pool goes where its last graph goes
        self.every.append(torch.cuda.CUDAGraph())
        self.every[-1].capture_begin(pool=self.pool)

    def end(self) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.every[-1].capture_end()
        if not any("is empty" in str(w.message) for w in said):
            self.open[-1].parts.append(self.every[-1])

    def push(self, name: str, case: int | None) -> None:
        self.end()
        inside = Piece(name)
        self.open[-1].parts.append(inside)
        self.open.append(inside)
        self.begin()

    def pop(self) -> None:
        self.end()
        self.open.pop()
        self.begin()


def in_pieces(call: Callable[[], object]) -> Callable[[], None]:
    """Capture `call`, which ran before, cut at its own ranges; return what replays it."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    cutter = _Cutter()
    with uncollected(), torch.cuda.stream(torch.cuda.Stream()):
        cutter.begin()
        try:
            with ranges.silenced(), ranges.told(cutter):
                kept = call()
        finally:
            cutter.end()
    torch.cuda.synchronize()

    def replay(cutter=cutter, kept=kept):  # both own memory that the graphs write
        cutter.whole.replay()

    return replay


def run(calls: dict, cases: dict, replayed: set, clock: Clock, device: str, session, turn) -> None:
    """Make passes of all `calls` inside `session`, a context manager that profiles.

    `cases` has the number of each, `replayed` the names of those that are captured. Everything is
    compiled, warmed and captured before the session opens; inside it each pass lies in a range
    `call`, what precedes it (a first call, the eviction of a cold clock) in `warm_up` and `scrub`.
    """
    gpu = torch.device(device).type == "cuda"
    evict = evictor(device) if clock.cache == "cold" else None
    ready = {}
    for name, call in calls.items():
        turn(name)
        with ranges.silenced():
            if gpu:
                warmed(call)
            else:
                for _ in range(PLAIN):
                    call()
        ready[name] = in_pieces(call) if name in replayed else call
    if evict is not None:
        evict()
    _wait(gpu)
    with session:
        for name, go in ready.items():
            turn(name)
            with ranges.of_case(cases[name]), uncollected():
                _passes(go, evict, gpu)


def _passes(go: Callable, evict: Callable | None, gpu: bool) -> None:
    with ranges.span("warm_up"), ranges.silenced():
        go()
    for _ in range(PASSES):
        if gpu:
            # the GPU waits while the host launches, so that no launch stands between two kernels
            with ranges.span("warm_up"):
                torch.cuda._sleep(HOLD_CYCLES)
        if evict is not None:
            with ranges.span("scrub"):
                evict()
        with ranges.span("call"):
            go()
        _wait(gpu)


def _wait(gpu: bool) -> None:
    if gpu:
        torch.cuda.synchronize()


@contextmanager
def bare(device: str, to: str):
    """Say where the passes begin and end to a profiler that runs around this process."""
    gpu = torch.device(device).type == "cuda"
    if gpu:
        torch.cuda.profiler.start()  # cudaProfilerStart
    try:
        yield
    finally:
        if gpu:
            torch.cuda.profiler.stop()


@contextmanager
def kineto(device: str, to: str, annotate: bool = True):
    """Profile the block with torch.profiler; write its trace to `to` as it comes.

    Ranges opened in the block are in it, unless whoever opens them annotates them.
    """
    from torch.profiler import ProfilerActivity, profile

    gpu = torch.device(device).type == "cuda"
    activities = [ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * gpu]
    annotated = ranges.annotated() if annotate else nullcontext()
    with profile(activities=activities, acc_events=True) as p, annotated:
        yield
        _wait(gpu)
    p.export_chrome_trace(to)


SESSIONS = {"kineto": kineto, "cupti": cupti, "none": bare}
