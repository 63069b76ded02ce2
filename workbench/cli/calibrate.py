"""dispatch calibrate: the constants of the chunk model, out of records or measured here."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ..arms import arms_of
from ..fields import replaced
from . import options as o
from .dispatch_tables import (
    BASE,
    Clock,
    DeviceName,
    OfOp,
    OfVariants,
    Records,
    Triton,
    calibrations,
)
from .kernels import op_named

BUDGET_S = 0.3  # of samples for each arm


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

    Raises ValueError on a table of another op, device, Triton or clock, and on what is no table:
    those are left as they are.
    """
    from ..dispatch import update
    from ..evidence import newest
    from ..models.dispatch_records import table
    from ..models.dispatch_table import unlike
    from ..models.splits import model_of

    of_rows, model = table(newest(rows), op), model_of(good)

    def with_constants(kept):
        kept = kept or of_rows
        if name := unlike(kept, of_rows):
            raise ValueError(f"{to} is of {name} {getattr(kept, name)!r}, these records of "
                             f"{getattr(of_rows, name)!r}")  # fmt: skip
        before = kept.model.layouts if kept.model else {}
        return replace(kept, model=replace(model, layouts={**before, **model.layouts}))

    update(to, with_constants)


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
