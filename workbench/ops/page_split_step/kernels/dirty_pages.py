"""Whole pages, but only those that hold a row that was written.

Moves one page a request in nearly every step, half of what a window that lies across two costs.
"""

from dataclasses import replace

from ...page_split.kernels.claimed import claimed
from ..definition import Inputs, Output, page_split_step, pages_of


@page_split_step.variant(step_from="touched_pages")
def dirty_pages(x: Inputs, config: None) -> Output:
    """Copy the pages in which a row was written, and no other that the step reads."""
    # written rows stand in a page each: one to a program, or it would copy their pages in turn
    return claimed(pages_of(x, x.dirty), replace(claimed.config, lanes=1))
