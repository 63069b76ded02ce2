"""dispatch splits: what the chunk model's picks cost where it was not fitted."""

from . import options as o
from .dispatch_tables import (
    Clock,
    DeviceName,
    OfOp,
    OfVariants,
    Records,
    Triton,
    calibrations,
    told_apart,
)
from .kernels import op_named


def splits(
    records: Records = None,
    variant: OfVariants = None,
    op: OfOp = "sparse_decode",
    clock: Clock = "graph_rotating",
    device: DeviceName = None,
    triton: Triton = None,
    module: o.Modules = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """The chunk model's pick against the best measured one, wherever it was not fitted.

    Times are over the best one's: of the pick, of the best within 6 chunks of it (refined), and of
    the variant's own rule. A pick is made among the counts that were measured.
    """
    from ..models import picks as s

    of = op_named(op, module)
    asked = {"clock": clock, "device": device, "triton": triton}
    _, found, made = calibrations(records, of, asked, variant)
    for c in made:
        if c.why:
            o.fail(f"{c.why}: left out")
    seen = s.judged(found, made)
    if not seen:
        raise ValueError("no place is left that the model was not fitted on")
    if json:
        o.print_json({"summary": s.shares(seen), "places": [_place(j) for j in seen]})  # fmt: skip
    else:
        _print(of, seen)
    return 0


def _place(j) -> dict:
    return {"variant": j.sweep.variant, **j.sweep.workload, "pick": j.pick, "wanted": j.wanted,
            "best": j.sweep.best, "refined": j.refined, "best_us": j.sweep.times_us[j.sweep.best],
            "ratio": j.ratio, "refined_ratio": j.refined_ratio,
            "rule_ratio": j.rule_ratio}  # fmt: skip


def _print(op, seen) -> None:
    from ..models.picks import WAYS, WITHIN, shares

    shared, own = told_apart(op, [j.sweep.workload for j in seen])
    rows = [[j.sweep.variant, where, f"{j.sweep.call.chunks}", f"{j.pick}",
             f"{j.wanted}" if j.wanted != j.pick else "", f"{j.sweep.best}",
             f"{j.sweep.times_us[j.sweep.best]:,.1f}", f"{j.ratio:.2f}x", f"{j.refined_ratio:.2f}x",
             "-" if j.rule_ratio is None else f"{j.rule_ratio:.2f}x"]
            for where, j in zip(own, seen, strict=True)]  # fmt: skip
    columns = ["variant", "workload", "chunks", "pick", "not measured", "best", "us", "pick",
               "refined", "own rule"]  # fmt: skip
    o.out.print(o.grid(shared, columns, rows, 2))
    o.out.print()
    for told in shares(seen):
        said = [f"{way} {told[way]['within']:.0%} within {WITHIN:.2f}x, worst "
                f"{told[way]['worst']:.2f}x" for way in WAYS if told[way]]  # fmt: skip
        o.out.print(f"{told['variant']} {told['layout']}, {told['places']} places: "
                    f"{'; '.join(said)}", highlight=False)  # fmt: skip
