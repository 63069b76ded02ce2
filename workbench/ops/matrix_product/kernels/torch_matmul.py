"""The product as the vendor's library computes it."""

from dataclasses import dataclass

import torch

from ..definition import Inputs, Output, Workload, matrix_product

TILE = 16  # rows and columns that the library's fp8 product counts in


@dataclass(frozen=True)
class Config:
    fast_accum: bool = True  # fp8: sums stay in the tensor cores' own, shorter registers


def whole_tiles(w: Workload, config: Config) -> str | None:
    if w.dtype == "fp8" and (w.n % TILE or not w.n):
        return f"an fp8 product takes sizes that are multiples of {TILE}, not {w.n}"
    return None


@matrix_product.variant(config=Config(), requires=whole_tiles, independent=False)
def torch_matmul(x: Inputs, config: Config) -> Output:
    """Call the library: matmul for bf16, a scaled product with unit scales for fp8."""
    if x.a.dtype == torch.bfloat16:
        return Output(x.a @ x.b.T)
    c = torch._scaled_mm(
        x.a, x.b.T, x.scale, x.scale,
        out_dtype=torch.bfloat16, use_fast_accum=config.fast_accum,
    )  # fmt: skip
    return Output(c)
