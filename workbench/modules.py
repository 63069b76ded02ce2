"""Variants and ops from outside the repository: a Python file, or an installed entry point."""

import contextlib
import importlib.util
import sys
from importlib.metadata import entry_points
from pathlib import Path

from .fields import choose
from .op import Op
from .ops import OPS

GROUP = "workbench.variants"  # entry points of this group are imported with the registry


def registry(modules: tuple[str, ...] = ()) -> dict[str, Op]:
    """All ops by name, after importing the entry points and the files `modules`.

    A file registers variants with `@op.variant`; an `Op` among its global names is a new op. A file
    is imported once a process. Raises ValueError on a file that is missing or cannot be imported.
    """
    ops = dict(OPS)
    for point in entry_points(group=GROUP):
        ops |= _ops_of(point.load())
    for file in modules:
        ops |= _ops_of(_imported(Path(file)))
    for op in ops.values():
        for v in op.variants.values():
            if v.step_from is not None:
                choose(f"step_from of {v.name}", v.step_from, op.variants)
    return ops


def _imported(path: Path):
    path = path.resolve()
    name = f"workbench_module_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    if not path.is_file():
        raise ValueError(f"no module file at {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # any fault of a user's file, told in one line
        del sys.modules[name]
        raise ValueError(f"{path}: {type(error).__name__}: {error}") from error
    return module


def _ops_of(module) -> dict[str, Op]:
    return {op.name: op for op in vars(module).values() if isinstance(op, Op)}
