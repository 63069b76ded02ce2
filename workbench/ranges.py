"""NVTX ranges of one domain and a fixed set of names, for Nsight Systems; silent in timed passes.

Messages are registered once: a tool keeps every distinct one, so the set stays small.
"""

from contextlib import contextmanager
from contextvars import ContextVar

try:
    import nvtx
except ImportError:  # the package is optional: a run without it is a run without ranges
    nvtx = None

NAMES = ("inputs", "reference", "plan", "warm_up", "kernel")

_silent: ContextVar[bool] = ContextVar("silent", default=False)
_domain = nvtx.get_domain("workbench") if nvtx else None
_attributes = (
    {name: _domain.get_event_attributes(message=name, category=name) for name in NAMES}
    if nvtx
    else {}
)


@contextmanager
def span(name: str):
    """Open the range `name`, one of NAMES, around the block; nothing inside `silenced`."""
    if name not in NAMES:
        raise ValueError(f"range {name!r} is none of {', '.join(NAMES)}")
    if _domain is None or _silent.get():
        yield
        return
    _domain.push_range(_attributes[name])
    try:
        yield
    finally:
        _domain.pop_range()


@contextmanager
def silenced():
    """No range opens inside this block: a timed sample holds nothing but the work."""
    token = _silent.set(True)
    try:
        yield
    finally:
        _silent.reset(token)
