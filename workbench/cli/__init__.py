"""The `workbench` command. Bad input is one line and exit code 2; all is well is exit code 0."""

import sys
import warnings

import typer

from . import (
    claims,
    comparisons,
    compile,
    demo,
    dispatch,
    exchange,
    gates,
    kernels,
    machine,
    models,
    notebooks,
    profile,
    records,
    selections,
    step,
)

app = typer.Typer(
    name="workbench",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Which sparse-MLA kernel is fastest, on which GPU, at which shape and overlap, and why.",
)
for _module in (
    machine, kernels, compile, records, comparisons, gates, claims, models, step, profile,
    dispatch, selections, exchange, notebooks, demo,
):  # fmt: skip
    _module.register(app)


def main() -> None:
    """Run the command line of this process and exit."""
    warnings.showwarning = lambda message, *rest: print(f"warning: {message}", file=sys.stderr)
    app(args=notebooks.joined(sys.argv[1:]), prog_name="workbench")
