"""The whole pool in plain PyTorch: what a server does that does not look at what is touched."""

from ....layouts import footer_584
from ..definition import (
    COPIED_BYTES,
    DATA_BYTES,
    PAGE,
    SCALES_BYTES,
    Inputs,
    Output,
    all_pages,
    page_split,
)


@page_split.variant(widens=all_pages)
def eager_full(x: Inputs, config: None) -> Output:
    """Copy the whole pool with two strided copies: data rows, then scales."""
    if x.page_size == PAGE:
        return Output(x.source)
    pages, ratio = x.source.shape[0], x.page_size // PAGE
    rows = x.page_size * footer_584.ROW_BYTES
    out = x.destination.unflatten(0, (pages, ratio))  # [pages, ratio, >= COPIED_BYTES]
    out[..., :DATA_BYTES] = x.source[:, :rows].unflatten(1, (ratio, DATA_BYTES))
    scales = x.source[:, rows : rows + ratio * SCALES_BYTES].unflatten(1, (ratio, SCALES_BYTES))
    out[..., DATA_BYTES:COPIED_BYTES] = scales
    return Output(x.destination)
