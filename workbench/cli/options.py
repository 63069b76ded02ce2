"""What several commands share: options, consoles, progress, tables."""

import functools
import json
import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

WIDE = 400  # columns where nobody looks through a terminal: nothing is cut off
out = Console(soft_wrap=True, width=None if sys.stdout.isatty() else WIDE)
err = Console(stderr=True, soft_wrap=True)

OpName = Annotated[str, typer.Argument(metavar="OP", help="An operation: see `workbench list`.")]
Variants = Annotated[
    list[str] | None,
    typer.Option("--variant", help="A variant by name; repeat for several. Default: all."),
]
Suite = Annotated[str | None, typer.Option(help="A named set of workloads of the op.")]
WorkloadFields = Annotated[
    list[str] | None,
    typer.Option("-w", "--workload", metavar="NAME=VALUE",
                 help="Change a workload field; NAME=A,B gives one workload each."),
]  # fmt: skip
ConfigFields = Annotated[
    list[str] | None,
    typer.Option("-c", "--config", metavar="NAME=VALUE",
                 help="Change a config field where a variant has it; NAME=A,B: one arm each."),
]  # fmt: skip
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", metavar="FILE.py", help="A file with variants of your own."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Limit = Annotated[
    float, typer.Option("--limit", min=0.1, max=86400, help="Seconds for each step of a variant.")
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output.")]


def told(command):
    """Wrap a command that returns its exit code: bad input becomes one line and exit code 2."""

    @functools.wraps(command)
    def wrapped(*args, **kwargs):
        try:
            code = command(*args, **kwargs)
        except BrokenPipeError:  # whoever read our output has left: nobody is to be told
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except (ValueError, OSError) as error:
            code = fail(error)
        except RuntimeError as error:  # a worker that cannot start, inputs that cannot be made
            fail(error)
            code = 1
        except KeyboardInterrupt:
            print("interrupted; every record made so far is kept", file=sys.stderr)
            code = 130
        raise typer.Exit(code)

    return wrapped


def files(modules) -> tuple[str, ...]:
    """The paths of `--module` options, absolute."""
    return tuple(str(Path(file).absolute()) for file in modules or ())


def fail(error: Exception | str) -> int:
    """Print one line about bad input; return exit code 2."""
    text = " ".join(str(error).split()) or type(error).__name__
    print(f"workbench: {text}", file=sys.stderr)
    return 2


def print_json(value) -> None:
    print(json.dumps(value, indent=1, default=str))


@contextmanager
def progress(total: int):
    """Yield (advance, say): a bar on standard error, drawn only on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield (
            lambda: bar.advance(task),
            lambda what: bar.update(task, description=what[:60]),
        )


@contextmanager
def waiting(what: str):
    """Say on a terminal what is being waited for."""
    with err.status(what) if err.is_terminal else nullcontext():
        yield


def grid(title: str, columns: list[str], rows: list[list], right: int = 1) -> Table:
    """A plain table; columns from number `right` on are right-aligned."""
    table = Table(title=title or None, title_justify="left", box=None, header_style="bold",
                  pad_edge=False)  # fmt: skip
    for i, column in enumerate(columns):
        number = i >= right and bool(column)
        table.add_column(column, justify="right" if number else "left", no_wrap=number,
                         overflow="fold")  # fmt: skip
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # what others wrote is no markup
    return table
