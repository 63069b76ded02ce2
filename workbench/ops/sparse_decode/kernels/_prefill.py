"""A decode call handed to a prefill kernel: the other side of the crossover, on the same inputs."""

import torch

from ...fp8_prefill.kernels._launch import check_alignment
from ..definition import Inputs, Output
from ._launch import empty_out


def handed(launch, x: Inputs, config) -> Output:
    """What `launch(x, config, out, lse)` of a prefill variant answers, `lse` where it is wanted.

    Raises ValueError where 16-byte loads cannot read q or the cache.
    """
    check_alignment(x)
    out, lse = empty_out(x), x.out_lse
    to = lse if lse.is_contiguous() else torch.empty(lse.shape, device=lse.device)
    launch(x, config, out, to)
    if to is not lse:
        lse.copy_(to)
    return Output(out, lse)
