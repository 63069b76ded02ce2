"""Noise that is equal on every device, at the speed of memory."""

import torch

TOP_29_CLEAR = (1 << 35) - 1


def random_bytes(shape: tuple[int, ...], seed: int, device: str) -> torch.Tensor:
    """uint8 noise that is equal on every device: a multiplicative hash of the place."""
    count = 1
    for n in shape:
        count *= n
    words = torch.arange(-(-count // 8), dtype=torch.int64, device=device)
    for factor in (-7046029254386353131, -4658895280553007687):  # odd, as splitmix64 uses
        words.add_(seed + 1).mul_(factor)
        # the shift is arithmetic: without the mask every word would lose its top bit
        words.bitwise_xor_((words >> 29) & TOP_29_CLEAR)
    return words.view(torch.uint8)[:count].view(shape)
