"""Device time of a CUDA graph: no launch cost of the host in it, events inside of the graph.

Cold: one replay evicts the L2 (reads and writes random data of four times its size), then takes
the time of one call between two events. Hot: one replay makes the call once untimed, then takes
the time of several calls. All arms are captured first, then replayed in turns.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .. import ranges
from .samples import Arms, Clock, Samples, Turn, rounds, shares, uncollected

EVICT = 4  # times the L2 that are read and written
HOT_SAMPLE_US = 100.0  # a hot sample lasts about this long: calls are repeated up to it
MAX_CALLS = 50


@dataclass
class _Captured:
    graph: torch.cuda.CUDAGraph
    start: torch.cuda.Event
    stop: torch.cuda.Event
    calls: int

    def sample_us(self) -> float:
        self.graph.replay()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) * 1e3 / self.calls


def _capture(call: Callable, before: Callable, calls: int) -> _Captured:
    start, stop = (torch.cuda.Event(enable_timing=True, external=True) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        before()
        start.record()
        for _ in range(calls):
            call()
        stop.record()
    return _Captured(graph, start, stop, calls)


def _evictor(device: str) -> Callable[[], object]:
    size = EVICT * torch.cuda.get_device_properties(device).L2_cache_size
    noise = torch.randint(-(2**62), 2**62, (size // 8,), dtype=torch.int64, device=device)
    return lambda: noise.bitwise_not_()


def _measure(arms, repeats, budget_s, turn, device, *, cold: bool) -> dict[str, Samples]:
    with torch.cuda.device(device):
        captured, first = {}, {}
        evict = _evictor(device)
        side = torch.cuda.Stream()
        for name, call in arms.items():
            turn(name)
            with ranges.span("warm_up"), torch.cuda.stream(side):
                for _ in range(3):  # compiles, fills caches, takes first-touch faults
                    call()
            torch.cuda.synchronize()
            once = _capture(call, evict if cold else call, 1)
            once.sample_us()
            first[name] = once.sample_us()
            fitting = int(HOT_SAMPLE_US / max(first[name], 0.1))
            calls = 1 if cold else max(1, min(MAX_CALLS, fitting))
            captured[name] = once if calls == 1 else _capture(call, call, calls)
            captured[name].sample_us()
        out = {name: Samples(c.calls) for name, c in captured.items()}
        costs = {name: first[name] * captured[name].calls for name in captured}
        with uncollected():
            for name in rounds(shares(costs, repeats, budget_s)):
                turn(name)
                out[name].samples_us.append(captured[name].sample_us())
        return out


def _cold(arms: Arms, repeats: int, budget_s: float, turn: Turn, device: str):
    return _measure(arms, repeats, budget_s, turn, device, cold=True)


def _hot(arms: Arms, repeats: int, budget_s: float, turn: Turn, device: str):
    return _measure(arms, repeats, budget_s, turn, device, cold=False)


graph_cold = Clock("graph_cold", _cold, cache="cold", needs_gpu=True, repeats=100)
graph_hot = Clock("graph_hot", _hot, cache="hot", needs_gpu=True, repeats=100)
