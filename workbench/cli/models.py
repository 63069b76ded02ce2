"""ceilings, ledger: what a device reaches at best, what a variant asks of it."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ..arms import arms_of, workloads_of
from ..fields import choose, pairs
from . import options as o

SUITE = "ceilings"


def register(app: typer.Typer) -> None:
    app.command("ceilings")(o.told(ceilings))
    app.command("ledger")(o.told(ledger))


def ceilings(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders. Default: traces/records.")
    ] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure them here first.")] = False,
    to: Annotated[Path | None, typer.Option(help="With --measure: record file to add to. Default: "
                                            "traces/records/DEVICE/ceilings.jsonl.")] = None,
    device: o.Device = "auto",
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """The best rates that were measured: copy, gather, shared memory, matrix product, by device.

    Measured by ops of their own, which the gate checks like any other.
    """
    from .. import record
    from ..models import ceilings as c

    paths = list(records or [])
    if measure:
        paths = [_measure(to, device)]
    table = record.load(*(paths or [Path("traces/records")]))
    found = {d: c.ceilings(table, d) for d in sorted(table["environment.device"].unique())}
    rows = [[d, *row] for d, each in found.items() for row in c.as_rows(each)]
    if not rows:
        raise ValueError("these records hold no ceiling: `workbench ceilings --measure`")
    if json:
        o.print_json(record.plain({d: asdict(each) for d, each in found.items()}))
    else:
        o.out.print(o.grid("", ["device", "ceiling", "rate", ""],
                           [[d, name, f"{rate:,.0f}", unit] for d, name, rate, unit in rows], 2))
    return 0


def _measure(to: Path | None, device: str) -> Path:
    from .. import record, study
    from ..machine import environment, resolve_device
    from ..ops import OPS

    device = resolve_device(device)
    name = record.slug(environment(device).device)
    to = to or Path("traces/records") / name / "ceilings.jsonl"
    ops = [op for op in OPS.values() if SUITE in op.suites]
    clocks = ["wall_clock"] if device == "cpu" else ["graph_cold", "graph_hot"]
    total = sum(len(op.variants) * len(op.suites[SUITE]) for op in ops) * len(clocks)
    with o.progress(total) as (advance, say):
        for op in ops:
            found = study.run(arms_of(op), op.suites[SUITE], clocks=clocks, device=device,
                              budget_s=0.3, to=to, report=say)  # fmt: skip
            for _ in found:
                advance()
    return to


def ledger(
    op: o.OpName,
    variant: o.Variants = None,
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    ceiling: Annotated[str, typer.Option("--device-name", help="Whose measured ceilings give the "
                                         "floor.")] = "NVIDIA H200",
    wave: Annotated[int, typer.Option(min=1, help="Programs that run together.")] = 132,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Exact counts of what each variant does on a workload, and the floor that they set.

    Rows gathered and distinct rows (in a group, in a wave, in all), bytes, useful and executed
    tensor-core lanes, pages. Nothing is run: the inputs are drawn and counted.
    """
    from ..evidence import shipped_ceilings
    from ..models import ledger as counts
    from ..models.roofline import floor
    from .kernels import op_named

    module = o.files(module)
    found = op_named(op, module)
    choose("op with a ledger", found.name, counts.LEDGERS)
    arms = arms_of(found, variant or (), pairs(config or []))
    limits = shipped_ceilings(ceiling)
    rows = []
    for w in workloads_of(found, suite, pairs(workload or [])):
        x = found.make_inputs(w, "cpu")
        for arm in arms:
            v = arm.variant
            typed = replace(v.config, **dict(arm.changes)) if arm.changes else v.config
            counted = counts.ledger(found.name, v.widens(x), v.tile(w, typed), wave)
            least = floor(counted, limits)
            rows.append({"arm": arm.label, "workload": asdict(w), "ledger": counted,
                         "executed_over_useful": counts.lane_ratio(counted),
                         "floor": asdict(least) if least else None})  # fmt: skip
    if json:
        from ..record import plain

        o.print_json(plain(rows))
        return 0
    default = asdict(found.Workload())
    names = [n for r in rows for n in r["ledger"]]
    columns = [" ".join([r["arm"], *(f"{k}={v}" for k, v in r["workload"].items()
                                     if v != default[k])]) for r in rows]  # fmt: skip
    body = [[n.replace("_", " "), *(f"{r['ledger'][n]:,}" if n in r["ledger"] else "-"
                                    for r in rows)] for n in dict.fromkeys(names)]  # fmt: skip
    ratios = [r["executed_over_useful"] for r in rows]
    if any(ratio == ratio for ratio in ratios):
        body.append(["executed / useful lanes", *(f"{x:.2f}" if x == x else "-" for x in ratios)])
    body.append([f"floor on {ceiling}", *(f"{r['floor']['us']:,.1f} us, {r['floor']['limit']}"
                                          if r["floor"] else "-" for r in rows)])  # fmt: skip
    o.out.print(o.grid("", ["", *columns], body))
    return 0
