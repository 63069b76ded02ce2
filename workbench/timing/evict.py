"""Emptying the L2: read and write random data of several times its size."""

from collections.abc import Callable

import torch

TIMES = 4  # the L2 that are read and written


def evictor(device: str) -> Callable[[], object]:
    """A call that leaves nothing of what the arms use in the L2 of `device`.

    It reads and writes, so that no line stays because it is clean, and random data, since a GPU
    may keep constant lines compressed. What it leaves is dirty: a call pays for writing it back, as
    it does behind a kernel that writes.
    """
    size = TIMES * torch.cuda.get_device_properties(device).L2_cache_size
    noise = torch.randint(-(2**62), 2**62, (size // 8,), dtype=torch.int64, device=device)
    return lambda: noise.bitwise_not_()
