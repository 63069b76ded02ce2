"""The usual partition: heads are rows of the products, 16 a warp, and a warp has all of a head.

Nothing crosses warps, as with operands swapped, but the least a warp may own is 16 heads, whose
sums are 16 * 512 / 32 = 256 registers of a thread. It has 255 for everything: here to show what
that costs. Seed 002; flashinfer-ai/flashinfer#4751.
"""

from dataclasses import dataclass

from triton.experimental.gluon import language as gl

from ..definition import Inputs, Output, fp8_prefill
from ._mma import FP8, KINDS, Config, Orientation, launch, quantised_query, tile, why_not

OVER_HEADS = gl.NVMMADistributedLayout([2, 0], [4, 1], [16, 8])  # rows are heads
ORIENTATION = Orientation(False, False, OVER_HEADS, OVER_HEADS, chunk=64, warps=4)


@dataclass(frozen=True)
class ConfigFp8:
    block_k: int = 32  # queries lie in shared memory, beside which 64 rows do not fit into 99 KiB
    passes: int = 0


@fp8_prefill.variant(
    config=Config(), step_from="dequant_dot", requires=why_not, tile=tile, interpretable=False,
    archs=("sm_90", "sm_100", "sm_103"), stack_bytes=4096, workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def heads_on_warps(x: Inputs, config: Config) -> Output:
    """Spread heads over warps: no warp needs another one, and no thread holds its sums."""
    return launch(x, ORIENTATION, KINDS[config.arithmetic], config.passes, config.block_k)


@fp8_prefill.variant(
    config=ConfigFp8(), step_from="heads_on_warps", requires=why_not, tile=tile,
    interpretable=False, widens=quantised_query, archs=("sm_90", "sm_120", "sm_121"),
    stack_bytes=4096, workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def heads_on_warps_fp8(x: Inputs, config: ConfigFp8) -> Output:
    """The same with codes multiplied as they are; queries are quantised."""
    return launch(x, ORIENTATION, FP8.value, config.passes, config.block_k)
