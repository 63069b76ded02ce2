"""Scales of groups of e4m3 values: their formats, quantising with them, and back.

`pow2_fp32` (DeepSeek-V3.2) and `ue8m0` (the exponent alone, in a byte: DeepSeek-V4, DOTS3) round
max|x| / 448 up to a power of two, at least 2**-13; `arbitrary_fp32` (GLM) keeps it, with max|x| at
least 1e-4, so that a group of zeros has a scale that can be divided by. As FlashMLA's and
FlashInfer's quantisers do. A byte b of UE8M0 is 2**(b - 127), and 0xFF is NaN, as the OCP
microscaling format has it; readers that shift the byte into an exponent take 0 for 0x00.
"""

import torch

POW2, ARBITRARY, UE8M0 = FORMATS = ("pow2_fp32", "arbitrary_fp32", "ue8m0")
E4M3_MAX = 448.0
LEAST = 1e-4  # of max|x| (arbitrary_fp32), of the scale before it is rounded up (the others)
MANTISSA = (1 << 23) - 1


def quantise(
    values: torch.Tensor, group: int, scale_format: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(codes, of the shape of `values` [..., n] float, as float8_e4m3fn; scales [..., n / group]).

    Scales are float32, or uint8 exponents of `ue8m0`. Codes are value / scale, rounded to nearest
    even.
    """
    groups = values.float().unflatten(-1, (-1, group))  # [..., n / group, group]
    largest = groups.abs().amax(-1)
    if scale_format == ARBITRARY:
        stored = scales = largest.clamp(min=LEAST) / E4M3_MAX
    else:
        bits = (largest / E4M3_MAX).clamp(min=LEAST).view(torch.int32)
        exponents = (bits + MANTISSA) >> 23  # rounded up
        scales = (exponents << 23).view(torch.float32)
        stored = exponents.to(torch.uint8) if scale_format == UE8M0 else scales
    codes = (groups / scales[..., None]).to(torch.float8_e4m3fn)  # none rounds to more than 448
    return codes.flatten(-2), stored


def decoded(scales: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The numbers that stored `scales` stand for: float32 as they are, uint8 as UE8M0."""
    if scales.dtype != torch.uint8:
        return scales.to(dtype)
    exponents = scales.int()
    bits = torch.where(exponents == 0, 1 << 22, exponents << 23)  # 2**-127 is subnormal
    bits = torch.where(exponents == 255, 0x7FC00000, bits)
    return bits.to(torch.int32).view(torch.float32).to(dtype)


def dequantise(
    codes: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """code * scale in `dtype` (float64: exact), of the shape of `codes` [..., n]."""
    groups = codes.to(dtype).unflatten(-1, (scales.shape[-1], -1))
    return (groups * decoded(scales, dtype)[..., None]).flatten(-2)


def check_scales(scales: torch.Tensor, scale_format: str) -> None:
    """Raise ValueError where a float32 scale is no power of two though the format says so.

    A reader of `pow2_fp32` may take the exponent alone, and would cut off the rest without a word.
    """
    if scale_format not in FORMATS:
        raise ValueError(f"scale_format={scale_format!r} is none of {', '.join(FORMATS)}")
    if (scale_format == UE8M0) != (scales.dtype == torch.uint8):
        raise ValueError(f"scale_format={scale_format!r}, but scales are {scales.dtype}")
    if scale_format != POW2:
        return
    bits = scales.contiguous().view(torch.int32)
    exponents = bits >> 23  # negative with the sign
    wrong = ((bits & MANTISSA) != 0) | (exponents < 1) | (exponents > 254)
    if wrong.any():
        place = tuple(int(i) for i in wrong.nonzero()[0])
        raise ValueError(f"scale {float(scales[place])!r} at {place} is no power of two, as "
                         f"scale_format={scale_format!r} says")  # fmt: skip
