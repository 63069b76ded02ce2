"""exchange export, import: our ops, workloads and records as FlashInfer-Bench's files, and back."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

RECORDED = "recorded"  # in place of a suite: the workloads that the records are of


def register(app: typer.Typer) -> None:
    exchange = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    exchange.command("export")(o.told(export_folder))
    exchange.command("import")(o.told(import_folder))
    app.add_typer(exchange, name="exchange", help="Definitions, workloads and traces in the form "
                  "of FlashInfer-Bench.")  # fmt: skip


def export_folder(
    to: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that is empty or new.")],
    records: Annotated[
        list[Path] | None, typer.Option(help="Record files or folders, as traces; repeat.")
    ] = None,
    workloads: Annotated[str | None, typer.Option(help="A suite of sparse_prefill, drawn and "
                                                  "written with its tensors; recorded: the "
                                                  "workloads of the records.")] = None,
    workload: o.WorkloadFields = None,
    page_size: Annotated[int, typer.Option(min=1, help="Rows of a page of the cache.")] = 1,
    inputs: Annotated[str, typer.Option(help="all: every tensor of a workload is written; indices: "
                                        "the selected rows alone, the others are random.")] = "all",
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Write records and workloads of sparse_prefill as a FlashInfer-Trace folder.

    A time goes with its clock and flags. What did not pass is no PASSED trace; what the format
    cannot say (a sink, another op, unsupported) is told and left out.
    """
    from .. import record
    from ..exchange import export

    rows = record.rows(*records) if records else []
    asked = _asked(rows, workloads, workload or [])
    with o.progress(len(asked)) as (advance, say):
        say("drawing")
        found = export(to, rows, asked, page_size, inputs, advance)
    if json:
        o.print_json(asdict(found))
        return 0
    o.out.print(f"{to}: {len(found.definitions)} definitions, {found.workloads} workloads "
                f"({found.bytes / 1e6:,.1f} MB), {found.solutions} solutions, {found.traces} "
                "traces", highlight=False, markup=False)  # fmt: skip
    if found.without_inputs:
        o.out.print(f"{found.without_inputs} workloads of the traces are named without their "
                    f"tensors: --workloads {RECORDED} draws them", highlight=False)  # fmt: skip
    for what, why, number in found.left_out:
        o.out.print(f"left out: {number} of {what}: {why}", highlight=False, markup=False)
    return 0


def _asked(rows: list[dict], suite: str | None, changes: list[str]) -> list:
    """The workloads to draw: none unless a suite or a change of a field asks for some."""
    from ..arms import workloads_of
    from ..exchange import recorded
    from ..fields import pairs
    from ..ops import OPS

    if suite == RECORDED:
        if changes:
            raise ValueError(f"-w {changes[0]} changes no workload of a record")
        return recorded(rows)
    if suite is None and not changes:
        return []
    return workloads_of(OPS["sparse_prefill"], suite, pairs(changes))


def import_folder(
    path: Annotated[Path, typer.Argument(metavar="FOLDER|FILE", help="A FlashInfer-Trace folder, "
                                         "or one of its files.")],
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """What is there: sparse attention, how much its tokens share, and the times of others.

    Nothing that is read is run. Exit code 1 where a line or tensor is broken, or where indices are
    no capture of a model.
    """
    from ..exchange import survey
    from ..record import plain

    with o.waiting(f"reading {path}"):
        found = survey(path)
    if json:
        o.print_json(plain(asdict(found)))
    else:
        _print(found)
    for fault in found.faults:
        o.err.print(f"workbench: {fault}", highlight=False, markup=False)
    return int(not found.sound)


def _print(found) -> None:
    counts = {name: (sum(w.definition == name for w in found.workloads),
                     sum(r.definition == name for r in found.runs))
              for name in found.contracts}  # fmt: skip
    rows = [[name, c.lse_base, c.padding, c.empty_lse, *counts[name]]
            for name, c in found.contracts.items()]  # fmt: skip
    o.out.print(o.grid("sparse attention", ["definition", "lse base", "padding", "lse of no row",
                                            "workloads", "traces"], rows))  # fmt: skip
    if found.workloads:
        groups = next((list(w.union_ratio) for w in found.workloads if w.union_ratio), [])
        columns = ["workload", "tokens", "cache rows", "topk", "rows a token",
                   *(f"union of {g}" for g in groups), ""]  # fmt: skip
        o.out.print(o.grid("", columns, [_workload(w, groups) for w in found.workloads]))
        if told := next((w.unchecked for w in found.workloads if w.unchecked), ()):
            o.out.print(f"not checked, positions are not in these files: {', '.join(told)}",
                        highlight=False)  # fmt: skip
    if found.runs:
        columns = ["solution", "author", "device", "clock", "status", "workload", "heads", "tokens",
                   "topk", "us", ""]  # fmt: skip
        o.out.print(o.grid("", columns, [_run(r) for r in found.runs], 6))
    o.out.print(f"{found.solutions} solutions; {len(found.others)} other definitions with "
                f"{found.elsewhere} workloads and traces", highlight=False)  # fmt: skip


def _workload(w, groups: list[int]) -> list:
    said = [*w.refusals, *w.notes, *([w.missing] if w.missing else [])]
    per_token = "" if w.valid_rows_per_token is None else f"{w.valid_rows_per_token:,.1f}"
    ratios = [f"{w.union_ratio[g]:.3f}" if w.union_ratio else "-" for g in groups]
    return [w.uuid, f"{w.tokens:,}", f"{w.rows:,}", w.topk, per_token, *ratios, "; ".join(said)]


def _run(r) -> list:
    time = f"{r.latency_us:,.1f}" if r.latency_us == r.latency_us else ""
    said = [*dict.fromkeys(flag.split(":")[0] for flag in r.flags), *([r.why] if r.why else [])]
    return [r.solution, r.author, r.hardware, r.clock or "not told", r.status, r.uuid[:8],
            r.heads, r.axes.get("num_tokens", ""), r.topk, time,
            "; ".join(said)]  # fmt: skip
