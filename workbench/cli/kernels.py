"""list, check, measure, compile: what is done with variants."""

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..fields import choose, pairs
from . import options as o
from .records import summary

SHOWN = {"passed": "green", "incorrect": "red", "error": "red", "timeout": "red",
         "unsupported": "yellow"}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("list")(o.told(list_variants))
    app.command("check")(o.told(check))
    app.command("measure")(o.told(measure))
    app.command("compile")(o.told(compile_variants))


def _op(name: str, modules):
    from ..modules import registry

    ops = registry(o.files(modules))
    return ops[choose("op", name, ops)]


def list_variants(
    op: Annotated[str | None, typer.Argument(metavar="OP", help="One operation only.")] = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:
    """Operations and their variants: what each changes, and its one idea."""
    from ..modules import registry

    ops = registry(o.files(module))
    chosen = ops if op is None else {op: ops[choose("op", op, ops)]}
    rows = [
        {"op": p.name, "variant": v.name, "step_from": v.step_from, "idea": v.idea,
         "config": asdict(v.config) if v.config else {}, "capturable": v.capturable,
         "repeatable": v.repeatable, "independent": v.independent}
        for p in chosen.values() for v in p.variants.values()
    ]  # fmt: skip
    if json:
        suites = {p.name: list(p.suites) for p in chosen.values()}
        o.print_json({"variants": rows, "suites": suites})
        return 0
    for p in chosen.values():
        o.out.print(f"[bold]{p.name}[/]  [dim]suites: {', '.join(p.suites)}[/]")
        for row in rows:
            if row["op"] == p.name:
                config = " ".join(f"{k}={x}" for k, x in row["config"].items())
                base = f"from {row['step_from']}" if row["step_from"] else "baseline"
                idea = escape(row["idea"])
                o.out.print(f"  {row['variant']:14} {base:18} {idea}", highlight=False)
                if config:
                    o.out.print(f"  {'':14} [dim]{config}[/]", highlight=False)
    return 0


def check(
    op: o.OpName,
    variant: o.Variants = None,
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    module: o.Modules = None,
    device: o.Device = "auto",
    limit: o.Limit = 120.0,
    json: o.AsJson = False,
) -> int:
    """Compare variants with the float64 reference, each in a child process.

    Workloads: --suite (default: edges), or with -w alone the op's default workload. On a CPU the
    Triton interpreter runs the kernels. Exit code 0 when something passed and nothing failed.
    """
    from .. import study
    from ..machine import resolve_device

    module = o.files(module)  # before a module can change the current folder
    found = _op(op, module)
    arms = study.arms_of(found, variant or (), pairs(config or []))
    changes = pairs(workload or [])
    workloads = study.workloads_of(found, suite or (None if changes else "edges"), changes)
    device = resolve_device(device)
    rows = []
    with o.progress(len(arms) * len(workloads)) as (advance, say):
        results = study.check(
            arms, workloads, device=device, limit_s=limit, modules=o.files(module), report=say
        )
        for w, got in results:
            advance()
            rows.append({"variant": got.arm.label, "config": got.config, "workload": asdict(w),
                         **asdict(got.verdict), "flags": got.flags})  # fmt: skip
    if json:
        from ..record import plain

        o.print_json({"op": found.name, "device": device, "results": plain(rows)})
    else:
        _print_checks(found, rows, device)
    failed = sum(r["status"] in ("incorrect", "error", "timeout") for r in rows)
    return int(failed > 0 or not any(r["status"] == "passed" for r in rows))


def _print_checks(op, rows: list[dict], device: str) -> None:
    default = asdict(op.Workload())
    for row in rows:
        said = " ".join(f"{k}={x}" for k, x in row["workload"].items() if x != default[k])
        error = _distance(row["error"], row["budget"])
        color = SHOWN[row["status"]]
        o.out.print(f"[{color}]{row['status']:12}[/] {row['variant']:18} {error:18} {said}",
                    highlight=False)  # fmt: skip
        if row["why"]:
            o.out.print(f"{'':12} {row['why']}", highlight=False, markup=False)
    counts = {s: sum(r["status"] == s for r in rows) for s in SHOWN}
    said = ", ".join(f"{n} {s}" for s, n in counts.items() if n) or "nothing ran"
    o.out.print(f"{op.name} on {device}: {said}", highlight=False)


def measure(
    op: o.OpName,
    variant: o.Variants = None,
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    clock: Annotated[
        list[str] | None,
        typer.Option(help="graph_cold, graph_hot or wall_clock; repeat for several. Default: "
                     "graph_cold on a GPU, wall_clock on a CPU.")] = None,
    to: Annotated[Path, typer.Option(help="Record file to add to.")] = Path("runs/records.jsonl"),
    repeats: Annotated[int | None, typer.Option(min=1, help="Samples of an arm, at most.")] = None,
    budget: Annotated[float, typer.Option(min=0.0, max=86400, help="Seconds of samples.")] = 2.0,
    module: o.Modules = None,
    device: o.Device = "auto",
    limit: o.Limit = 120.0,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Gate, then time variants in turns; every record is written as it is made.

    Workloads: --suite, or the op's default workload, with -w fields changed. Exit code 0 when
    something was timed and nothing failed.
    """
    from .. import record, study
    from ..machine import resolve_device

    module = o.files(module)  # before a module can change the current folder
    found = _op(op, module)
    arms = study.arms_of(found, variant or (), pairs(config or []))
    workloads = study.workloads_of(found, suite, pairs(workload or []))
    device = resolve_device(device)
    clocks = clock or ["wall_clock" if device == "cpu" else "graph_cold"]
    rows = []
    with o.progress(len(arms) * len(workloads) * len(clocks)) as (advance, say):
        results = study.run(
            arms, workloads, clocks=clocks, device=device, repeats=repeats, budget_s=budget,
            limit_s=limit, modules=o.files(module), to=to, report=say,
        )  # fmt: skip
        for m in results:
            advance()
            rows.append(record.as_row(m))
    if json:
        o.print_json(rows)
    else:
        o.out.print(summary(record.table(rows)))
        o.out.print(f"{len(rows)} records in {to}", highlight=False)
    failed = any(r["verdict"]["status"] in ("incorrect", "error", "timeout") for r in rows)
    return int(failed or not any(r["samples_us"] for r in rows))


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
    from .. import study
    from ..compiled import arch_number

    number = arch_number(arch)
    module = o.files(module)  # before a module can change the current folder
    found = _op(op, module)
    arms = study.arms_of(found, variant or (), pairs(config or []))
    workloads = study.workloads_of(found, suite, pairs(workload or []))
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


def _distance(error: float, budget: float) -> str:
    """An error beside its budget; nothing where none was computed."""
    if error != error:
        return ""
    return f"{error:.1e} of {budget:.1e}" if budget else "bit for bit"
