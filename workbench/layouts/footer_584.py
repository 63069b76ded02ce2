"""DeepSeek-V4's cache page: data rows first, then a footer of their scale bytes.

A page of P tokens holds P rows of 576 bytes (448 e4m3 latent values, then 64 bf16 rotary values)
and, from byte P * 576 on, P groups of 8 scale bytes (7 UE8M0 scales of 64 values each, one zero).
Servers pad each page to a multiple of 576 so that its stride is one of their row stride; pages
without the pad are legal too. A value is all 512, rotary ones included. Layout as read in SGLang's
DeepSeek-V4 memory pool and FlashMLA. FlashInfer: DSV4 (1).
"""

import torch

from . import layout
from .layout import Layout, Tokens
from .scales import UE8M0

LAYOUT = Layout(
    name="footer_584", nope=448, rope=64, group=64, d_v=512, formats=(UE8M0,), footer_bytes=8
)
ROW_BYTES = LAYOUT.row_bytes  # 576
SCALE_BYTES = LAYOUT.footer_bytes  # 7 UE8M0 and one pad byte
TOKEN_BYTES = LAYOUT.token_bytes  # 584


def page_bytes(page_size: int) -> int:
    """Bytes of a page of `page_size` tokens, without padding."""
    return layout.page_bytes(LAYOUT, page_size)


def page_stride(page_size: int, padded: bool = True) -> int:
    """Bytes from one page to the next; padded, the next multiple of 576."""
    return layout.page_stride(LAYOUT, page_size, padded)


def pool_of(cache: torch.Tensor, page_size: int | None = None) -> tuple[torch.Tensor, int]:
    """(pages [pages, page bytes] uint8 over the memory of `cache`, tokens of a page).

    `cache` is uint8: [pages, bytes] with `page_size` given, or a view by tokens of 584 bytes:
    [pages, P, 584], [pages, P, 1, 584] (NHD) or [pages, 1, P, 584] (HND). In the views 584 is how
    much a token takes, not how far it lies from the next: data rows and footer are apart, and only
    the stride of the pages counts. Pages of one token in 4 dimensions are one or the other alike.
    Raises ValueError where the form is none of these, its bytes have gaps inside a page, or
    `page_size` contradicts it.
    """
    if cache.dtype != torch.uint8:
        raise ValueError(f"cache is {cache.dtype}, not uint8: its strides count bytes")
    shape, strides = tuple(cache.shape), cache.stride()
    form = {2: shape[1:], 3: shape[2:], 4: shape[3:]}.get(cache.ndim)
    tokens = {3: shape[1:2], 4: tuple(n for n in shape[1:3] if n != 1) or (1,)}.get(cache.ndim, ())
    if form is None or (cache.ndim > 2 and (form != (TOKEN_BYTES,) or len(tokens) != 1)):
        raise ValueError(f"cache has shape {shape}: none of [pages, bytes], [pages, P, 584], "
                         "[pages, P, 1, 584], [pages, 1, P, 584]")  # fmt: skip
    size = tokens[0] if tokens else page_size
    if size is None or size < 1:
        raise ValueError(f"cache has shape {shape}: give page_size, the bytes do not tell it")
    if page_size is not None and size != page_size:
        raise ValueError(f"page_size={page_size}, but the cache has pages of {size} tokens")
    tight = [s for n, s in zip(shape[1:], strides[1:], strict=True) if n > 1]
    expected = [TOKEN_BYTES, 1] if tokens and size > 1 else [1]
    if tight != expected:
        raise ValueError(f"cache has strides {strides}: tokens of a page must lie side by side")
    width = shape[1] if cache.ndim == 2 else page_bytes(size)
    if width < page_bytes(size):
        raise ValueError(f"a page of {size} tokens takes {page_bytes(size)} bytes, not {width}")
    # pages that nothing follows have no pad to speak of
    return cache.as_strided((shape[0], width), (strides[0], 1)), size


def rows_and_scales(pages: torch.Tensor, page_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of `pages` [pages, >= page_bytes] uint8: rows [pages, P, 576], scales [pages, P, 8]."""
    footer = page_size * ROW_BYTES
    rows = pages[:, :footer].unflatten(1, (page_size, ROW_BYTES))
    scales = pages[:, footer : page_bytes(page_size)].unflatten(1, (page_size, SCALE_BYTES))
    return rows, scales


def pack(tokens: Tokens, padded: bool = True) -> torch.Tensor:
    """Return pages [pages, page_stride] uint8; pad bytes are zero.

    Raises ValueError where a field has another dtype or shape than `Tokens` gives.
    """
    return layout.pack(LAYOUT, tokens, UE8M0, padded=padded)


def unpack(pages: torch.Tensor, page_size: int) -> Tokens:
    """Return the tokens of `pages` [pages, >= page_bytes] uint8, as new tensors.

    Raises ValueError where the bytes are not uint8 or a page is too short.
    """
    return layout.unpack(LAYOUT, pages, page_size)
