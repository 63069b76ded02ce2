"""What the layouts share: a layout's numbers, where a token's bytes stand, packing them.

A page holds P tokens' rows, `row_stride` bytes apart, and behind them, where the layout has one, a
footer with each token's scale bytes. Where it has none, float32 scales stand in the row, behind the
e4m3 values. Rotary values are bf16, at the end of the row. Bytes are little endian. Facts as read
in FlashMLA's and FlashInfer's quantisers and kernels (flashinfer-ai/flashinfer#4802).
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch

from . import scales as of_scales
from .scales import check_scales


class Tokens(NamedTuple):
    """What pages hold, by kind; any leading dimensions, [pages, P] where they are packed."""

    nope: torch.Tensor  # [pages, P, layout.nope] float8_e4m3fn
    rope: torch.Tensor  # [pages, P, layout.rope] bfloat16
    scales: torch.Tensor  # [pages, P, layout.groups] float32, or uint8: UE8M0 exponents


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The numbers of a layout; a token is `d_qk` values, of which the first `d_v` are its value."""

    name: str
    nope: int  # e4m3 values of a token, a byte each
    rope: int  # bf16 values of a token, behind them
    group: int  # e4m3 values that share a scale
    d_v: int
    formats: tuple[str, ...]  # of scales: some of scales.FORMATS
    footer_bytes: int = 0  # of a token's scales in the page's footer, pad included; 0: in the row

    @property
    def groups(self) -> int:
        return self.nope // self.group

    @property
    def d_qk(self) -> int:
        return self.nope + self.rope

    @property
    def row_bytes(self) -> int:
        return self.nope + 2 * self.rope + (0 if self.footer_bytes else 4 * self.groups)

    @property
    def token_bytes(self) -> int:
        return self.row_bytes + self.footer_bytes


def page_bytes(layout: Layout, page_size: int, row_stride: int | None = None) -> int:
    """Bytes of a page of `page_size` tokens, without what pads the page.

    `row_stride` is the distance of two rows in bytes; none: rows side by side. Raises ValueError
    where rows overlap, or stand apart though a footer follows them.
    """
    stride = layout.row_bytes if row_stride is None else row_stride
    if stride < layout.row_bytes:
        raise ValueError(f"row_stride={stride} is below the {layout.row_bytes} bytes of a row")
    if layout.footer_bytes and stride != layout.row_bytes:
        raise ValueError(f"row_stride={stride}: rows of {layout.name} are tightly packed, "
                         f"{layout.row_bytes} bytes apart")  # fmt: skip
    return page_size * (stride + layout.footer_bytes)


def page_stride(
    layout: Layout, page_size: int, padded: bool = True, row_stride: int | None = None
) -> int:
    """Bytes from one page to the next.

    Padded: with a footer the next multiple of a row, as SGLang's and FlashMLA's pools have it;
    without one a spare row behind each page, as FlashMLA's own quantiser leaves it.
    """
    size = page_bytes(layout, page_size, row_stride)
    if not padded:
        return size
    if layout.footer_bytes:
        return -(-size // layout.row_bytes) * layout.row_bytes
    return size + size // page_size


class Places(NamedTuple):
    """Views of pages: the bytes of each kind, by token."""

    nope: torch.Tensor  # [pages, P, layout.nope] uint8
    rope: torch.Tensor  # [pages, P, 2 * layout.rope] uint8
    scales: torch.Tensor  # [pages, P, bytes] uint8, without the pad byte of a footer


def places(
    layout: Layout, pages: torch.Tensor, page_size: int, row_stride: int | None = None
) -> Places:
    """Where the tokens of `pages` [n, >= page_bytes] uint8 stand, as views.

    Raises ValueError where the bytes are not uint8 or a page is too short.
    """
    if pages.dtype != torch.uint8:
        raise ValueError(f"pages are {pages.dtype}, not uint8")
    size = page_bytes(layout, page_size, row_stride)
    if pages.shape[1] < size:
        raise ValueError(f"a page of {page_size} tokens takes {size} bytes, not {pages.shape[1]}")
    rows_end = size - page_size * layout.footer_bytes
    rows = pages[:, :rows_end].unflatten(1, (page_size, rows_end // page_size))
    width = layout.groups if layout.footer_bytes else 4 * layout.groups
    if layout.footer_bytes:
        footer = pages[:, rows_end:size].unflatten(1, (page_size, layout.footer_bytes))
        scales = footer[..., :width]
    else:
        scales = rows[..., layout.nope : layout.nope + width]
    rope = rows[..., layout.row_bytes - 2 * layout.rope : layout.row_bytes]
    return Places(rows[..., : layout.nope], rope, scales)


def pack(
    layout: Layout, tokens: Tokens, scale_format: str, *, padded: bool = True,
    row_stride: int | None = None, fill: int = 0,
) -> torch.Tensor:  # fmt: skip
    """Return pages [n, page_stride] uint8; every byte that is no token's is `fill`.

    Raises ValueError where a field has another dtype or shape than `Tokens` gives, or a scale is
    not what `scale_format` says.
    """
    n, page_size = tokens.nope.shape[:2]
    by_format = torch.uint8 if layout.footer_bytes else torch.float32
    for name, dtype, width in (
        ("nope", torch.float8_e4m3fn, layout.nope),
        ("rope", torch.bfloat16, layout.rope),
        ("scales", by_format, layout.groups),
    ):
        field = getattr(tokens, name)
        if field.dtype != dtype or field.shape != (n, page_size, width):
            raise ValueError(f"{name} is {field.dtype} {tuple(field.shape)}, not {dtype} "
                             f"{(n, page_size, width)}")  # fmt: skip
    check_scales(tokens.scales, scale_format)
    stride = page_stride(layout, page_size, padded, row_stride)
    pages = torch.full((n, stride), fill, dtype=torch.uint8, device=tokens.nope.device)
    for view, field in zip(places(layout, pages, page_size, row_stride), tokens, strict=True):
        view.copy_(field.contiguous().view(torch.uint8))
    return pages


def as_tokens(layout: Layout, found: Places) -> Tokens:
    """The bytes of tokens, of any leading dimensions, as new tensors of their own types."""
    nope, rope, scales = (view.clone(memory_format=torch.contiguous_format) for view in found)
    if not layout.footer_bytes:
        scales = scales.view(torch.float32)
    # a tensor without columns has no stride that could be halved
    rope = rope.view(torch.bfloat16) if layout.rope else rope.new_empty(rope.shape).bfloat16()
    return Tokens(nope.view(torch.float8_e4m3fn), rope, scales)


def unpack(
    layout: Layout, pages: torch.Tensor, page_size: int, row_stride: int | None = None
) -> Tokens:
    """Return the tokens of `pages` [n, >= page_bytes] uint8, as new tensors.

    Raises ValueError where the bytes are not uint8 or a page is too short.
    """
    return as_tokens(layout, places(layout, pages, page_size, row_stride))


def quantise(layout: Layout, values: torch.Tensor, scale_format: str) -> Tokens:
    """The tokens of `values` [..., d_qk], rotary ones rounded to bf16.

    Raises ValueError where the layout has no such scales.
    """
    if scale_format not in layout.formats:
        raise ValueError(f"scale_format={scale_format!r} is none of {layout.name}'s: "
                         f"{', '.join(layout.formats)}")  # fmt: skip
    nope, rope = values[..., : layout.nope], values[..., layout.nope :]
    codes, scales = of_scales.quantise(nope, layout.group, scale_format)
    return Tokens(codes, rope.bfloat16(), scales)


def dequantise(tokens: Tokens, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """The values [..., d_qk] of `tokens` in `dtype`; float64 holds each product exactly."""
    nope = of_scales.dequantise(tokens.nope, tokens.scales, dtype)
    return torch.cat((nope, tokens.rope.to(dtype)), -1)
