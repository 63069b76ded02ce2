"""What decides the report of a compiled kernel, or what a variant launches, as one short text.

Triton has a key of its own for a kernel's source; before version 3.7 at least it also depends on
which other kernels of a process were asked for theirs before, so that equal kernels get two.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
import triton
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend

from .. import op
from .kernel import disassembler
from .launches import Source

HERE = Path(__file__).parent
LIBRARIES = ("triton", "torch", "builtins")  # known by their version


def key(source: Source) -> str:
    """Kernel source, specialisation, options, target, and every tool that takes part."""
    ast = source.ast
    constants = [_named(value) for _, value in sorted(ast.constants.items())]
    return _short(text(ast.fn), str(sorted(ast.signature.items())), str(sorted(ast.attrs.items())),
                  constants, source.options.hash(), *_tools(source.target.arch))  # fmt: skip


def task_key(task: dict, arch: int) -> str:
    """What a variant of this package launches: the task, the package's own text, and every tool."""
    return _short(json.dumps(task, sort_keys=True), _text_of(Path(op.__file__).parent),
                  torch.__version__, *_tools(arch))  # fmt: skip


def _short(*parts) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def text(kernel) -> str:
    """The source of a jit function, of all that it calls, and the global values that they use."""
    return "\n".join(_texts(kernel, set()))


def _texts(kernel, seen: set[int]) -> Iterator[str]:
    seen.add(id(kernel))
    names = sorted(kernel.fn.__code__.co_names)
    yield f"{getattr(kernel, 'noinline', None)} {kernel.src}"
    for name in names:
        if name not in kernel.fn.__globals__:
            continue
        value = kernel.fn.__globals__[name]
        used = [value]
        if isinstance(value, ModuleType) and value.__name__.split(".")[0] not in LIBRARIES:
            used = [getattr(value, n) for n in names if hasattr(value, n)]  # module.step(...)
        for each in used:
            if not hasattr(each, "src"):
                yield f"{name} is {_named(each)}"
            elif id(each) not in seen:
                yield name
                yield from _texts(each, seen)


def _named(value) -> str:
    """A value as text that is equal in every process."""
    if hasattr(value, "src"):
        return text(value)
    if isinstance(value, ModuleType):
        return value.__name__
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__}.{name}" if isinstance(name, str) else repr(value)


@cache
def _tools(arch: int) -> tuple[str, ...]:
    """What compiles and reads: Triton, its assembler, the disassembler, and the code here.

    With the environment variables that Triton says change what it compiles.
    """
    tool = disassembler()
    seen = Path(tool).stat() if tool else None
    return (
        triton.__version__, make_backend(GPUTarget("cuda", arch, 32)).hash(),
        f"{tool} {seen.st_size} {seen.st_mtime_ns}" if seen else "",
        json.dumps(sorted(get_cache_invalidating_env_vars().items())), _text_of(HERE),
    )  # fmt: skip


@cache
def _text_of(folder: Path) -> str:
    """A digest of the Python files in and below `folder`."""
    files = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.py")}
    return _short(sorted(files.items()))
