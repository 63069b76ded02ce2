"""dispatch: which variant a call should run, as the records say."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperGroup

from ..arms import arms_of, workloads_of
from ..fields import pairs
from . import options as o
from .calibrate import calibrate
from .dispatch_tables import (
    BASE,
    Clock,
    DeviceName,
    OfOp,
    Records,
    Triton,
    grid,
    measured,
    named,
    told_apart,
)
from .kernels import op_named
from .regret import regret
from .splits import splits

ARCH = re.compile(r"sm_\d{2,3}|cpu")


class RecordsFirst(TyperGroup):
    """`dispatch RECORDS...` is `dispatch table RECORDS...`."""

    def parse_args(self, ctx, args):
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["table", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    dispatch = typer.Typer(no_args_is_help=True, rich_markup_mode=None, cls=RecordsFirst)
    dispatch.command("table")(o.told(table))
    dispatch.command("plan")(o.told(plan))
    dispatch.command("regret")(o.told(regret))
    dispatch.command("calibrate")(o.told(calibrate))
    dispatch.command("splits")(o.told(splits))
    app.add_typer(dispatch, name="dispatch", help="Which variant a call should run. `dispatch "
                  "RECORDS... -o TABLE` is `dispatch table`.")  # fmt: skip


def table(
    records: Records = None,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Write the table there, as JSON. "
                                            "The constants of `dispatch calibrate` that stand "
                                            "there for the same setup stay.")] = None,
    op: OfOp = "sparse_decode",
    clock: Clock = "graph_rotating",
    device: DeviceName = None,
    triton: Triton = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Every place of an op that was timed: its fastest arm, the next one, and how sure that is.

    Without an interval a place was timed in one process block.
    """
    from ..dispatch import update
    from ..models.dispatch_table import text, unlike

    if to is not None and to.is_dir():
        raise ValueError(f"{to} is a folder")
    of = op_named(op, module)
    found = measured(records, of, {"clock": clock, "device": device, "triton": triton})
    if to is not None:
        found = update(to, lambda before: found if before is None or unlike(before, found)
                       else replace(found, model=before.model))  # fmt: skip
    if json:
        print(text(found), end="")
    else:
        o.out.print(grid(of, found))
    return 0


def plan(
    file: Annotated[Path | None, typer.Option("--table", help="A table of `dispatch`. Without one: "
                                              "the op's order of preference.")] = None,
    op: OfOp = "sparse_decode",
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    variant: Annotated[str | None, typer.Option(help="This one, whatever is faster.")] = None,
    config: o.ConfigFields = None,
    arch: Annotated[str | None, typer.Option(help="GPU, such as sm_90, or cpu. Default: the "
                                             "table's.")] =
    None,
    device: Annotated[str | None, typer.Option("--device-name", help="Use the table only if it is "
                                               "of this one.")] = None,
    triton: Annotated[str | None, typer.Option(help="Use the table only if it is of this "
                                               "version.")] = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """The variant and config that a call should run, and why."""
    from .. import dispatch as d
    from ..models.dispatch_table import Table, fields_of

    if arch is not None and not ARCH.fullmatch(arch):
        raise ValueError(f"--arch {arch!r} is neither sm_ and a number, such as sm_90, nor cpu")
    of = op_named(op, module)
    base = BASE.get(of.name, {}) if suite is None else {}
    workloads = workloads_of(of, suite, base | pairs(workload or []))
    asked = {"variant": variant, "config": _config(of, variant, config), "arch": arch}
    read = file and Table.load(file, op=of.name, device=device, triton=triton)
    plans = [(w, d.plan(of, w, read, **asked)) for w in workloads]
    if json:
        o.print_json([{"workload": fields_of(w), "variant": p.variant,
                       "config": fields_of(p.config), "why": p.why}
                      for w, p in plans])  # fmt: skip
    else:
        shared, own = told_apart(of, workloads)
        rows = [[where, named(of, p.variant, fields_of(p.config)), p.why]
                for where, (_, p) in zip(own, plans, strict=True)]  # fmt: skip
        o.out.print(o.grid(shared, ["workload", "variant", "why"], rows, 3))
    return 0


def _config(op, variant: str | None, changes: list[str] | None):
    """The config asked for, of the variant asked for; None where its fields are left open."""
    if not changes:
        return None
    if variant is None:
        raise ValueError(f"{' '.join(changes)} is a config of no variant: name it with --variant")
    arm, *more = arms_of(op, [variant], pairs(changes))
    if more:
        raise ValueError(f"{' '.join(changes)} are {1 + len(more)} configs: a plan has one")
    return replace(arm.variant.config, **arm.asked)
