"""DeepSeek-V4's cache page: data rows first, then a footer of their scale bytes.

A page of P tokens holds P rows of 576 bytes (448 e4m3 latent values, then 64 bf16 rotary values)
and, from byte P * 576 on, P groups of 8 scale bytes (7 UE8M0 scales of 64 values each, one zero).
Servers pad each page to a multiple of 576 so that its stride is one of their row stride; pages
without the pad are legal too. Layout as read in SGLang's DeepSeek-V4 memory pool and FlashMLA.
"""

from typing import NamedTuple

import torch

NOPE_BYTES = 448  # e4m3
ROPE = 64  # bf16
ROW_BYTES = NOPE_BYTES + 2 * ROPE  # 576
SCALE_BYTES = 8  # 7 UE8M0 and one pad byte
TOKEN_BYTES = ROW_BYTES + SCALE_BYTES  # 584


class Tokens(NamedTuple):
    """What a page holds, by kind."""

    nope: torch.Tensor  # [pages, P, 448] float8_e4m3fn
    rope: torch.Tensor  # [pages, P, 64] bfloat16
    scales: torch.Tensor  # [pages, P, 7] uint8, UE8M0 exponents


def page_bytes(page_size: int) -> int:
    """Bytes of a page of `page_size` tokens, without padding."""
    return page_size * TOKEN_BYTES


def page_stride(page_size: int, padded: bool = True) -> int:
    """Bytes from one page to the next; padded, the next multiple of 576."""
    size = page_bytes(page_size)
    return -(-size // ROW_BYTES) * ROW_BYTES if padded else size


def pack(tokens: Tokens, padded: bool = True) -> torch.Tensor:
    """Return pages [pages, page_stride] uint8; pad bytes are zero.

    Raises ValueError where a field has another dtype or shape than `Tokens` gives.
    """
    pages, page_size = tokens.nope.shape[:2]
    for name, dtype, width in (
        ("nope", torch.float8_e4m3fn, NOPE_BYTES),
        ("rope", torch.bfloat16, ROPE),
        ("scales", torch.uint8, SCALE_BYTES - 1),
    ):
        field = getattr(tokens, name)
        if field.dtype != dtype or field.shape != (pages, page_size, width):
            raise ValueError(f"{name} is {field.dtype} {tuple(field.shape)}, not {dtype} "
                             f"{(pages, page_size, width)}")  # fmt: skip
    out = tokens.nope.new_zeros(pages, page_stride(page_size, padded), dtype=torch.uint8)
    rows = out[:, : page_size * ROW_BYTES].view(pages, page_size, ROW_BYTES)
    rows[..., :NOPE_BYTES] = tokens.nope.contiguous().view(torch.uint8)
    rows[..., NOPE_BYTES:] = tokens.rope.contiguous().view(torch.uint8)
    footer = out[:, page_size * ROW_BYTES : page_bytes(page_size)]
    footer.view(pages, page_size, SCALE_BYTES)[..., :-1] = tokens.scales
    return out


def unpack(pages: torch.Tensor, page_size: int) -> Tokens:
    """Return the tokens of `pages` [pages, >= page_bytes] uint8, as new tensors.

    Raises ValueError where the bytes are not uint8 or a page is too short.
    """
    if pages.dtype != torch.uint8:
        raise ValueError(f"pages are {pages.dtype}, not uint8")
    if pages.shape[1] < page_bytes(page_size):
        raise ValueError(f"a page of {page_size} tokens takes {page_bytes(page_size)} bytes, "
                         f"not {pages.shape[1]}")  # fmt: skip
    rows = pages[:, : page_size * ROW_BYTES].reshape(-1, page_size, ROW_BYTES)
    footer = pages[:, page_size * ROW_BYTES : page_bytes(page_size)]
    return Tokens(
        rows[..., :NOPE_BYTES].clone(memory_format=torch.contiguous_format).view(
            torch.float8_e4m3fn
        ),
        rows[..., NOPE_BYTES:].clone(memory_format=torch.contiguous_format).view(torch.bfloat16),
        footer.reshape(-1, page_size, SCALE_BYTES)[..., :-1].clone(),
    )
