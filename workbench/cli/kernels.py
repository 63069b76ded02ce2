"""list, check, measure: what is done with variants."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from ..arms import arms_of, workloads_of
from ..fields import choose, pairs
from . import options as o
from .records import summary

SHOWN = {"passed": "green", "incorrect": "red", "error": "red", "timeout": "red",
         "unsupported": "yellow"}  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("list")(o.told(list_variants))
    app.command("check")(o.told(check))
    app.command("measure")(o.told(measure))


def op_named(name: str, modules):
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
         "repeatable": v.repeatable, "independent": v.independent, "archs": list(v.archs),
         "needs_gpu": not v.interpretable,
         "workspace_bytes": _workspace(v)}
        for p in chosen.values() for v in p.variants.values()
    ]  # fmt: skip
    if json:
        suites = {p.name: list(p.suites) for p in chosen.values()}
        o.print_json({"variants": rows, "suites": suites})
        return 0
    for p in chosen.values():
        if op is not None:
            told = " ".join(f"{k}={x}" for k, x in asdict(p.Workload()).items())
            o.out.print(f"[bold]workload[/] [dim](-w changes a field)[/] {escape(told)}",
                        highlight=False)  # fmt: skip
        o.out.print(f"[bold]{p.name}[/]  [dim]suites: {', '.join(p.suites)}[/]")
        for row in rows:
            if row["op"] == p.name:
                config = " ".join(f"{k}={x}" for k, x in row["config"].items())
                base = f"from {row['step_from']}" if row["step_from"] else "baseline"
                idea = escape(row["idea"])
                o.out.print(f"  {row['variant']:14} {base:18} {idea}", highlight=False)
                for told in (config, _properties(row) if op is not None else ""):
                    if told:
                        o.out.print(f"  {'':14} [dim]{told}[/]", highlight=False)
    return 0


def _workspace(v) -> int | None:
    """Bytes beside the output at the default workload; None where it is not stated or refused."""
    w = v.op.Workload()
    if v.workspace_bytes is None or v.requires(w, v.config):
        return None
    return v.workspace_bytes(w, v.config)


def _properties(row: dict) -> str:
    """What a caller has to know before it takes a variant: a server that must be deterministic."""
    said = ["needs a GPU"] if row["needs_gpu"] else []
    said += [f"for {', '.join(row['archs'])}"] if row["archs"] else []
    said += ["results depend on neighbours"] if not row["independent"] else []
    said += ["not repeatable"] if not row["repeatable"] else []
    said += ["reads on the host"] if not row["capturable"] else []
    if row["workspace_bytes"]:
        said += [f"{row['workspace_bytes'] / 1e6:,.1f} MB beside its output"]
    return " · ".join(said)


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
    found = op_named(op, module)
    arms = arms_of(found, variant or (), pairs(config or []))
    changes = pairs(workload or [])
    workloads = workloads_of(found, suite or (None if changes else "edges"), changes)
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
        typer.Option(help="graph_cold, graph_hot, graph_rotating, events or wall_clock; repeat for "
                     "several. Default: graph_cold on a GPU, wall_clock on a CPU.")] = None,
    to: Annotated[Path, typer.Option(help="Record file to add to.")] = Path("runs/records.jsonl"),
    repeats: Annotated[int | None, typer.Option(min=1, help="Samples of an arm, at most.")] = None,
    budget: Annotated[float, typer.Option(min=0.0, max=86400, help="Seconds of samples.")] = 2.0,
    blocks: Annotated[int, typer.Option(min=1, max=1000, help="Fresh processes that measure "
                      "everything once; 5 for a comparison with an interval.")] = 1,
    precision: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Stop once every median is known to this share "
                            "of itself; 0: never before --repeats.")] = 0.002,
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
    from ..evidence import derived
    from ..machine import resolve_device

    module = o.files(module)  # before a module can change the current folder
    found = op_named(op, module)
    arms = arms_of(found, variant or (), pairs(config or []))
    workloads = workloads_of(found, suite, pairs(workload or []))
    device = resolve_device(device)
    clocks = clock or ["wall_clock" if device == "cpu" else "graph_cold"]
    rows = []
    with o.progress(len(arms) * len(workloads) * len(clocks) * blocks) as (advance, say):
        results = study.run(
            arms, workloads, clocks=clocks, device=device, blocks=blocks, repeats=repeats,
            budget_s=budget, precision=precision, limit_s=limit, modules=module, to=to, report=say,
        )  # fmt: skip
        for m in results:
            advance()
            rows.append(record.as_row(m))
    if json:
        o.print_json(rows)
    else:
        o.out.print(summary(derived(record.table(rows))))
        o.out.print(f"{len(rows)} records in {to}", highlight=False)
    failed = any(r["verdict"]["status"] in ("incorrect", "error", "timeout") for r in rows)
    return int(failed or not any(r["samples_us"] for r in rows))


def _distance(error: float, budget: float) -> str:
    """An error beside its budget; nothing where none was computed."""
    if error != error:
        return ""
    return f"{error:.1e} of {budget:.1e}" if budget else "bit for bit"
