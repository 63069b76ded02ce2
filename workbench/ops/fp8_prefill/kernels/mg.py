"""Cache rows over warps, heads as rows of the products: a tile's codes are read by one warp each.

A warp has the scores of its own cache rows for all heads. So maxima and sums go across warps, and
the weights of all warps through shared memory to each, whose own are columns of the values. A
thread holds 64 heads * 64 columns / 32 = 128 sums. As FlashInfer's MG kernels stand, but for
the tile of 64 heads. Seed 002; flashinfer-ai/flashinfer#4802.
"""

from dataclasses import dataclass

from triton.experimental.gluon import language as gl

from ....layouts import LAYOUTS
from ..definition import Inputs, Output, fp8_prefill
from ._mma import FP8, KINDS, Config, Orientation, launch, quantised_query, tile, why_not


@dataclass(frozen=True)
class ConfigFp8:
    block_k: int = 32  # queries lie in shared memory, beside which 64 rows do not fit into 99 KiB
    passes: int = 0


def _orientation(x: Inputs, block_k: int) -> Orientation:
    """Eight warps, each with at least eight rows and sixteen columns of a chunk: where these are
    too few for eight, two share them and have half of the heads each."""
    chunk = LAYOUTS[x.layout].group
    columns = chunk // 16
    scores, sums = (gl.NVMMADistributedLayout([2, 0], [8 // across, across], [16, 8])
                    for across in (min(block_k // 8, columns), columns))  # fmt: skip
    return Orientation(False, True, scores, sums, chunk, warps=8)


@fp8_prefill.variant(
    config=Config(), step_from="dequant_dot", requires=why_not, tile=tile, interpretable=False,
    archs=("sm_90", "sm_100", "sm_103"), workspace_bytes=lambda w, config: 0,
    stack_bytes=160,  # of rows without rotary values; none of DeepSeek-V3.2's
)  # fmt: skip
def mg(x: Inputs, config: Config) -> Output:
    """Spread cache rows over warps: each code is read once, softmax and weights cross warps."""
    kind = KINDS[config.arithmetic]
    return launch(x, _orientation(x, config.block_k), kind, config.passes, config.block_k)


@fp8_prefill.variant(
    config=ConfigFp8(), step_from="mg", requires=why_not, tile=tile, interpretable=False,
    widens=quantised_query, archs=("sm_90", "sm_120", "sm_121"), stack_bytes=256,
    workspace_bytes=lambda w, config: 0,
)  # fmt: skip
def mg_fp8(x: Inputs, config: ConfigFp8) -> Output:
    """The same with codes multiplied as they are; queries are quantised.

    sm_90 has no such product: its assembler writes it as f16 ones, slowly.
    """
    return launch(x, _orientation(x, config.block_k), FP8.value, config.passes, config.block_k)
