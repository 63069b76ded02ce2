"""The least that a clock can show: a kernel that does nothing."""

import torch
import triton

from .samples import Call


@triton.jit
def _empty_kernel():
    pass


def empty(device: str, sets: int = 1) -> Call:
    """A call of an empty kernel; on a CPU of an empty function."""
    if torch.device(device).type == "cpu":
        return Call(lambda _: None, (None,) * sets)
    return Call(lambda _: _empty_kernel[(1,)](), (None,) * sets)
