"""A decode call handed to a prefill kernel: the other side of the crossover, on the same inputs."""

from ...fp8_prefill.kernels._launch import check_alignment
from ..definition import Inputs, Output
from ._launch import beside, empty_out


def handed(launch, x: Inputs, config) -> Output:
    """What `launch(x, config, out, lse)` of a prefill variant answers, `lse` where it is wanted.

    Raises ValueError where 16-byte loads cannot read q or the cache.
    """
    check_alignment(x)
    out, lse = empty_out(x), x.out_lse
    to = lse
    if not lse.is_contiguous():
        to = beside(x, lse.numel()).view(lse.shape)
    launch(x, config, out, to)
    if to is not lse:
        lse.copy_(to)
    return Output(out, lse)


def workspace_bytes(w, config) -> int:
    """Of the `lse` that is copied to its place, where that has gaps."""
    return 4 * w.tokens * w.heads if w.gap and w.tokens > 1 else 0
