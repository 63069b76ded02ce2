"""KV-cache byte layouts, one file a layout, found by name in LAYOUTS."""

from . import footer_584 as footer_584
from . import footer_1160, inline_528, inline_656
from .layout import Layout as Layout
from .layout import Places as Places
from .layout import Tokens as Tokens
from .layout import as_tokens as as_tokens
from .layout import dequantise as dequantise
from .layout import pack as pack
from .layout import page_bytes as page_bytes
from .layout import page_stride as page_stride
from .layout import places as places
from .layout import quantise as quantise
from .layout import unpack as unpack
from .scales import ARBITRARY as ARBITRARY
from .scales import FORMATS as FORMATS

LAYOUTS: dict[str, Layout] = {
    file.LAYOUT.name: file.LAYOUT for file in (inline_656, footer_584, inline_528, footer_1160)
}
