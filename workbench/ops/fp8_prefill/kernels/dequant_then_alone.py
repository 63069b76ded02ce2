"""The same pass over the pool, then Hopper's prefill for 64 heads and more on the rows it wrote."""

from dataclasses import dataclass

from .... import ranges
from ....op import Tile
from ...sparse_prefill.kernels.alone import alone
from ..definition import Inputs, Output, fp8_prefill
from ._rows import asked, dequantised, no_rows_of_576, rounded


@dataclass(frozen=True)
class Config:
    block: int = 8  # rows of the pool that a program of the pass writes
    pass_warps: int = 4


def _tile(w, config: Config) -> Tile:
    return alone.tile(w, alone.config)


@fp8_prefill.variant(
    config=Config(), step_from="dequant_then_bf16", widens=rounded, tile=_tile,
    requires=lambda w, config: no_rows_of_576(w), interpretable=False, archs=("sm_90",),
)  # fmt: skip
def dequant_then_alone(x: Inputs, config: Config) -> Output:
    """Write the whole pool as bf16 rows first, then run `alone` on them; both are timed."""
    with ranges.span("plan"):
        rows = dequantised(x, config.block, config.pass_warps)
        question = asked(x, rows)
    return Output(*alone(question))
