"""compile: what the compiler makes of variants for a GPU that is not here."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ..fields import pairs
from . import options as o
from .comparisons import Picture

# Instructions that tell how a kernel works, in the order in which they are shown
SHOWN = ("HMMA", "IMMA", "QMMA", "HGMMA", "QGMMA", "UTCHMMA", "UTCQMMA", "LDSM", "STSM", "LDS",
         "STS", "LDTM", "STTM", "LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG", "LDG", "STG", "ATOMG",
         "LDL", "STL", "BAR", "SYNCS", "MUFU", "SHFL")  # fmt: skip
LOCAL = ("LDL", "STL")


def register(app: typer.Typer) -> None:
    app.command("compile")(o.told(compile_variants))


def compile_variants(
    op: Annotated[str | None, typer.Argument(metavar="OP", help="An operation. Default: all.")
                  ] = None,
    variant: o.Variants = None,
    suite: o.Suite = None,
    workload: o.WorkloadFields = None,
    config: o.ConfigFields = None,
    module: o.Modules = None,
    arch: Annotated[str, typer.Option(help="One or several: sm_90,sm_100,sm_120.")] = "sm_90",
    instructions: Annotated[bool, typer.Option("--instructions", help="Count instructions, too: "
                                               "in all, and in the hot loop.")] = False,
    diff: Annotated[str | None, typer.Option(metavar="REV", help="What changed since a git "
                                             "revision.")] = None,
    figure: Picture = None,
    cache: Annotated[Path | None, typer.Option(help="Where reports are kept. Default: a folder "
                                               "in XDG_CACHE_HOME or ~/.cache.")] = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Registers, spills, shared memory, occupancy and instructions, without a GPU.

    Compiles with the specialisation the launch would have. Exit code 1 where a kernel spills more
    than its variant declares, in a loop above all, does not compile, or needs more shared memory
    than a block of the architecture may have.
    """
    from ..compiled import arch_numbers, changes

    archs = arch_numbers(arch)
    asked = {"variants": variant or (), "suite": suite, "workload": pairs(workload or []),
             "config": pairs(config or []), "modules": o.files(module)}  # fmt: skip
    ops = [op] if op is not None else []
    old = _rows(ops, asked, archs, cache, diff) if diff is not None else []
    rows = _rows(ops, asked, archs, cache)
    kernels = [row for row in rows if "kernel" in row]
    if figure and not kernels:
        raise ValueError("no kernel was compiled: there is nothing to draw")
    if figure:
        _draw(kernels, figure)
    if json:
        o.print_json(rows if diff is None else changes(old, rows))
    elif diff is not None:
        _print_changes(changes(old, rows), diff)
    else:
        _print_kernels(kernels, instructions)
    for why, of in _reasons(rows).items():
        o.err.print(f"{', '.join(of)}: {why}", markup=False, highlight=False)
    for why in sorted({row["sass"] for row in kernels if row["sass"]}):
        o.err.print(f"instructions are not counted: {why}", markup=False, highlight=False)
    return int(any(row["fits"] is False for row in rows) or bool(rows and not kernels))


def _rows(
    ops: list[str], asked: dict, archs: Sequence[int], cache: Path | None, revision: str = "."
) -> list[dict]:  # fmt: skip
    """The rows of this version, or of another git revision, which may lack some of the variants."""
    from ..compiled import Compiler
    from ..isolate import Died
    from ..revisions import WORKING_TREE, checked_out

    here = revision == WORKING_TREE
    with ExitStack() as stack:
        tree = {} if here else {"root": stack.enter_context(checked_out(revision))}
        compiler = stack.enter_context(Compiler(cache_folder=cache, **tree))
        with o.waiting("reading variants" if here else f"reading variants of {revision}"):
            try:
                tasks = compiler.tasks(ops, lenient=not here, **asked)
            except Died as died:
                raise RuntimeError(f"{'here' if here else revision}: {died}") from None
        with o.progress(len(tasks) * len(archs)) as (advance, say):
            return compiler.rows(tasks, archs, lambda what: (say(what), advance()))


def _reasons(rows: list[dict]) -> dict[str, dict[str, None]]:
    """What is to be told, and the variant and architectures that it is told of."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["why"]:
            found.setdefault(f"{row['why']}", {}).update({row["variant"]: None, row["arch"]: None})
    return found


def _draw(kernels: list[dict], to: Path) -> None:
    from .. import figures

    figures.save(figures.compiled(kernels), to.stem, to.parent)


def _print_kernels(rows: list[dict], instructions: bool) -> None:
    if not rows:
        o.out.print("no kernels of its own")
        return
    several = [n for n in ("op",) if len({r[n] for r in rows}) > 1]
    places = _places(rows)
    head = [*several, "variant", "kernel", "arch", *(["workload"] if any(places) else [])]
    columns = [*head, "regs", "stack", "spilled", "shared", "limit", "blocks/SM", "warps/SM",
               "held by", "in loops"]  # fmt: skip
    shown = [n for n in SHOWN if any((r["instructions"] or {}).get(n) for r in rows)]
    columns += [*shown, "all"] if instructions else ["tensor core"]
    body = []
    for r, place in zip(rows, places, strict=True):
        cells = [*(r[n] for n in several), r["variant"], r["kernel"], r["arch"],
                 *([place] if any(places) else []), *_numbers(r)]  # fmt: skip
        if instructions:
            cells += [*(_counted(r, n) for n in shown), _counted(r, None)]
        else:
            cells.append(" ".join(f"{n} {m}" for m, n in (r["mma"] or {}).items()) or "-")
        body.append(cells)
    ops = "" if several else rows[0]["op"]
    o.out.print(o.grid(ops, columns, body, right=len(head)))
    told = "spilled: bytes stored/loaded · in loops: local loads/stores"
    if instructions:
        told += " · instructions: in all (in the hot loop)"
    o.out.print(told, style="dim", highlight=False)


def _numbers(r: dict) -> list[str]:
    loops = "?" if r["looped"] is None else "/".join(str(r["looped"].get(n, 0)) for n in LOCAL)
    return [r["registers"], r["stack_bytes"],
            f"{r['spill_store_bytes']}/{r['spill_load_bytes']}", f"{r['shared_bytes']:,}",
            f"{r['shared_limit']:,}", r["blocks_per_sm"], r["warps_per_sm"], r["occupancy_limit"],
            loops]  # fmt: skip


def _counted(r: dict, name: str | None) -> str:
    """An instruction in all and in the hot loop; of all instructions where `name` is None."""
    if r["instructions"] is None:
        return "?"
    both = [sum(c.values()) if name is None else c.get(name, 0)
            for c in (r["instructions"], r["hot_loop"])]  # fmt: skip
    return f"{both[0]} ({both[1]})" if both[1] else str(both[0] or "-")


def _places(rows: list[dict]) -> list[str]:
    """The workload fields of each row in which rows of one op differ."""
    found = []
    for row in rows:
        others = [r["workload"] for r in rows if r["op"] == row["op"]]
        found.append(" ".join(f"{name}={value}" for name, value in row["workload"].items()
                              if any(w[name] != value for w in others)))  # fmt: skip
    return found


def _print_changes(found: list[dict], revision: str) -> None:
    if not found:
        o.out.print(f"nothing changed since {revision}", markup=False, highlight=False)
        return
    body = []
    for row, place in zip(found, _places(found), strict=True):
        told = ", ".join(f"{what.removesuffix('_bytes')} {_told(a)} → {_told(b)}"
                         for what, (a, b) in row["changes"].items())  # fmt: skip
        body.append([row["op"], row["variant"], row["kernel"] or "", row["arch"], place, told])
    columns = ["op", "variant", "kernel", "arch", "", f"since {revision}"]
    o.out.print(o.grid("", columns, body, right=len(columns)))


def _told(value) -> str:
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
