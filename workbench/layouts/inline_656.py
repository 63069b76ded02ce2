"""The row of DeepSeek-V3.2 and GLM-5: 656 bytes that need nothing beside them.

Bytes [0, 512) are e4m3 latent values, [512, 528) four float32 scales of 128 values each, [528, 656)
64 bf16 rotary values. A value is the latent part. DeepSeek's scales are powers of two, GLM's are
not; a page is nothing but rows, so that tokens of pages without padding lie side by side.
FlashInfer: DSV3_2 (0), GLM_NSA (2); FlashMLA: V32_FP8Sparse.
"""

from .layout import Layout
from .scales import ARBITRARY, POW2

LAYOUT = Layout(name="inline_656", nope=512, rope=64, group=128, d_v=512, formats=(POW2, ARBITRARY))
