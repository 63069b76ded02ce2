"""What Hopper's kernels out of bytes are launched with, and what they cannot read."""

import torch

from ....layouts import LAYOUTS
from ..definition import Inputs, Output

LOG2_E = 1.4426950408889634


def check_alignment(x) -> None:
    """Raise ValueError where 16-byte loads cannot read q or the cache of `x`."""
    steps = (x.q.data_ptr(), x.cache.data_ptr(), x.cache.stride(0), x.row_stride)
    if any(step % 16 for step in steps):
        raise ValueError(f"rows {x.row_stride} bytes apart, pages {x.cache.stride(0)}: they do not "
                         "all begin at a multiple of 16 bytes")  # fmt: skip


def outputs(x: Inputs) -> Output:
    """Memory for the result. Raises ValueError where 16-byte loads cannot read q or the cache."""
    check_alignment(x)
    tokens, heads, _ = x.q.shape
    out = torch.empty(tokens, heads, LAYOUTS[x.layout].d_v, dtype=x.q.dtype, device=x.q.device)
    return Output(out, torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device))


def rows_of_656(w) -> str | None:
    """Why a workload's rows are not 512 codes, four scales and 64 rotary values, or None."""
    layout = LAYOUTS[w.layout]
    if layout.footer_bytes or not layout.rope:
        return f"rows of {layout.name} are not 512 codes, four scales and 64 rotary values"
    if (w.row_stride or 0) % 16:
        return f"row_stride={w.row_stride} is no multiple of 16"
    return None
