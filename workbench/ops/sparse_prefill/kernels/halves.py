"""Two consumer warp groups: each takes every second tile's scores, and half of the value width.

With one consumer of eight warps a tile's scores are split over its warps, each of which reads all
queries from shared memory. Here a group of four computes the whole tile, keeps its weights in
registers for its own half of the values and hands them to the other group once.
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
    config=Config(), step_from="specialised", requires=_requires,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
    stack_bytes=64,  # by Triton 3.9; 3.6 needs none
)  # fmt: skip
def halves(x: Inputs, config: Config) -> Output:
    """Two consumer groups take tiles in turn, and half of the value width each."""
    return over_unions(
        _over_groups_kernel, x, filled(config.group, x.q.shape[1]),
        QUERIES=ROWS, OVERLAP=False, REVERSED=bool(config.longest_first),
        PRODUCER=config.producer_registers, CONSUMER=config.consumer_registers, num_warps=4,
    )  # fmt: skip
