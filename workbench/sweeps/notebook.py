"""One notebook through papermill: parameters checked by name and type before anything runs."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

LIMIT_S = 1800  # for one cell: a kernel that hangs must not hang a sweep


class NotebookFailed(RuntimeError):
    """A notebook that was started did not run to its end: a cell raised, hung, or killed it."""


def parameters(notebook: Path) -> dict[str, Any]:
    """The declared parameters of a notebook and their defaults.

    Raises FileNotFoundError where there is no notebook, ValueError where no cell is tagged
    `parameters`, or that cell is more than assignments of constants.
    """
    import ast

    import nbformat

    if not notebook.is_file():
        raise FileNotFoundError(f"no notebook at {notebook}")
    try:
        cells = nbformat.read(notebook, as_version=4).cells
    except Exception as error:  # nbformat raises a dozen kinds for a file that is no notebook
        raise ValueError(f"{notebook} is not a notebook: {error}") from None
    tagged = [c for c in cells if "parameters" in (c.metadata.get("tags") or [])]
    if not tagged:
        raise ValueError(f"{notebook} has no cell tagged `parameters`")
    found = {}
    try:
        for node in ast.parse(tagged[0].get("source", "")).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                raise ValueError(f"line {node.lineno} does something else")
            found[node.targets[0].id] = ast.literal_eval(node.value)
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{notebook}: the parameters cell may only assign constants: "
                         f"{error}") from None  # fmt: skip
    return found


def typed(notebook: Path, given: dict[str, Any]) -> dict[str, Any]:
    """`given` (name -> text or value) with the types of the notebook's defaults.

    A list parameter takes "1,2,3". Raises ValueError on an unknown name or a value of another type.
    """
    from ..fields import choose, convert

    defaults = parameters(notebook)
    out = {}
    for name, value in given.items():
        default = defaults[choose(f"parameter of {notebook.name}", name, defaults)]
        if hasattr(value, "tolist"):  # a NumPy number or array
            value = value.tolist()
        if isinstance(default, list):
            items = value.split(",") if isinstance(value, str) else value
            items = items if isinstance(items, list | tuple) else [items]
            kind = type(default[0]) if default else str
            out[name] = [convert(name, item, kind) for item in items]
        else:
            out[name] = value if default is None else convert(name, value, type(default))
    return out


def execute(notebook: Path, out: Path, given: dict[str, Any], *, progress: bool = False) -> None:
    """Run `notebook` with parameters `given`; `out` is the executed one, written in one step.

    The notebook runs in the current folder. Raises ValueError on bad parameters before it starts,
    NotebookFailed where it then does not end well (`out` shows how far it came).
    """
    given = typed(notebook, given)
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.exists() and not out.is_file():
        raise ValueError(f"{out} is there and is no file that may be replaced")
    with tempfile.TemporaryFile(dir=out.parent):
        pass  # the folder can be written: known before minutes of work

    import papermill
    from papermill.exceptions import PapermillExecutionError
    from papermill.log import logger

    logger.setLevel("ERROR")
    partial = out.with_name(f".{out.stem}.partial.ipynb")
    try:
        papermill.execute_notebook(
            str(notebook), str(partial), given, progress_bar=progress, cwd=str(Path.cwd()),
            execution_timeout=LIMIT_S, start_timeout=120, kernel_name="python3",
            language="python",
            extra_arguments=["--log-level=CRITICAL"],  # its notice of local ports is no news
        )  # fmt: skip
    except PapermillExecutionError as error:
        said = re.sub(r"\x1b\[[0-9;]*m", "", f"{error.ename}: {error.evalue}")
        raise NotebookFailed(" ".join(said.split())) from None
    except (RuntimeError, TimeoutError) as error:  # the kernel died, hung, or did not start
        raise NotebookFailed(f"{type(error).__name__}: {' '.join(str(error).split())}") from None
    finally:
        if partial.exists():
            os.replace(partial, out)
