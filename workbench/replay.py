"""One call, made again as a CUDA graph makes it: on the same memory, with no Python in it.

What the host decided while the call was recorded stays decided: a scalar, a grid, a branch, a
counter. On a GPU the recording is a graph. Without one it is a tape, which notes what the call
writes: tensor operations, and launches that Triton interprets. Either way a faulty variant that
only Python keeps right goes wrong when it is replayed on other numbers.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .interpreter import around_launches


class Unreplayable(RuntimeError):
    """An operation that a tape cannot perform again."""


def record(call: Callable[[], Any], device: str) -> tuple[Any, Callable[[], Any]]:
    """Make `call` once; return (what it returned, replay).

    `replay()` makes the call again and returns the tensors of the recording, with new numbers in
    them. So state that `call` keeps advances by one call here and by one with each replay. Raises
    Unreplayable for an operation that a tape cannot hold.
    """
    return _graph(call, device) if torch.device(device).type == "cuda" else _tape(call)


def _graph(call: Callable[[], Any], device: str) -> tuple[Any, Callable[[], Any]]:
    """The one call is the capture's warm-up, on the stream of the capture; capturing runs none."""
    stream, graph, captured = torch.cuda.Stream(device), torch.cuda.CUDAGraph(), []
    torch.cuda.synchronize(device)
    with torch.cuda.stream(stream):
        output = call()
    torch.cuda.synchronize(device)

    def replay():
        if not captured:  # here and not before, so that a fault of the capture is one of a replay
            with warnings.catch_warnings(), torch.cuda.graph(graph, stream=stream):
                warnings.simplefilter("ignore")  # that a graph is empty: some calls launch nothing
                captured.append(call())
        graph.replay()
        return captured[0]

    return output, replay


def _tape(call: Callable[[], Any]) -> tuple[Any, Callable[[], Any]]:
    tape = Tape()
    with around_launches(tape.launch), tape:
        output = call()

    def replay():
        for step in tape.steps:
            step()
        return output

    return output, replay


class Tape(TorchDispatchMode):
    """Notes, in order, how to write again what is written inside of the block."""

    def __init__(self):
        super().__init__()
        self.steps: list[Callable[[], None]] = []
        self._launching = False

    def launch(self, name: str, launch: Callable[[], None]) -> None:
        """Make an interpreted launch, and note it; the interpreter's own tensors are no step."""
        self._launching = True
        try:
            launch()
        finally:
            self._launching = False
        self.steps.append(launch)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self._launching and not func.is_view:  # a view shows what is there at any time
            self.steps.append(_again(func, args, kwargs, out))
        return out


def _again(func, args: tuple, kwargs: dict, out: Any) -> Callable[[], None]:
    """A function that computes `out` again, into the tensors that it is made of."""
    outputs = list(_leaves(out))
    if torch.Tag.inplace_view in func.tags or not all(isinstance(t, torch.Tensor) for t in outputs):
        raise Unreplayable(f"no tape holds {func}: it answers the host, or gives a tensor another "
                           "shape or memory")  # fmt: skip

    def again():
        for old, new in zip(outputs, _leaves(func(*args, **kwargs)), strict=True):
            if new.shape != old.shape:
                raise Unreplayable(f"{func} returned shape {tuple(old.shape)} when it was recorded "
                                   f"and {tuple(new.shape)} when it was replayed")  # fmt: skip
            if new is not old:  # an operation in place has written it already
                old.copy_(new)

    return again


def _leaves(out: Any) -> Iterator[Any]:
    """What an operation returned, out of its tuples and lists."""
    if isinstance(out, (tuple, list)):
        for each in out:
            yield from _leaves(each)
    elif out is not None:
        yield out
