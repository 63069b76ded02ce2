"""Named ranges of one NVTX domain and a fixed set of names; silent in timed passes.

Nsight Systems keeps every distinct message, so the set stays small: each name is one, and its own
category; the case that runs is an integer payload. The same call also opens an annotation of
torch.profiler inside of `annotated`, and tells whoever else listens. With no one there, a range
costs some 100 ns (benchmarks/ranges.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Protocol

try:
    import nvtx
except ImportError:  # the package is optional: a run without it is a run without ranges
    nvtx = None

DOMAIN = "workbench"
NAMES = ("inputs", "reference", "plan", "warm_up", "scrub", "kernel", "call", "cell")
CASE = " case="  # between name and case in an annotation, which has no place for a number


class Listener(Protocol):
    """Who is told of every range that opens and closes."""

    def push(self, name: str, case: int | None) -> object: ...  # what it returns is not looked at

    def pop(self) -> object: ...


class _Nvtx:
    def __init__(self, domain):
        self.domain, self.pop = domain, domain.pop_range
        self.attributes = cache(
            lambda name, case: domain.get_event_attributes(message=name, category=name,
                                                           payload=case)
        )  # fmt: skip

    def push(self, name: str, case: int | None) -> None:
        self.domain.push_range(self.attributes(name, case))


class _Annotations:
    """torch.profiler's annotations, which close in the order in which they were opened."""

    def __init__(self):
        from torch.autograd.profiler import record_function

        self.opened, self.record = [], record_function

    def push(self, name: str, case: int | None) -> None:
        annotation = self.record(name if case is None else f"{name}{CASE}{case}")
        annotation.__enter__()
        self.opened.append(annotation)

    def pop(self) -> None:
        self.opened.pop().__exit__(None, None, None)


def _attached() -> tuple[Listener, ...]:
    """NVTX where the package is there and a tool is attached to this process."""
    domain = nvtx.get_domain(DOMAIN) if nvtx else None
    # what stands in for a domain that no tool looks at has no attributes
    heard = domain is not None and domain.get_event_attributes(message=NAMES[0]) is not None
    return (_Nvtx(domain),) if heard else ()


_ATTACHED = _attached()
_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=_ATTACHED)
_case: ContextVar[int | None] = ContextVar("case", default=None)


class _Span:
    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __enter__(self):
        for listener in _listeners.get():
            listener.push(self.name, _case.get())

    def __exit__(self, kind, error, trace):
        for listener in reversed(_listeners.get()):
            listener.pop()


class _Nothing:
    """A range that nobody is told of: C functions that take what a `with` gives and do nothing."""

    __slots__ = ()
    __enter__, __exit__ = "".strip, "".format


_SPANS = {name: _Span(name) for name in NAMES}
_UNHEARD = dict.fromkeys(NAMES, _Nothing())


def span(name: str) -> _Span | _Nothing:
    """The range `name`, one of NAMES, around a block; nothing inside `silenced`."""
    try:
        return _SPANS[name] if _listeners.get() else _UNHEARD[name]
    except KeyError:
        raise ValueError(f"range {name!r} is none of {', '.join(NAMES)}") from None


@contextmanager
def of_case(case: int) -> Iterator[None]:
    """Ranges opened inside this block carry the number of a case as their payload."""
    token = _case.set(case)
    try:
        yield
    finally:
        _case.reset(token)


@contextmanager
def told(*listeners: Listener) -> Iterator[None]:
    """Tell `listeners`, too, of the ranges opened inside this block."""
    token = _listeners.set((*_listeners.get(), *listeners))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def annotated() -> Iterator[None]:
    """Ranges opened inside this block are annotations of torch.profiler, too."""
    with told(_Annotations()):
        yield


@contextmanager
def silenced() -> Iterator[None]:
    """No range opens inside this block: a timed sample holds nothing but the work."""
    token = _listeners.set(())
    try:
        yield
    finally:
        _listeners.reset(token)
