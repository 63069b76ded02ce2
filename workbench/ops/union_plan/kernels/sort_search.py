"""Sort each token's row on its own, then find shared rows by lower bound; seed 004's way.

Nothing depends on the span of the cache: no byte map, no workspace that outlives the call, no host
read. A token's row is emitted where no earlier token of the group holds it; then every emitted row
is looked up in the later tokens for their bits. Sorted neighbours probe neighbouring places, so
the searches run in the first-level cache.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import Inputs, Output, groups, union_plan

NOTHING = tl.constexpr(2147483647)  # sorts after every row


@dataclass(frozen=True)
class Config:
    block: int = 1024  # rows that a program searches at a time
    num_warps: int = 8


@triton.jit
def _clean_kernel(
    indices, topk_length, cleaned,
    ROWS, TOPK, INDICES_STRIDE,
    HAS_LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Invalid lanes become NOTHING, so that sorting puts them last."""
    t = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(indices + t * INDICES_STRIDE + k, mask=k < TOPK, other=-1)
    valid = (rows >= 0) & (rows < ROWS)
    if HAS_LENGTH:
        valid = valid & (k < tl.load(topk_length + t))
    tl.store(cleaned + t * TOPK + k, tl.where(valid, rows, NOTHING), mask=k < TOPK)


@triton.jit
def _holds(ordered, rows, wanted, TOPK, STEPS: tl.constexpr):
    """Whether each of `rows` stands in ordered[0:TOPK], by lower bound."""
    low = tl.zeros_like(rows)
    high = tl.zeros_like(rows) + TOPK
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        here = tl.load(ordered + middle, mask=wanted & (low < high), other=NOTHING)
        right = (low < high) & (here < rows)
        low = tl.where(right, middle + 1, low)
        high = tl.where(right, high, middle)
    inside = wanted & (low < TOPK)
    return inside & (tl.load(ordered + low, mask=inside, other=NOTHING) == rows)


@triton.jit
def _plan_kernel(
    ordered, union_rows, owners, union_length,
    T, TOPK,
    G: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    g = tl.program_id(0).to(tl.int64)
    base = ordered + g * G * TOPK
    target = g * G * TOPK
    lane = tl.arange(0, BLOCK)
    length = 0
    for j in tl.static_range(G):
        if g * G + j < T:
            for start in range(0, TOPK, BLOCK):
                k = start + lane
                rows = tl.load(base + j * TOPK + k, mask=k < TOPK, other=NOTHING)
                before = tl.load(base + j * TOPK + k - 1, mask=(k > 0) & (k < TOPK), other=-1)
                new = (rows != NOTHING) & (rows != before)
                for i in tl.static_range(j):
                    new = new & (_holds(base + i * TOPK, rows, new, TOPK, STEPS) == 0)
                bits = tl.zeros_like(rows) + (1 << j)
                for i in tl.static_range(j + 1, G):
                    if g * G + i < T:
                        shared = _holds(base + i * TOPK, rows, new, TOPK, STEPS)
                        bits = tl.where(shared, bits | (1 << i), bits)
                count = new.to(tl.int32)
                place = length + tl.cumsum(count, 0) - count
                tl.store(union_rows + target + place, rows, mask=new)
                tl.store(owners + target + place, bits, mask=new)
                length += tl.sum(count, 0)
    tl.store(union_length + g, length)


@union_plan.variant(config=Config(), step_from="eager")
def sort_search(x: Inputs, config: Config) -> Output:
    """Sort each token's row alone, then membership by lower bound in the group's other tokens."""
    tokens, topk = x.indices.shape
    count, device = groups(x), x.indices.device
    union_rows, owners = (
        torch.empty(count, x.group * topk, dtype=torch.int32, device=device) for _ in range(2)
    )
    union_length = torch.empty(count, dtype=torch.int32, device=device)
    if count == 0:
        return Output(union_rows, owners, union_length)
    cleaned = torch.empty(tokens, topk, dtype=torch.int32, device=device)
    block = min(config.block, triton.next_power_of_2(topk))
    _clean_kernel[(tokens, triton.cdiv(topk, block))](
        x.indices, x.topk_length, cleaned,
        x.rows, topk, x.indices.stride(0),
        HAS_LENGTH=x.topk_length is not None, BLOCK=block,
    )  # fmt: skip
    ordered = cleaned.sort(dim=1).values
    _plan_kernel[(count,)](
        ordered, union_rows, owners, union_length,
        tokens, topk,
        G=x.group, STEPS=topk.bit_length(), BLOCK=block,
        num_warps=config.num_warps,
    )  # fmt: skip
    return Output(union_rows, owners, union_length)
