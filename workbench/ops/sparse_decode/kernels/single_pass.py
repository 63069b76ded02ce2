"""One program a token and block of heads: no partial results, no merge.

Rows are fetched as bytes, 656 or 584 instead of 1,152, and become bf16 on the way to the tensor
cores. A step of few requests leaves most of a GPU idle: T = 1 at 16 heads is one program.
"""

from dataclasses import dataclass

from ..definition import Inputs, Output, sparse_decode
from ._launch import refused, tile
from ._whole import whole


@dataclass(frozen=True)
class Config:
    block_h: int = 16  # heads a program takes
    block_k: int = 64  # rows of a tile: a lane is one, or four where scales are arbitrary
    num_warps: int = 8
    num_stages: int = 1  # the loop is its own pipeline


@sparse_decode.variant(
    config=Config(), step_from="eager", requires=refused, tile=tile,
    workspace_bytes=lambda w, config: 0, stack_bytes=32,
)  # fmt: skip
def single_pass(x: Inputs, config: Config) -> Output:
    """Fuse gather, dequantisation, scores, softmax and values in one program a token."""
    return whole(x, config)
