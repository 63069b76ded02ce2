"""The bits of an answer as a short text: what passed the gate once is known again elsewhere."""

import torch

from .op import Config, Inputs, Output, Variant
from .watch import Watch

STEP = 1 << 24  # words that are hashed at a time


def answer_digest(v: Variant, x: Inputs, config: Config) -> str:
    """Run `v` on inputs whose written ones are cloned; the digest of its outputs' bits.

    Fresh memory is poisoned, so that what a contract leaves undefined is equal in every process.
    Equal for every run of a `repeatable` variant on equal inputs on one kind of device.
    """
    copies = {name: getattr(x, name).clone() for name in v.op.writes + v.op.fills}
    with Watch(capturable=False):
        output = v(x._replace(**copies), config)
    return digest(output)


def digest(output: Output) -> str:
    """64 bits of hash of the tensors of `output`, shapes and types included, as hexadecimal."""
    value = 0
    for tensor in output:
        for letter in str(tensor.dtype).encode():
            value = _mixed(value, letter)
        for n in tensor.shape:
            value = _mixed(value, n)
        raw = tensor.contiguous().flatten().view(torch.uint8)
        raw = torch.nn.functional.pad(raw, (0, -len(raw) % 8)).view(torch.int64)
        for first in range(0, len(raw), STEP):
            words = raw[first : first + STEP]
            place = torch.arange(len(words), device=raw.device)
            value = _mixed(value, int(_scrambled(words, place).sum()))
    return f"{value:016x}"


def _scrambled(words: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Each word with its place mixed in, one to one at every place.

    So another word changes the sum. Of a product alone words that differ in high bits could be
    exchanged unseen: multiples of 2**64 are zero.
    """
    mixed = (words ^ place * -7046029254386353131) * -4658895280553007687
    mixed ^= mixed >> 29 & (1 << 35) - 1  # without the copies of the sign, or it would be lost
    return mixed * -7723592293110705685


def _mixed(value: int, word: int) -> int:
    return (value * 0x9E3779B97F4A7C15 + word + 1) & (1 << 64) - 1
