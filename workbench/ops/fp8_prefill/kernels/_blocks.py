"""Steps shared by at least two variants: where a token's bytes stand, and what they say."""

import triton
import triton.language as tl


@triton.jit
def locate(
    token, page_stride, row_stride,
    PAGE_SIZE: tl.constexpr, NOPE: tl.constexpr, FOOTER_BYTES: tl.constexpr,
):  # fmt: skip
    """Bytes from the cache's first to (the row, the scales) of each int32 `token`, as int64."""
    place = (token % PAGE_SIZE).to(tl.int64)
    page = (token // PAGE_SIZE).to(tl.int64) * page_stride
    row = page + place * row_stride
    if FOOTER_BYTES:
        scales = page + PAGE_SIZE * row_stride.to(tl.int64) + place * FOOTER_BYTES
    else:
        scales = row + NOPE
    return row, scales


@triton.jit
def load_scales(at, group, read, FOOTER_BYTES: tl.constexpr):
    """Scales of `group` as float32, at the bytes `at`; zero where not `read`.

    Byte b of UE8M0 is 2**(b - 127), byte 255 NaN: exactly, also the subnormal of byte 0.
    """
    if FOOTER_BYTES:
        byte = tl.load(at + group, mask=read, other=0).to(tl.int32)
        bits = tl.where(byte == 0, 1 << 22, byte << 23)
        bits = tl.where(byte == 255, 0x7FC00000, bits)
        scales = tl.where(read, bits.to(tl.float32, bitcast=True), 0.0)
    else:
        scales = tl.load(at.to(tl.pointer_type(tl.float32)) + group, mask=read, other=0.0)
    return scales
