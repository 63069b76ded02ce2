"""No split: the reader takes pages of any size. What is left is the reading, the step's floor."""

from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant()
def direct(x: Inputs, config: None) -> Output:
    """Read every page as it lies: a reader that needs no split."""
    return each_layer(x, None)
