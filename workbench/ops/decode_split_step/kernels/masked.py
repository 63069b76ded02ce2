"""Every layer marks what it touches and copies that: seed 000's step."""

from ...page_split.kernels.masked import masked as split
from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant(step_from="full")
def masked(x: Inputs, config: None) -> Output:
    """Mark and copy the touched pages in every layer: three launches a cache."""
    return each_layer(x, split)
