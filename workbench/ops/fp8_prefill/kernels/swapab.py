"""Operands of both products swapped: cache rows are a product's rows, heads its columns, by warps.

A warp owns eight heads and meets every cache row of the tile: maxima, sums and weights stay inside
of it, and of the sums of values a thread holds 512 * 8 / 32 = 128. Heads as rows would be 16 of a
warp at least, and 256 sums. The price: each warp reads all codes from shared memory, as keys and as
values, and where they are not multiplied as they are, widens them. Seed 002;
flashinfer-ai/flashinfer#4751.
"""

from dataclasses import dataclass

from triton.experimental.gluon import language as gl

from ..definition import Inputs, Output, fp8_prefill
from ._mma import FP8, KINDS, Config, Orientation, launch, quantised_query, tile, why_not

OVER_HEADS = gl.NVMMADistributedLayout([2, 0], [1, 8], [16, 8])  # columns are heads
ORIENTATION = Orientation(True, False, OVER_HEADS, OVER_HEADS, chunk=64, warps=8)


@dataclass(frozen=True)
class ConfigFp8:
    block_k: int = 64
    passes: int = 0


@fp8_prefill.variant(
    config=Config(), step_from="mg", requires=why_not, tile=tile, interpretable=False,
    archs=("sm_90", "sm_100", "sm_103"), workspace_bytes=lambda w, config: 0,
    stack_bytes=16,  # of rows without rotary values; none of DeepSeek-V3.2's
)  # fmt: skip
def swapab(x: Inputs, config: Config) -> Output:
    """Swap the operands: a warp owns eight heads, and its softmax and weights never leave it."""
    return launch(x, ORIENTATION, KINDS[config.arithmetic], config.passes, config.block_k)


@fp8_prefill.variant(
    config=ConfigFp8(), step_from="swapab", requires=why_not, tile=tile, interpretable=False,
    widens=quantised_query, archs=("sm_90", "sm_120", "sm_121"), stack_bytes=256,
    workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def swapab_fp8(x: Inputs, config: ConfigFp8) -> Output:
    """The same with codes multiplied as they are; queries are quantised and stay in registers.

    sm_90 has no such product: its assembler writes it as f16 ones, slowly, and that one spills.
    """
    return launch(x, ORIENTATION, FP8.value, config.passes, config.block_k)
