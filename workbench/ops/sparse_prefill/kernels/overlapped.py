"""Scores are under way before the values of the tile before, and these during the softmax.

A warp group starts the scores of its next tile, then the product of the other group's weights
with its own half of the values, and computes its softmax while that product runs. It waits for
the product only before it adds its own tile to the same sums.
"""

from ....op import Tile
from ..definition import Inputs, Output, sparse_prefill
from ._hopper import ROWS, filled, lists_bytes, over_unions, settled
from ._over_groups import Config, launched, over_groups_kernel, requires


@sparse_prefill.variant(
    config=Config(), step_from="halves", requires=requires, settled=settled,
    tile=lambda w, config: Tile(ROWS, filled(config.group, w.heads), 64), independent=False,
    interpretable=False, archs=("sm_90",), workspace_bytes=lists_bytes,
)  # fmt: skip
def overlapped(x: Inputs, config: Config) -> Output:
    """The softmax of one tile runs under the products of the tile before."""
    group = filled(config.group, x.q.shape[1])
    return over_unions(over_groups_kernel, x, group, OVERLAP=True, **launched(config))
