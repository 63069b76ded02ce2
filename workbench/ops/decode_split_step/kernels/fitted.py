"""Each cache by what fits its lanes: the window's pages are claimed, the extra cache's listed.

A window's lanes stand side by side, so few of them are candidates and one launch is enough. The
extra cache's are scattered: there a claim would compare every lane with every other.
"""

from ...page_split import page_split
from ..definition import Inputs, Output, decode_split_step
from ..layers import each_layer


@decode_split_step.variant(step_from="listed")
def fitted(x: Inputs, config: None) -> Output:
    """Claim the window's pages in one launch, list the scattered extra cache's in two."""
    return each_layer(x, page_split.variants["claimed"], page_split.variants["listed"])
