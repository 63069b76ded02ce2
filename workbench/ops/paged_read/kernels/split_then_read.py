"""A split whose cost follows the index lanes, then the read from pages of 64.

Moves the touched pages each way beside the rows; nothing grows with the pool.
"""

from ...page_split.kernels.claimed import claimed
from ..definition import Inputs, Output, paged_read
from ._blocks import Config, cannot_split, read_split


@paged_read.variant(config=Config(), step_from="masked_then_read", requires=cannot_split)
def split_then_read(x: Inputs, config: Config) -> Output:
    """Let index lanes claim and copy their pages, then read out of the copies."""
    return read_split(x, claimed, config)
