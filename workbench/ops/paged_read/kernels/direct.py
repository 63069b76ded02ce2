"""Rows out of pages of any size, where they lie: what no split would have to be paid for.

Moves 584 bytes each way a lane.
"""

from ..definition import Inputs, Output, paged_read
from ._blocks import Config, read


@paged_read.variant(config=Config(), step_from="eager")
def direct(x: Inputs, config: Config) -> Output:
    """Read each row where its page has it, data and scales in one launch."""
    return read(x, x.source, x.page_size, config)
