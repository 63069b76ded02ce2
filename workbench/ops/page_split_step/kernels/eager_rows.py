"""The dirty rows in plain PyTorch, without a list that the host would have to read."""

import torch

from ....layouts import footer_584
from ..definition import PAGE, Inputs, Output, page_split_step


@page_split_step.variant()
def eager_rows(x: Inputs, config: None) -> Output:
    """Gather the dirty rows and scatter them; a lane that names no token copies token 0."""
    if x.page_size == PAGE:
        return Output(x.source)
    valid = (x.dirty >= 0) & (x.dirty < x.source.shape[0] * x.page_size)
    # the source's own bytes are right in any row, and a row that is dirty twice gets them twice
    tokens = torch.where(valid, x.dirty, 0).flatten().long()
    parts = zip(footer_584.rows_and_scales(x.destination, PAGE),
                footer_584.rows_and_scales(x.source, x.page_size), strict=True)  # fmt: skip
    for copy, part in parts:
        copy[tokens // PAGE, tokens % PAGE] = part[tokens // x.page_size, tokens % x.page_size]
    return Output(x.destination)
