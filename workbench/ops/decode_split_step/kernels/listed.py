"""Every layer lists what it touches and shares the copies evenly, however lanes are scattered."""

from ...page_split.kernels.listed import listed as split
from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant(step_from="stamped")
def listed(x: Inputs, config: None) -> Output:
    """List touched pages in every layer, then copy the list: two launches a cache, even work."""
    return each_layer(x, split)
