"""Two consumer warp groups: each takes every second tile's scores, and half of the value width.

With one consumer of eight warps a tile's scores are split over its warps, each of which reads all
queries from shared memory. Here a group of four computes the whole tile, keeps its weights in
registers for its own half of the values and hands them to the other group once.
"""

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import ROWS, filled, lists_bytes, over_unions, settled
from ._over_groups import Config, launched, over_groups_kernel, requires


@sparse_prefill.variant(
    config=Config(), step_from="specialised", requires=requires, settled=settled,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
    stack_bytes=64,  # by Triton 3.9; 3.6 needs none
)  # fmt: skip
def halves(x: Inputs, config: Config) -> Output:
    """Two consumer groups take tiles in turn, and half of the value width each."""
    group = filled(config.group, x.q.shape[1])
    return over_unions(over_groups_kernel, x, group, OVERLAP=False, **launched(config))
