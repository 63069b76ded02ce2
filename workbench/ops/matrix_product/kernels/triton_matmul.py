"""One tile of C a program; programs that share rows of A or B run side by side, for the L2."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import Inputs, Output, matrix_product


@dataclass(frozen=True)
class Config:
    block_m: int = 128  # rows of a tile of C
    block_n: int = 256  # columns of a tile of C
    block_k: int = 64  # of the inner dimension at a time
    group: int = 8  # rows of tiles that are walked through column by column
    num_stages: int = 3
    num_warps: int = 8


@triton.jit
def _product_kernel(
    a, b, c,
    N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    down, across = tl.cdiv(N, BLOCK_M), tl.cdiv(N, BLOCK_N)
    band = tl.program_id(0) // (GROUP * across)
    height = tl.minimum(down - band * GROUP, GROUP)
    inside = tl.program_id(0) % (GROUP * across)
    m = (band * GROUP + inside % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = inside // height * BLOCK_N + tl.arange(0, BLOCK_N)
    # rows past the end read others again: their products are not stored, and no load needs a mask
    a_rows = a + (m % N).to(tl.int64)[:, None] * N  # [BLOCK_M, 1]
    b_rows = b + (n % N).to(tl.int64)[None, :] * N  # [1, BLOCK_N]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, N, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        left = tl.load(a_rows + k[None, :], mask=(k < N)[None, :], other=0.0)
        right = tl.load(b_rows + k[:, None], mask=(k < N)[:, None], other=0.0)
        total = tl.dot(left, right, total)
    tile = c + m.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(tile, total.to(tl.bfloat16), mask=(m < N)[:, None] & (n < N)[None, :])


@matrix_product.variant(config=Config(), step_from="torch_matmul")
def triton_matmul(x: Inputs, config: Config) -> Output:
    """Compute a tile of C a program, with loads several steps ahead."""
    n = len(x.a)
    c = torch.empty((n, n), dtype=torch.bfloat16, device=x.a.device)
    if n:
        _product_kernel[(triton.cdiv(n, config.block_m) * triton.cdiv(n, config.block_n),)](
            x.a, x.b, c,
            n,
            BLOCK_M=config.block_m, BLOCK_N=config.block_n, BLOCK_K=config.block_k,
            GROUP=config.group,
            num_stages=config.num_stages, num_warps=config.num_warps,
        )  # fmt: skip
    return Output(c)
