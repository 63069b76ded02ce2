"""Measure what a claim asks; along an axis, where a crossing is still wide, measure more."""

from collections.abc import Callable
from pathlib import Path

from .. import record, study
from ..op import Op
from .claim import Claim
from .result import line_of, next_of

Report = Callable[[str], None]


def measure(
    claim: Claim, op: Op, to: Path, *, device: str = "auto", modules: tuple[str, ...] = (),
    report: Report = lambda what: None,
) -> list[dict]:
    """Measure what the claim asks, appending to `to`; return the rows of these studies.

    Along an axis, points are added where a crossing is still wide, until it is as narrow as the
    claim asks, straight gaps are left, or its most points are measured.
    """  # fmt: skip
    arms = claim.arms(op)
    rows, values = [], list(claim.values)
    ahead = claim.workloads(op)
    while ahead:
        found = study.run(
            arms, ahead, clocks=[claim.clock], device=device, blocks=claim.blocks,
            repeats=claim.repeats, modules=modules, to=to, report=report,
        )  # fmt: skip
        rows += [record.as_row(m) for m in found]
        ahead = []
        if claim.axis and claim.refine and len(values) < claim.most_points:
            point = next_of(claim, line_of(claim, op, rows))
            if point is not None and point not in values:
                report(f"{claim.axis}={point:g}")
                values.append(point)
                ahead = claim.workloads(op, [point])
    return rows
