"""run, sweep run: what is done with notebooks."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o


def register(app: typer.Typer) -> None:
    app.command("run")(o.told(run))
    sweep = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    sweep.command("run")(o.told(sweep_run))
    sweep.callback()(lambda: None)  # keeps `run` a subcommand though it is the only one
    app.add_typer(sweep, name="sweep", help="Grids of notebook parameters.")


def joined(argv: list[str]) -> list[str]:
    """`-p NAME VALUE`, as papermill writes it, into `-p NAME=VALUE`, which is taken too."""
    if argv[:1] not in (["run"], ["profile"]):
        return argv
    words, out = iter(argv), []
    for word in words:
        out.append(word)
        if word in ("-p", "--parameter"):
            name = next(words, None)
            if name is None:
                break
            value = None if "=" in name else next(words, None)
            out.append(name if value is None else f"{name}={value}")
    return out


def run(
    notebook: Annotated[Path, typer.Argument(help="A notebook with a cell tagged `parameters`.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE",
                     help="A parameter: name, then value; repeat for several. A list takes A,B."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="OUT.ipynb",
                                  help="The executed notebook. Default: runs/NAME.ipynb.")
    ] = None,
) -> int:  # fmt: skip
    """Run a notebook with papermill; unknown names and wrong types are refused before it starts."""
    from ..fields import pairs
    from ..sweeps import NotebookFailed, execute

    out = out or Path("runs") / notebook.name
    if out.resolve() == notebook.resolve():
        raise ValueError(f"{out} is the notebook itself: write the executed one elsewhere")
    given = pairs(parameter or [])
    try:
        execute(notebook, out, given, progress=o.err.is_terminal)
    except NotebookFailed as error:
        o.err.print(f"{notebook}: {error} (see {out})", markup=False)
        return 1
    o.out.print(str(out), highlight=False)
    return 0


def sweep_run(
    file: Annotated[Path, typer.Argument(help="A sweep file: notebook, parameters, grid.")],
    to: Annotated[Path, typer.Option(help="Folder of records, figures and executed notebooks.")],
    json: o.AsJson = False,
) -> int:
    """Run every point of a sweep; what finished before is kept. Exit code 1 if a point failed."""
    from ..sweeps import read_sweep, run_sweep

    sweep = read_sweep(file)
    rows = []
    with o.progress(len(sweep.points())) as (advance, say):
        for point in run_sweep(sweep, to, say):
            advance()
            rows.append({"id": point.id, "status": point.status, "notebook": str(point.notebook),
                         "parameters": point.parameters, "why": point.why})  # fmt: skip
            if not json:
                o.out.print(f"{point.status:9} {point.notebook} {point.why}", highlight=False,
                            markup=False)  # fmt: skip
    if json:
        o.print_json(rows)
    return int(any(r["status"] == "failed" for r in rows))
