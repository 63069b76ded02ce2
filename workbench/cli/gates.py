"""regress, quality: is a new version slower, are its answers worse?"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o


def register(app: typer.Typer) -> None:
    app.command("regress")(o.told(regress))
    app.command("quality")(o.told(quality))


def regress(
    base: Annotated[Path, typer.Argument(help="Records of the version to compare with.")],
    new: Annotated[Path, typer.Argument(help="Records of the version in question.")],
    relative: Annotated[float, typer.Option(min=0.0, help="Slowdown that is let through.")] = 0.03,
    absolute: Annotated[float, typer.Option(min=0.0, help="And microseconds of it.")] = 0.5,
    json: o.AsJson = False,
) -> int:
    """A gate for continuous integration: exit code 1 on a confirmed slowdown, or a new failure.

    Confirmed: the 95 % interval over process blocks lies above 1, and the slowdown is beyond both
    budgets. A case measured in one block can confirm nothing: that is said, and let through. A
    variant that has times in BASE and fails in NEW is no slowdown, but worse.
    """
    from .. import comparison
    from ..evidence import load
    from ..models.ratio import slowdown
    from ..record import plain

    tables = comparison.named_alike(load(base), load(new))
    failed, absent = _lost(*tables)
    cases = comparison.compare_files(*tables)
    budgets = {"relative": relative, "absolute_us": absolute}
    slow = [(c, said) for c in cases if (said := slowdown(c.ratio, c.a_us, **budgets))]
    blind = sum(c.ratio.blocks < 2 for c in cases)
    if json:
        o.print_json(plain({"slower": [{**asdict(c), "said": said} for c, said in slow],
                            "failed": failed, "absent": absent, "cases": len(cases),
                            "one_block": blind}))  # fmt: skip
        return int(bool(slow or failed))
    for c, said in slow:
        o.out.print(f"{c.op} {c.b} {c.place or 'default'} ({c.clock}): {said}", markup=False,
                    highlight=False)  # fmt: skip
    for told in failed:
        o.out.print(f"{told}, timed in {base}", markup=False, highlight=False)
    o.out.print(f"{len(slow)} of {len(cases)} cases are slower, confirmed", highlight=False)
    if absent:
        o.err.print(f"{len(absent)} cases of {base} are not in {new}: {absent[0]}, ...",
                    markup=False, highlight=False)  # fmt: skip
    if blind:
        o.err.print(f"{blind} cases have one process block on a side and can confirm nothing: "
                    "measure with --blocks 5", highlight=False)  # fmt: skip
    return int(bool(slow or failed))


def _lost(base, new) -> tuple[list[str], list[str]]:
    """What BASE has times of and NEW has none: (what failed there, what is not there)."""
    keys = ["environment.device", "clock", "op", "arm", "place"]
    timed = [set(t.loc[t["median_us"].notna(), keys].itertuples(index=False, name=None))
             for t in (base, new)]  # fmt: skip
    status = {tuple(r): s for *r, s in new[[*keys, "verdict.status"]].itertuples(index=False)}
    lost = [k for k in dict.fromkeys(base[keys].itertuples(index=False, name=None))
            if k in timed[0] - timed[1]]  # fmt: skip
    said = {k: f"{k[2]} {k[3]} {k[4] or 'default'} ({k[1]})" for k in lost}
    return ([f"{said[k]}: {status[k]}" for k in lost if k in status],
            [said[k] for k in lost if k not in status])  # fmt: skip


def quality(
    a: Annotated[Path, typer.Argument(help="Outcomes of the control: CSV or JSON lines of item, "
                                      "correct.")],
    b: Annotated[Path, typer.Argument(help="Outcomes of the candidate, over the same items.")],
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Paired outcomes of two runs: the table, McNemar's exact p, an interval of the difference."""
    from ..models import quality as q

    found = q.paired(q.read_outcomes(a), q.read_outcomes(b))
    if json:
        o.print_json(asdict(found))
        return 0
    o.out.print(f"both right {found.both}, only A {found.only_a}, only B {found.only_b}, "
                f"both wrong {found.neither}: p = {found.p:.4g}", highlight=False)  # fmt: skip
    n = found.n
    o.out.print(f"B - A: {found.difference * n:+.0f} of {n} items, 95 % from "
                f"{found.low * n:+.0f} to {found.high * n:+.0f}", highlight=False)  # fmt: skip
    return 0
