"""compile: what the compiler makes of variants for a GPU that is not here."""

import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from ..arms import arms_of, workloads_of
from ..fields import pairs
from . import options as o
from .kernels import op_named


def register(app: typer.Typer) -> None:
    app.command("compile")(o.told(compile_variants))


def compile_variants(
    op: o.OpName,
    variant: o.Variants = None,
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    module: o.Modules = None,
    arch: Annotated[str, typer.Option(help="sm_80, sm_90, sm_100, sm_120, ...")] = "sm_90",
    json: o.AsJson = False,
) -> int:
    """Registers, stack, shared memory and tensor-core instructions, without a GPU.

    Compiles with the specialisation the launch would have. Exit code 1 where a kernel spills more
    than its variant declares or needs more shared memory than the architecture has.
    """
    if "triton" not in sys.modules:  # an interpreted kernel cannot be compiled; decided on import
        os.environ.pop("TRITON_INTERPRET", None)
    from ..compiled import arch_number

    number = arch_number(arch)
    module = o.files(module)  # before a module can change the current folder
    found = op_named(op, module)
    arms = arms_of(found, variant or (), pairs(config or []))
    workloads = workloads_of(found, suite, pairs(workload or []))
    rows = []
    with o.progress(len(arms) * len(workloads)) as (advance, say):
        for w in workloads:
            x = found.make_inputs(w, "cpu")
            for arm in arms:
                say(arm.label)
                rows += _compiled(arm, w, x, arch, number)
                advance()
    if json:
        o.print_json(rows)
    else:
        _print_compiled(f"{found.name} for {arch}", [r for r in rows if "kernel" in r])
    for r in rows:
        if not r["fits"]:
            o.err.print(f"{r['variant']}: {r['why']}", markup=False, highlight=False)
    return int(any(not r["fits"] for r in rows))


def _compiled(arm, w, x, arch: str, number: int) -> list[dict]:
    """A row for each kernel of an arm; one row with the reason where it cannot be compiled."""
    from triton.compiler.errors import CompilationError

    from ..compiled import SHARED_BYTES, compile_for
    from ..worker import configured

    v, config = arm.variant, configured(arm.variant, dict(arm.changes))
    row = {"variant": arm.label, "arch": arch, "workload": asdict(w), "fits": False}
    if reason := v.requires(w, config):
        return [row | {"why": reason}]
    try:
        kernels = compile_for(v, x, config, arch=number)
    except (CompilationError, RuntimeError, ArithmeticError) as error:
        told = " ".join(str(error).split())[:200]
        return [row | {"why": f"does not compile: {type(error).__name__}: {told}"}]
    rows = []
    for k in kernels:
        spills = k.stack_bytes > v.stack_bytes
        large = k.shared_bytes > SHARED_BYTES[number]
        why = f"{k.name} spills {k.stack_bytes} bytes of stack" if spills else ""
        if large:
            why = (f"{k.name} needs {k.shared_bytes} bytes of shared memory, {arch} has "
                   f"{SHARED_BYTES[number]}")  # fmt: skip
        rows.append(row | {"kernel": k.name, "registers": k.registers, "mma": k.mma,
                           "stack_bytes": k.stack_bytes, "shared_bytes": k.shared_bytes,
                           "fits": not why, "why": why})  # fmt: skip
    return rows


def _print_compiled(title: str, rows: list[dict]) -> None:
    columns = ["variant", "kernel", "registers", "stack", "shared", "tensor-core instructions"]
    cells = [[r["variant"], r["kernel"], r["registers"], r["stack_bytes"], r["shared_bytes"],
              " ".join(f"{n} {m}" for m, n in r["mma"].items()) or "-"]
             for r in rows]  # fmt: skip
    o.out.print(o.grid(title, columns, cells, right=2))
