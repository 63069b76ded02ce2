"""Decode by the prefill kernel for few heads: a token is one program."""

from ...fp8_prefill.kernels.swapped_wgmma import Config, launch, swapped_wgmma
from ..definition import Inputs, Output, sparse_decode
from ._prefill import handed, workspace_bytes


@sparse_decode.variant(
    config=Config(), step_from="split_k_swapped_wgmma",
    requires=lambda w, config: swapped_wgmma.requires(w.prefill(), config),
    widens=swapped_wgmma.widens, tile=swapped_wgmma.tile,
    interpretable=False, archs=swapped_wgmma.archs,
    workspace_bytes=workspace_bytes, stack_bytes=swapped_wgmma.stack_bytes,
)  # fmt: skip
def prefill_swapped(x: Inputs, config: Config) -> Output:
    """Hand the call to a prefill kernel: 16 heads of a token are one program, nothing is merged."""
    return handed(launch, x, config)
