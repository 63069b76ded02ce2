"""dispatch calibrate: the constants of the chunk model, out of records or measured here."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ..arms import arms_of
from ..fields import replaced
from . import options as o
from .dispatch_tables import BASE, Records, rows_of
from .kernels import op_named

BUDGET_S = 0.3  # of samples for each arm

OfOp = Annotated[str, typer.Option("--op", help="Of which operation.")]
Clock = Annotated[str, typer.Option(help="Of which clock.")]
DeviceName = Annotated[str | None, typer.Option("--device-name", help="Of which device. Default: "
                                                "the only one.")]  # fmt: skip
Triton = Annotated[str | None, typer.Option(help="Of which version. Default: the only one.")]
OfVariants = Annotated[list[str] | None, typer.Option("--variant", help="Only this one; repeat for "
                                                      "several.")]  # fmt: skip


def calibrate(
    records: Records = None,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Write the constants into this "
                                            "table, which is made where it is not there.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure six points here first.")] =
    False,
    keep: Annotated[Path | None, typer.Option(help="With --measure: record file to add to. "
                                              "Default: runs/calibration.jsonl.")] = None,
    variant: OfVariants = None,
    op: OfOp = "sparse_decode",
    clock: Clock = "graph_rotating",
    device_name: DeviceName = None,
    triton: Triton = None,
    device: o.Device = "auto",
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Fit the chunk model's three constants to six measured times, by variant and layout.

    A relative rms above 0.25 refuses the constants; exit code 1 where one set is refused.
    """
    of = op_named(op, module)
    if to is not None and to.is_dir():
        raise ValueError(f"{to} is a folder")
    if measure:
        keep = keep or Path("runs/calibration.jsonl")
        _measure(of, variant, clock, device, keep, module)
        records = [*(records or []), keep]
    asked = {"clock": clock, "device": device_name, "triton": triton}
    rows, _, made = calibrations(records, of, asked, variant)
    good = [c for c in made if c.why is None]
    if to is not None and good:
        _write(to, rows, of, good)
    if json:
        o.print_json([_told(of, c) for c in made])
    else:
        o.out.print(_grid(of, rows, made))
    for c in made:
        if c.why:
            o.fail(c.why)
    return int(len(good) < len(made))


def calibrations(records, op, asked, variants):
    """(records, sweeps, calibrations) of one setup. Raises ValueError where none can be fitted."""
    from ..evidence import ceilings_of, pooled
    from ..fields import choose
    from ..models import splits as s

    rows = rows_of(records, op, asked)
    found = s.sweeps(pooled(rows), op)
    known = dict.fromkeys(sweep.variant for sweep in found)
    for name in variants or ():
        choose(f"variant with a {s.COUNT} in these records", name, known)
    found = [sweep for sweep in found if sweep.variant in (variants or known)]
    first = rows.iloc[0]
    copy = ceilings_of(rows, first["environment.device"]).copy_gb_per_s
    made = s.calibrated(found, int(first["environment.multiprocessors"]), s.merge_of(rows, copy))
    if all(c.fit is None for c in made):
        raise ValueError(made[0].why)
    return rows, found, made


def _measure(op, variants, clock: str, device: str, to: Path, module) -> None:
    """Time six points of each variant here. Raises ValueError without a GPU."""
    from .. import study
    from ..fields import choose
    from ..machine import environment, resolve_device
    from ..models.dispatch_estimates import refusal
    from ..models.splits import COUNT, COUNTS, PLACES

    device = resolve_device(device)
    if device == "cpu":
        raise ValueError("--measure needs a GPU, device is 'cpu': give records instead")
    arch = f"sm_{environment(device).capability.replace('.', '')}"
    workloads = [replaced(op.Workload(), BASE.get(op.name, {}) | place, "workload")
                 for place in PLACES]  # fmt: skip
    known = [v.name for v in op.variants.values() if hasattr(v.config, COUNT)
             and refusal(v, workloads[0], v.config, arch) is None]  # fmt: skip
    names = [choose(f"variant with a {COUNT} here", name, known) for name in variants or known]
    arms = arms_of(op, names, {COUNT: list(COUNTS)})
    with o.progress(len(arms) * len(workloads)) as (advance, say):
        for m in study.run(arms, workloads, clocks=[clock], device=device, budget_s=BUDGET_S,
                           modules=o.files(module), to=to, report=say):  # fmt: skip
            advance()
            if m.verdict.status in ("incorrect", "error", "timeout"):
                o.fail(f"{m.variant}: {m.verdict.status}, {m.verdict.why}")


def _write(to: Path, rows, op, good) -> None:
    """Put good constants into the table `to`, which is made of the records where it is not there.

    Raises ValueError on a table of another op, device or Triton, which is left as it is.
    """
    from ..dispatch import save
    from ..evidence import newest
    from ..models import dispatch_table as t
    from ..models.dispatch_records import table
    from ..models.splits import model_of

    of_rows = table(newest(rows), op)
    if to.exists():
        try:
            kept = t.read(to)
        except ValueError as error:
            raise ValueError(f"{to} is no dispatch table: {error}") from None
        for name in ("op", "device", "triton", "clock"):
            if getattr(kept, name) != getattr(of_rows, name):
                raise ValueError(f"{to} is of {name} {getattr(kept, name)!r}, these records of "
                                 f"{getattr(of_rows, name)!r}")  # fmt: skip
        of_rows = kept
    model, before = model_of(good), of_rows.model.layouts if of_rows.model else {}
    save(replace(of_rows, model=replace(model, layouts={**before, **model.layouts})), to)


def _told(op, c) -> dict:
    points = [{**p.sweep.workload, "chunks_per_block": p.chunks_per_block, "us": p.us,
               "modelled_us": c.us(p.sweep.call, p.chunks_per_block) if c.fit else None}
              for p in c.points]  # fmt: skip
    fit = asdict(c.fit) if c.fit else {"constants": None, "relative_rms": None}
    return {"variant": c.variant, "layout": c.layout, "multiprocessors": c.multiprocessors, **fit,
            "refused": c.why, "points": points}  # fmt: skip


def _grid(op, rows, made):
    first = rows.iloc[0]
    title = [op.name, first["environment.device"], first["clock"],
             f"{made[0].multiprocessors} multiprocessors"]  # fmt: skip
    columns = ["variant", "layout", "GB/s of all", "GB/s of one", "start us", "relative rms",
               "points", ""]  # fmt: skip
    return o.grid(" · ".join(title), columns, [_row(c) for c in made], 2)


def _row(c) -> list[str]:
    if c.fit is None:
        return [c.variant, c.layout, "-", "-", "-", "-", f"{len(c.points)}", "too few"]
    k = c.fit.constants
    return [c.variant, c.layout,
            f"{1e-9 / k.memory_s_per_byte:,.0f}" if c.fills_memory else "not reached",
            f"{1e-9 / k.program_s_per_byte:,.1f}", f"{k.start_s * 1e6:.2f}",
            f"{c.fit.relative_rms:.3f}", f"{len(c.points)}",
            "" if c.fit.good else "refused"]  # fmt: skip
