"""claim run, check, diff: a question whose answer can be derived again."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o

ClaimFile = Annotated[Path, typer.Argument(metavar="CLAIM.yaml", help="A claim file.")]


def register(app: typer.Typer) -> None:
    claim = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
    claim.command("run")(o.told(run))
    claim.command("check")(o.told(check))
    claim.command("diff")(o.told(diff))
    app.add_typer(claim, name="claim", help="Questions whose answers can be derived again.")


def run(
    file: ClaimFile,
    to: Annotated[Path | None, typer.Option(help="Record file to add to. Default: "
                                            "traces/records/DEVICE/claims/NAME.jsonl.")] = None,
    derive_from: Annotated[list[Path] | None, typer.Option("--from", metavar="RECORDS",
                           help="Measure nothing: derive the result from these.")] = None,
    result: Annotated[Path | None, typer.Option(help="Where the result goes. Default: beside the "
                                                "claim, NAME.DEVICE.json.")] = None,
    module: o.Modules = None,
    device: o.Device = "auto",
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Measure what a claim asks, in process blocks, and write its result beside it.

    Exit code 0 when the claim is decided, 1 when it is ambiguous or flagged records make it
    invalid.
    """
    from .. import claims, record
    from ..machine import environment, resolve_device
    from .kernels import op_named

    claim = claims.read_claim(file)
    module = o.files([*(module or ()), *claims.modules_of(claim, file)])
    op = op_named(claim.op, module)
    claim.workloads(op), claim.arms(op)  # what is off is told before anything runs
    if derive_from:
        rows = record.rows(*derive_from)
    else:
        found = resolve_device(device)
        name = record.slug(environment(found).device)
        to = to or Path("traces/records") / name / "claims" / f"{file.stem}.jsonl"
        with o.waiting(f"measuring {claim.a} and {claim.b}"):
            rows = claims.measure(claim, op, to, device=found, modules=module)
    got = claims.derive(claim, op, rows)
    path = result or claims.result_path(file, got["environment"]["device"])
    claims.write_result(path, got)
    if json:
        o.print_json(record.plain(got))
    else:
        _print(got, path)
    return int(got["verdict"] in ("AMBIGUOUS", "INVALID"))


def _print(got: dict, path: Path) -> None:
    would_be = f" (would be {got['would_be']})" if "would_be" in got else ""
    lines = [got["question"], f"{got['verdict']}{would_be}: {got['said']}",
             *(f"flagged: {flag}" for flag in got["flags"]),
             *(f"note: {note}" for note in got["notes"]), str(path)]  # fmt: skip
    if got["noise"] is not None:
        lines.insert(2, f"A/A noise ±{got['noise']:.2%}, {got['blocks']} blocks, "
                     f"{got['environment']['device']}, {got['clock']}")  # fmt: skip
    for line in lines:
        o.out.print(line, markup=False, highlight=False)


def check(
    file: ClaimFile,
    records: Annotated[
        list[Path] | None, typer.Argument(help="Where its records are. Default: traces/records.")
    ] = None,
    result: Annotated[Path | None, typer.Option(help="One result. Default: all of the claim's.")
                      ] = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Derive the results of a claim again from the records they name; exit code 1 if one fails."""
    from .. import claims, record
    from .kernels import op_named

    claim = claims.read_claim(file)
    op = op_named(claim.op, o.files([*(module or ()), *claims.modules_of(claim, file)]))
    paths = [result] if result else sorted(file.parent.glob(f"{file.stem}.*.json"))
    if not paths:
        raise FileNotFoundError(f"no result of {file} beside it: `workbench claim run` writes one")
    rows = record.rows(*(records or [Path("traces/records")]))
    faults = {str(p): claims.check(claim, op, claims.read_result(p), rows) for p in paths}
    if json:
        o.print_json(faults)
    else:
        for path, found in faults.items():
            for line in found or ["holds"]:
                o.out.print(f"{path}: {line}", markup=False, highlight=False)
    return int(any(faults.values()))


def diff(
    one: Annotated[Path, typer.Argument(help="A result of a claim.")],
    other: Annotated[Path, typer.Argument(help="Another result of the same claim.")],
    json: o.AsJson = False,
) -> int:
    """How two results of a claim differ; abstains, with exit code 2, where machines differ."""
    from .. import claims

    found = claims.difference(claims.read_result(one), claims.read_result(other))
    if json:
        o.print_json(found)
    else:
        for line in found or ["no difference beyond the intervals"]:
            o.out.print(line, markup=False, highlight=False)
    return 0
