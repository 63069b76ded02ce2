"""Decode by the prefill kernel for 64 heads: a token is one program for each 64 of its heads."""

from ...fp8_prefill.kernels.heads_on_m_wgmma import Config, heads_on_m_wgmma, launch
from ..definition import Inputs, Output, sparse_decode
from ._prefill import handed, workspace_bytes


@sparse_decode.variant(
    config=Config(), step_from="split_k_wgmma",
    requires=lambda w, config: heads_on_m_wgmma.requires(w.prefill(), config),
    widens=heads_on_m_wgmma.widens, tile=heads_on_m_wgmma.tile,
    interpretable=False, archs=heads_on_m_wgmma.archs,
    workspace_bytes=workspace_bytes, stack_bytes=heads_on_m_wgmma.stack_bytes,
)  # fmt: skip
def prefill_heads_on_m(x: Inputs, config: Config) -> Output:
    """Hand the call to a prefill kernel: 64 heads of a token are one program, nothing is merged."""
    return handed(launch, x, config)
