"""The page of DOTS3's sliding-window layers: rows of 1,152 bytes, then a footer of their scales.

A row is 1,024 e4m3 latent values, then 64 bf16 rotary ones; 8 scale bytes a token, UE8M0 of 128
values each, without a pad byte. A value is the latent part. FlashInfer: DOTS3_SWA (4).
"""

from .layout import Layout
from .scales import UE8M0

LAYOUT = Layout(
    name="footer_1160", nope=1024, rope=64, group=128, d_v=1024, formats=(UE8M0,), footer_bytes=8
)
