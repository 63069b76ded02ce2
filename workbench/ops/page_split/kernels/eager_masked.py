"""The touched pages in plain PyTorch: find them on the host, then copy only those."""

from ....layouts import footer_584
from ..definition import (
    COPIED_BYTES,
    DATA_BYTES,
    PAGE,
    SCALES_BYTES,
    Inputs,
    Output,
    page_split,
    touched_pages,
)


@page_split.variant(step_from="eager_full", capturable=False)
def eager_masked(x: Inputs, config: None) -> Output:
    """Copy only the pages that the indices name; the list of them is read on the host."""
    if x.page_size == PAGE:
        return Output(x.source)
    ratio = x.page_size // PAGE
    touched = touched_pages(x)
    for s in range(ratio):
        scales = x.page_size * footer_584.ROW_BYTES + s * SCALES_BYTES
        target = touched * ratio + s
        x.destination[:, :DATA_BYTES].index_copy_(
            0, target, x.source[:, s * DATA_BYTES : (s + 1) * DATA_BYTES][touched]
        )
        x.destination[:, DATA_BYTES:COPIED_BYTES].index_copy_(
            0, target, x.source[:, scales : scales + SCALES_BYTES][touched]
        )
    return Output(x.destination)
