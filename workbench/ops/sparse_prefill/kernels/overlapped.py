"""Scores are under way before the values of the tile before, and these during the softmax.

A warp group starts the scores of its next tile, then the product of the other group's weights
with its own half of the values, and computes its softmax while that product runs. It waits for
the product only before it adds its own tile to the same sums.
"""

from dataclasses import dataclass

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import ROWS, filled, lists_bytes, one_tile, over_unions, registers_fit
from ._turns import _over_groups_kernel


@dataclass(frozen=True)
class Config:
    group: int = 0  # tokens that share a gather; 0: as many as fill the tile of 64 query rows
    longest_first: int = 1  # the last groups, which see the most rows, are computed first
    producer_registers: int = 72
    consumer_registers: int = 216


def _requires(w, config: Config) -> str | None:
    registers = config.producer_registers, config.consumer_registers
    return one_tile(w, config.group) or registers_fit(*registers, 2)


@sparse_prefill.variant(
    config=Config(), step_from="halves", requires=_requires,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
)  # fmt: skip
def overlapped(x: Inputs, config: Config) -> Output:
    """The softmax of one tile runs under the products of the tile before."""
    return over_unions(
        _over_groups_kernel, x, filled(config.group, x.q.shape[1]),
        QUERIES=ROWS, OVERLAP=True, REVERSED=bool(config.longest_first),
        PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers, num_warps=4,
    )  # fmt: skip
