"""The row of GLM-5.3 without rotary values: 528 bytes at any distance.

Bytes [0, 512) are e4m3 values, [512, 528) four float32 scales of 128 values each. Older pools keep
rows 656 bytes apart, as if rotary values followed: those 128 bytes are padding and never read.
FlashInfer: GLM53_NOPE (3).
"""

from .layout import Layout
from .scales import ARBITRARY

LEGACY_STRIDE = 656  # bytes from row to row in older pools
LAYOUT = Layout(name="inline_528", nope=512, rope=0, group=128, d_v=512, formats=(ARBITRARY,))
