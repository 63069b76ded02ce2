"""Steps shared by at least two variants. No kernel of its own lives here."""

import triton
import triton.language as tl


@triton.jit
def copy_sub_page(
    source, destination, page, sub,
    SOURCE_STRIDE, DESTINATION_STRIDE, RATIO,
    DATA: tl.constexpr, SCALES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy sub-page `sub` of `page`. All sizes and strides count 8-byte words."""
    origin = source + page.to(tl.int64) * SOURCE_STRIDE
    target = destination + (page.to(tl.int64) * RATIO + sub) * DESTINATION_STRIDE
    lane = tl.arange(0, BLOCK)
    for start in tl.static_range(0, DATA, BLOCK):
        inside = start + lane < DATA
        words = tl.load(origin + sub * DATA + start + lane, mask=inside, other=0)
        tl.store(target + start + lane, words, mask=inside)
    footer = tl.arange(0, SCALES)
    words = tl.load(origin + RATIO * DATA + sub * SCALES + footer)
    tl.store(target + DATA + footer, words)
