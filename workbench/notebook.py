"""Profiles of notebooks: `%%gpu_profile` for a cell, and Kineto around all cells of one.

`%load_ext workbench` adds the magic. Only the notebook's own process is profiled: variants that
`measure` runs in workers are not in it; `workbench profile OP` profiles those.
"""

import ast
import tempfile
from contextlib import ExitStack
from pathlib import Path

from . import profiles, ranges
from .profiles import clean
from .profiles.report import ranges as ranges_of

SHOWN = ["name", "ranges", "GPU ms", "self ms", "GPU rows", "share", "CPU ms"]
TAG = "workbench-profile"  # of cells that are added for a run and taken away after it
BEGIN = "from workbench import notebook as _workbench\n_profile = _workbench.begin({!r})"


def load(shell) -> None:
    """Add `%%gpu_profile` to an IPython shell."""

    def gpu_profile(line, cell):
        """Profile this cell: time by range, and a timeline. `%%gpu_profile FILE.json.gz` keeps it.

        Without a GPU it profiles the CPU side.
        """
        return _profiled(shell, line.strip(), cell)

    shell.register_magic_function(gpu_profile, magic_kind="cell", magic_name="gpu_profile")


def _profiled(shell, keep: str, cell: str):
    """Run a cell's text in the user's namespace under torch.profiler, show what was seen."""
    from .machine import resolve_device
    from .timing.passes import kineto

    if keep and not keep.endswith(".json.gz"):
        raise ValueError(f"%%gpu_profile {keep}: a trace is kept as NAME.json.gz")
    run = _compiled(shell, cell)
    with tempfile.TemporaryDirectory() as folder:
        raw, trace = Path(folder) / "raw.json", Path(keep or Path(folder) / "trace.json.gz")
        with kineto(resolve_device("auto"), str(raw)), ranges.span("cell"):
            value = run()
        clean.clean(raw, trace, {"tool": "kineto"})
        show(profiles.read(trace))
    return value


def _compiled(shell, cell: str):
    """A function that runs the text and returns the value of its last line, as a cell does."""
    name = shell.compile.cache(cell, shell.execution_count)
    body = ast.parse(shell.transform_cell(cell), name).body
    last = [ast.Expression(body.pop().value)] if body and isinstance(body[-1], ast.Expr) else []
    first = compile(ast.Module(body, []), name, "exec")

    def run():
        exec(first, shell.user_ns)
        for expression in last:
            return eval(compile(expression, name, "eval"), shell.user_ns)

    return run


def show(events: profiles.Events, to: Path | None = None) -> None:
    """Display a profile's time by range and its timeline."""
    from IPython.display import SVG, display

    from . import figures

    found = profiles.attribute(events)
    display(by_range(found))
    with tempfile.TemporaryDirectory() as folder:
        path = figures.save(figures.timeline(found), "timeline", to or Path(folder))
        display(SVG(data=path.read_text()))


def by_range(found: profiles.Attributed, cases=()):
    """A profile's time by range as a table for people: milliseconds, the longest first."""
    table = ranges_of(found, cases)
    ms = {"GPU ms": "inclusive_ns", "self ms": "self_ns", "CPU ms": "cpu_ns"}
    table = table.assign(**{name: (table[of] / 1e6).round(3) for name, of in ms.items()})
    return table.assign(share=table["share"].round(4)).rename(columns={"rows": "GPU rows"})[SHOWN]


class Session:
    """Kineto around the cells that follow, each in a range `cell` with its number."""

    def __init__(self, to: str):
        from IPython import get_ipython

        from .machine import resolve_device
        from .timing.passes import kineto

        self.cell, self.number = ExitStack(), 0
        self.profile = kineto(resolve_device("auto"), to, annotate=False)
        self.profile.__enter__()
        self.events = get_ipython().events
        self.events.register("pre_run_cell", self._before)
        self.events.register("post_run_cell", self._after)

    def _before(self, info) -> None:
        # opened for each cell: a listener is known in the context that it was added in
        self.number += 1
        self.cell.enter_context(ranges.annotated())
        self.cell.enter_context(ranges.of_case(self.number))
        self.cell.enter_context(ranges.span("cell"))

    def _after(self, result) -> None:
        self.cell.close()

    def end(self) -> None:
        """Write the trace."""
        self._after(None)
        self.events.unregister("pre_run_cell", self._before)
        self.events.unregister("post_run_cell", self._after)
        self.profile.__exit__(None, None, None)


def begin(to: str) -> Session:
    """Profile the cells that follow this one, into `to`, until `end`."""
    return Session(to)


def profile_notebook(notebook: Path, base: Path, given: dict, about: dict) -> Path:
    """Run a notebook under Kineto; return its trace, `base`.json.gz, `base`.ipynb beside it.

    Raises ValueError on bad parameters, NotebookFailed where it does not end well: the notebook
    shows how far it came, and there is no trace.
    """
    import nbformat

    from .sweeps import execute, parameters

    parameters(notebook)  # one that cannot be run is told before anything is written
    book = nbformat.read(notebook, as_version=4)
    base.parent.mkdir(parents=True, exist_ok=True)
    out = base.with_name(f"{base.name}.ipynb")
    with tempfile.TemporaryDirectory(dir=base.parent, prefix=".profile") as folder:
        raw, copy = Path(folder).absolute() / "raw.json", Path(folder) / notebook.name
        first, last = BEGIN.format(str(raw)), "_profile.end()"
        added = [nbformat.v4.new_code_cell(source, metadata={"tags": [TAG]})
                 for source in (first, last)]  # fmt: skip
        book.cells = [added[0], *book.cells, added[1]]
        nbformat.write(book, copy)
        try:
            execute(copy, out, given)
        finally:
            _without_added(out, notebook)
        trace = base.with_name(f"{base.name}.json.gz")
        clean.clean(raw, trace, about)
    return trace


def _without_added(path: Path, source: Path) -> None:
    """Take the cells that a run added out of an executed notebook, and the name of its copy."""
    import nbformat

    if not path.is_file():
        return
    book = nbformat.read(path, as_version=4)
    book.cells = [c for c in book.cells if TAG not in c.metadata.get("tags", ())]
    book.metadata.get("papermill", {})["input_path"] = str(source)
    nbformat.write(book, path)
