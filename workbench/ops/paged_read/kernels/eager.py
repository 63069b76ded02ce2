"""The read in plain PyTorch, by views of the pages' two parts."""

import torch

from ....layouts import footer_584
from ..definition import ROW, TOKEN, Inputs, Output, paged_read


@paged_read.variant()
def eager(x: Inputs, config: None) -> Output:
    """Gather data rows, then scales; a lane that names no token reads token 0 and becomes zero."""
    valid = (x.indices >= 0) & (x.indices < x.source.shape[0] * x.page_size)
    tokens = torch.where(valid, x.indices, 0).long()
    data, scales = footer_584.rows_and_scales(x.source, x.page_size)
    place = tokens // x.page_size, tokens % x.page_size
    x.rows[..., :ROW] = torch.where(valid[..., None], data[place], 0)
    x.rows[..., ROW:TOKEN] = torch.where(valid[..., None], scales[place], 0)
    return Output(x.rows)
