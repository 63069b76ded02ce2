"""The split of seed 000, then the read from pages of 64: what a 64-token reader pays.

Moves the touched pages each way beside the rows, and starts programs for every page of the pool.
"""

from ...page_split.kernels.masked import masked
from ..definition import Inputs, Output, paged_read
from ._blocks import Config, cannot_split, read_split


@paged_read.variant(config=Config(), step_from="direct", requires=cannot_split)
def masked_then_read(x: Inputs, config: Config) -> Output:
    """Mark and copy the touched pages, then read out of the copies."""
    return read_split(x, masked, config)
