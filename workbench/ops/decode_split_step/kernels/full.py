"""Every layer copies both pools, whatever it touches."""

from ...page_split.kernels.full import full as split
from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant(step_from="direct")
def full(x: Inputs, config: None) -> Output:
    """Copy both whole pools in every layer, as servers did at first."""
    return each_layer(x, split)
