"""profile: where the time goes inside of a call, by named range; and whether a record agrees."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..arms import arms_of, workloads_of
from ..fields import choose, pairs
from ..profiles import nsys_run, read
from ..profiles.report import about, beside, report, summary
from . import options as o
from .kernels import op_named
from .profile_tables import print_cases, print_compared, print_report

TOOLS = ("kineto", "cupti", "nsys", "none")
NOTEBOOK_TOOLS = ("kineto", "nsys")
ABSENT = 3  # exit code where a tool is not here


class Profile(typer.core.TyperGroup):
    """`profile OP ...` and `profile --notebook NB ...` are `profile run ...`."""

    def parse_args(self, ctx, args):
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    profile = typer.Typer(cls=Profile, no_args_is_help=True, rich_markup_mode=None)
    profile.command("run")(o.told(run))
    profile.command("import")(o.told(import_file))
    profile.command("compare")(o.told(compare))
    told = ("Where the time goes, by named range: profile OP, profile --notebook NB, "
            "profile import FILE, profile compare TRACE RECORDS.")  # fmt: skip
    app.add_typer(profile, name="profile", help=told)


def run(
    op: Annotated[str | None, typer.Argument(metavar="OP", help="An operation.")] = None,
    variant: o.Variants = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    notebook: Annotated[Path | None, typer.Option(help="A notebook in place of OP: all its cells, "
                        "of its own process (kineto) or of all it starts (nsys).")] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option("-p", "--parameter", metavar="NAME VALUE", help="A parameter of NB."),
    ] = None,
    tool: Annotated[str, typer.Option(help="kineto, cupti or nsys; none: the passes alone, for a "
                                      "profiler of yours around this command.")] = "kineto",
    clock: Annotated[
        str | None, typer.Option(help="Captures and caches as this clock has them. Default: "
                                 "graph_hot on a GPU, wall_clock on a CPU.")] = None,
    to: Annotated[Path, typer.Option(help="Folder of trace and summary.")] = Path("runs/profile"),
    module: o.Modules = None,
    device: o.Device = "auto",
    limit: o.Limit = 120.0,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Profile one workload's variants, or a notebook; show the time by range.

    A variant that the gate refuses is told, not profiled. Exit code 0 when something was profiled
    and nothing failed, 3 where the tool is not here.
    """
    choose("tool", tool, TOOLS)
    if (op is None) == (notebook is None):
        raise ValueError("profile takes an operation or --notebook NB, one of them")
    if notebook is not None:
        given = pairs(parameter or [])
        return _notebook(notebook, given, tool, to, json)
    if parameter:
        raise ValueError(f"-p {parameter[0]} is of a notebook: use -w or -c for {op}")
    module = o.files(module)
    found = op_named(op, module)
    arms = arms_of(found, variant or (), pairs(config or []))
    workloads = workloads_of(found, None, pairs(workload or []))
    if len(workloads) != 1:
        raise ValueError(f"a profile is of one workload, -w gives {len(workloads)}")
    if tool == "nsys":
        several = {"--variant": variant, "-w": workload, "-c": config, "--module": module}
        words = [word for option, values in several.items() for word in _again(option, values)]
        words += _again("--clock", clock and [clock])
        words = [found.name, *words, "--device", device, "--limit", f"{limit:g}"]
        said = _under_nsys(words, to)
    else:
        from .. import collect

        try:
            with o.waiting("profiling"):
                said = collect.collect(arms, workloads[0], tool=tool, to=to, clock=clock,
                                       device=device, limit_s=limit, modules=module)  # fmt: skip
        except collect.Missing as missing:
            o.fail(missing)
            return ABSENT
    return _told(said, to, json) if said else ABSENT


def _told(said: dict, to: Path, json: bool) -> int:
    """Print what was collected; the exit code."""
    if json:
        o.print_json(said)
    elif said["cases"] and "totals" in said:
        print_report(said)
        print_cases(said)
        o.out.print(f"{to / said['trace']}", highlight=False)
    elif said["cases"]:
        o.out.print(f"{beside(to / said['op'])}", highlight=False)
    for failed in said["failed"]:
        o.err.print(f"{failed['variant']}: {failed['status']}: {failed['why']}", markup=False,
                    highlight=False)  # fmt: skip
    faults = [f for f in said["failed"] if f["status"] != "unsupported"]
    return int(bool(faults) or not said["cases"])


def _under_nsys(words: list[str], to: Path) -> dict | None:
    """`profile` with these words and `--tool none` under Nsight Systems; None where it is not."""
    from ..collect import summarise

    def program(python: str, folder: Path) -> list[str]:
        return [python, "-m", "workbench", "profile", *words, "--tool", "none", "--to", str(folder)]

    base = to / words[0]
    if not nsys_run.here():
        return _elsewhere(nsys_run.lines(program("python", to), base))
    with o.waiting("nsys"):
        trace = nsys_run.run(lambda folder: program(sys.executable, folder), base)
    return summarise(trace, about(trace) | {"tool": "nsys"})


def _notebook(notebook: Path, given: dict, tool: str, to: Path, json: bool) -> int:
    """Run a notebook under a tool; Kineto sees its own process, Nsight Systems all it starts."""
    from ..collect import summarise
    from ..sweeps import NotebookFailed
    from ..sweeps.notebook import typed

    choose("tool for a notebook", tool, NOTEBOOK_TOOLS)
    typed(notebook, given)  # unknown names and wrong types, before anything runs
    told = {"tool": tool, "notebook": notebook.name}
    base = to / notebook.stem
    try:
        if tool == "kineto":
            from ..notebook import profile_notebook

            with o.waiting(notebook.name):
                trace = profile_notebook(notebook, base, given, told)
        else:
            words = [str(notebook), *_again("-p", [f"{k}={v}" for k, v in given.items()])]
            if not nsys_run.here():
                out = ["-o", f"{base}.ipynb"]
                program = ["python", "-m", "workbench", "run", *words, *out]
                _elsewhere(nsys_run.lines(program, base, whole=True))
                return ABSENT
            with o.waiting(notebook.name):
                trace = nsys_run.run(
                    lambda folder: [sys.executable, "-m", "workbench", "run", *words, "-o",
                                    str(folder / f"{base.name}.ipynb")], base, whole=True,
                )  # fmt: skip
    except NotebookFailed as error:
        o.err.print(f"{notebook}: {error}", markup=False)
        return 1
    said = summarise(trace, told)
    if json:
        o.print_json(said)
    else:
        print_report(said)
        o.out.print(f"{trace}", highlight=False)
    return 0


def _elsewhere(lines: list[str]) -> None:
    print("workbench: no nsys on the PATH; where it is, run:", file=sys.stderr)
    for line in lines:
        print(line)


def _again(option: str, values) -> list[str]:
    """An option as often as it was given."""
    return [word for value in values or () for word in (option, value)]


def import_file(
    file: Annotated[Path, typer.Argument(help="An SQLite export of Nsight Systems, a Kineto trace, "
                                         "or activities of CUPTI.")],
    rows: Annotated[int, typer.Option(min=1, help="Ranges that are shown.")] = 30,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Print a profile's time by range, and what is in none: with its three totals by kind.

    Time of a kernel belongs to the ranges around the call that launched it. `incl` has all inside
    of a range, `self` what is in no range further inside.
    """
    said = report(read(file), about(file, absent={}))
    if json:
        o.print_json(said)
    else:
        print_report(said, rows)
        print_cases(said)
    return 0


def compare(
    profile: Annotated[Path, typer.Argument(metavar="TRACE_OR_SUMMARY",
                                            help="What `profile OP` wrote: trace or summary.")],
    records: Annotated[list[Path], typer.Argument(help="Record files or folders.")],
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Compare a profile's time, first kernel to last, with the timed record of the same case.

    Beyond noise is what exceeds 3 %, 1 us, 0.5 us a kernel and the record's A/A pair. Exit code 1
    on such a difference, and where a variant's own kernels did not run.
    """
    from .. import record
    from ..modules import registry
    from ..profiles.reconcile import reconcile

    said = summary(profile)
    op = registry().get(said["op"])
    found = reconcile(said, record.rows(*records), op and op.Workload)
    if json:
        o.print_json(record.plain(found))
    else:
        print_compared(found)
    return int(any(not row["agrees"] for row in found if row["agrees"] is not None))
