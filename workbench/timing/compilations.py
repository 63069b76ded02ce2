"""Counting what Triton compiles: a sample that holds a compilation is no time of a kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

import triton


@contextmanager
def compilations() -> Iterator[list]:
    """Yield a list that gets the name of every kernel that Triton compiles or loads inside."""
    seen: list[str] = []
    runtime = triton.knobs.runtime
    before = runtime.jit_post_compile_hook

    def note(*args, **kwargs):
        seen.append(kwargs["fn"].name)
        return before(*args, **kwargs) if before else None

    runtime.jit_post_compile_hook = note
    try:
        yield seen
    finally:
        runtime.jit_post_compile_hook = before
