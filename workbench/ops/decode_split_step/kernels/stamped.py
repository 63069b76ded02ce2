"""Every layer copies what it stamps first; each launch is an epoch of the shared destination."""

from ...page_split.kernels.stamped import stamped as split
from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant(step_from="masked")
def stamped(x: Inputs, config: None) -> Output:
    """Stamp pages by epoch in every layer: one launch a cache, linear in the lanes."""
    return each_layer(x, split)
