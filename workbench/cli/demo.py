"""demo: both questions answered on this machine, in minutes."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .records import summary

QUESTIONS = {
    "page_split": "Copying only the touched pages",
    "sparse_prefill": "One gather for several tokens",
}
GATED = ("page_split", "union_plan", "sparse_prefill")  # what stands behind the answers
SWEEPS = ("demo_page_split", "demo_prefill")


def register(app: typer.Typer) -> None:
    app.command("demo")(o.told(demo))


def demo(
    to: Annotated[
        Path | None, typer.Option(help="Folder of this run. Default: runs/demo-DATE-TIME.")
    ] = None,
) -> int:
    """Answer both questions here: sweeps through papermill, the gate on their variants, figures.

    On a CPU the plain-torch variants are timed and the Triton variants are checked in the
    interpreter; on a GPU everything is timed. The table holds records of this run only.
    """
    from .. import figures
    from ..evidence import load
    from ..machine import environment, resolve_device

    device = resolve_device("auto")
    to = to or Path("runs") / f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    if to.exists() and any(to.iterdir()):
        raise ValueError(f"{to} is not empty: the demo shows what one run has measured")
    o.out.print(f"[bold]{environment(device).device}[/], {_clock(device)}\n", highlight=False)
    notebooks, failed = _sweeps(to, device)
    failed |= _gate(device)
    if not (to / "records.jsonl").exists():
        o.err.print(f"nothing was measured; see the notebooks in {to}", highlight=False)
        return 1
    table = load(to / "records.jsonl")
    o.out.print(summary(table))
    o.out.print()
    for op, question in QUESTIONS.items():
        o.out.print(_answer(table[table["op"] == op], question), highlight=False)
    o.out.print("\nnotebooks and figures of this run:")
    for path in [*notebooks, *figures.draw_all(table, to / "figures"), to / "records.jsonl"]:
        o.out.print(f"  {path}", highlight=False)
    return int(failed)


def _answer(table, question: str) -> str:
    """What the largest workload says: the fastest arm against the one it is a step from."""
    from ..ops import OPS

    table = table[table["median_us"].notna()]
    if not len(table):
        return f"{question}: nothing was timed."
    size = "workload.pages" if table["op"].iloc[0] == "page_split" else "workload.tokens"
    rows = table[table[size] == table[size].max()]
    best = rows.loc[rows["median_us"].idxmin()]
    base = rows[rows["variant"] == OPS[best["op"]].variants[best["variant"]].step_from]
    place = f"{best[size]:g} {size.removeprefix('workload.')}"
    if not len(base):
        return f"{question}: {best['arm']} is the fastest at {place}."
    ratio = base["median_us"].median() / best["median_us"]
    flags = [flag for flags in (best["flags"], *base["flags"]) for flag in flags]
    kinds = ", ".join(dict.fromkeys(flag.partition(":")[0] for flag in flags))
    return (f"{question}: at {place}, {best['arm']} takes {best['median_us']:,.0f} us, "
            f"{ratio:.1f} times faster than {base['variant'].iloc[0]}"
            f"{f' (flagged: {kinds})' if kinds else ''}.")  # fmt: skip


def _clock(device: str) -> str:
    if device == "cpu":
        return "host time of plain-torch variants; kernels run in Triton's interpreter, unclocked"
    return "device time of every variant, in CUDA graphs"


def _sweeps(to: Path, device: str) -> tuple[list[Path], bool]:
    """Run the demo's sweep files; (executed notebooks, whether a point failed)."""
    from ..record import CHECKOUT
    from ..sweeps import read_sweep, run_sweep

    kind = device.partition(":")[0]
    sweeps = [read_sweep(CHECKOUT / "sweeps" / f"{name}_{kind}.yaml") for name in SWEEPS]
    notebooks, failed = [], False
    with o.progress(sum(len(s.points()) for s in sweeps)) as (advance, say):
        for sweep in sweeps:
            for point in run_sweep(sweep, to, say):
                advance()
                notebooks.append(point.notebook)
                if point.status == "failed":
                    failed = True
                    o.err.print(f"{point.notebook}: {point.why}", markup=False)
    return notebooks, failed


def _gate(device: str) -> bool:
    """Check the variants behind the answers on every edge; a line each; whether one failed."""
    from .. import study
    from ..arms import arms_of
    from ..ops import OPS

    counts: dict[tuple[str, str], dict[str, int]] = {}
    ops = [OPS[name] for name in GATED]
    total = sum(len(op.variants) * len(op.suites["edges"]) for op in ops)
    with o.progress(total) as (advance, say):
        for op in ops:
            edges = op.suites["edges"]
            for _, got in study.check(arms_of(op), edges, device=device, report=say):
                advance()
                line = counts.setdefault((op.name, got.arm.variant.name), {})
                line[got.verdict.status] = line.get(got.verdict.status, 0) + 1
    rows = [[op, v, ", ".join(f"{n} {s}" for s, n in line.items())]
            for (op, v), line in counts.items()]  # fmt: skip
    o.out.print(o.grid("The gate, on every edge of each contract", ["op", "variant", ""], rows, 3))
    o.out.print()
    return any({"incorrect", "error", "timeout"} & line.keys() for line in counts.values())
