"""Device time of a CUDA graph: no launch cost of the host in it, events inside of the graph.

Cold: one replay evicts the L2, then takes the time of one call between two events. Hot: one replay
makes the call once untimed, then takes the time of several calls. Rotating: one replay takes the
time of a call on each of several sets of inputs, so that a set's rows have left the L2 before they
are read again, as in a server, while what the sets share may stay. All arms are captured first,
then replayed in turns.
"""

from collections.abc import Callable, Sequence

import torch

from .evict import evictor
from .samples import Call, Clock, Prepared

HOT_SAMPLE_US = 100.0  # a hot sample lasts about this long: calls are repeated up to it
MAX_CALLS = 50


def warmed(call: Callable) -> None:
    """Run `call` a few times on a side stream, as a capture asks: compiles, fills caches."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()


def captured(calls: Sequence[Callable], before: Callable = lambda: None) -> Callable[[], float]:
    """Capture `before`, then `calls` between two events; return replay() -> microseconds a call."""
    start, stop = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before()
        start.record()
        for call in calls:
            call()
        stop.record()

    def replay() -> float:
        graph.replay()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3 / len(calls)

    return replay


def _open_cold(device: str):
    evict = evictor(device)

    def prepare(call: Callable) -> Prepared:
        warmed(call)
        return Prepared(captured([call], evict))

    return prepare


def _open_hot(device: str):
    def prepare(call: Callable) -> Prepared:
        warmed(call)
        once = captured([call], call)
        once()
        calls = max(1, min(MAX_CALLS, int(HOT_SAMPLE_US / max(once(), 0.1))))
        return Prepared(once if calls == 1 else captured([call] * calls, call), calls)

    return prepare


def _open_rotating(device: str):
    def prepare(call: Call) -> Prepared:
        if not isinstance(call, Call) or len(call.sets) < 2:
            raise ValueError("graph_rotating needs a call that takes its inputs, and at least two "
                             "sets: one that takes none reads the same every time")  # fmt: skip
        calls = [lambda x=x: call.run(x) for x in call.sets]
        for each in calls:
            warmed(each)
        n = len(calls)
        return Prepared(captured(calls), n, n, n * call.set_bytes or None)

    return prepare


graph_cold = Clock("graph_cold", _open_cold, "cold", needs_gpu=True, repeats=100, captures=True)
graph_hot = Clock("graph_hot", _open_hot, "hot", needs_gpu=True, repeats=100, captures=True)
graph_rotating = Clock(
    "graph_rotating", _open_rotating, "rotating", needs_gpu=True, repeats=100, captures=True,
    rotates=True,
)  # fmt: skip
