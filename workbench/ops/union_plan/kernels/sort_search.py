"""Sort each token's rows on their own, then find shared rows by lower bound: seed 004's way.

Nothing depends on the span of the cache: no byte map, no workspace that outlives the call, no host
read. The list of a group begins with all rows of its first token, so a row's place there is its
place in that token's sorted rows. Each later token looks its rows up in the first token's, then in
what the tokens between have added; what is found gains an owner bit, the rest is added. Searches
of neighbouring lanes probe neighbouring places, so they run in the first-level cache.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from ..definition import Inputs, Output, groups, union_plan

NARROW = 2**15 - 1  # caches of fewer rows sort as 16-bit keys: half the radix passes


@dataclass(frozen=True)
class Config:
    block: int = 1024  # rows that a program looks up at a time
    num_warps: int = 8


@triton.jit
def _clean_kernel(
    indices, topk_length, keys,
    ROWS, TOPK, INDICES_STRIDE,
    NOTHING: tl.constexpr, HAS_LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Invalid lanes become NOTHING, which sorts behind every row."""
    t = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(indices + t * INDICES_STRIDE + k, mask=k < TOPK, other=-1)
    valid = (rows >= 0) & (rows < ROWS)
    if HAS_LENGTH:
        valid = valid & (k < tl.load(topk_length + t))
    clean = tl.where(valid, rows, NOTHING).to(keys.dtype.element_ty)
    tl.store(keys + t * TOPK + k, clean, mask=k < TOPK)


@triton.jit
def _look_up(ordered, count, rows, wanted):
    """(place, found) of `rows` [BLOCK] in the ascending list ordered[0:count]."""
    place = tl.zeros_like(rows)
    step = 1
    while step * 2 <= count:
        step *= 2
    while step > 0:
        last = place + step - 1  # if it is smaller, everything up to it is
        inside = wanted & (last + 1 < count)
        here = tl.load(ordered + last, mask=inside, other=0).to(tl.int32)
        place = tl.where(inside & (here < rows), last + 1, place)
        step //= 2
    wanted = wanted & (place < count)
    here = tl.load(ordered + place, mask=wanted, other=0).to(tl.int32)
    return place, wanted & (here == rows)


@triton.jit
def _plan_kernel(
    keys, union_rows, owners, union_length, ends,
    T, TOPK,
    G: tl.constexpr, NOTHING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    g = tl.program_id(0).to(tl.int64)
    first = keys + g * G * TOPK
    union_rows += g * G * TOPK
    owners += g * G * TOPK
    ends += g * G  # ends[j]: entries of the list once token j is through
    lane = tl.arange(0, BLOCK)

    length = 0
    for j in range(0, tl.minimum(T - g * G, G)):
        for start in range(0, TOPK, BLOCK):
            k = start + lane
            rows = tl.load(first + j * TOPK + k, mask=k < TOPK, other=NOTHING).to(tl.int32)
            new = rows != NOTHING
            for i in range(0, j):
                begin = tl.load(ends + i - 1, mask=i > 0, other=0)
                count = tl.load(ends + i) - begin
                place, found = _look_up(union_rows + begin, count, rows, new)
                bits = tl.load(owners + begin + place, mask=found, other=0)
                tl.store(owners + begin + place, bits | (1 << j), mask=found)
                new = new & (found == 0)
            added = new.to(tl.int32)
            place = length + tl.cumsum(added, 0) - added
            tl.store(union_rows + place, rows, mask=new)
            tl.store(owners + place, tl.zeros_like(rows) + (1 << j), mask=new)
            length += tl.sum(added, 0)
        tl.store(ends + j, length)
        tl.debug_barrier()  # the next token's searches read what this one added
    tl.store(union_length + g, length)


def workspace_bytes(tokens: int, topk: int, rows: int, group: int) -> int:
    """Keys before and after the sort, the places that the sort gives with them, ends of lists."""
    key = 2 if rows < NARROW else 4
    return tokens * topk * (2 * key + 8) + -(-tokens // group) * group * 4


@union_plan.variant(
    config=Config(), step_from="eager",
    workspace_bytes=lambda w, config: workspace_bytes(w.tokens, w.topk, w.cache_rows, w.group),
)  # fmt: skip
def sort_search(x: Inputs, config: Config) -> Output:
    """Sort each token's rows alone, then look them up among the group's earlier rows."""
    tokens, topk = x.indices.shape
    count, device = groups(x), x.indices.device
    union_rows, owners = (
        torch.empty(count, x.group * topk, dtype=torch.int32, device=device) for _ in range(2)
    )
    union_length = torch.empty(count, dtype=torch.int32, device=device)
    if count == 0:
        return Output(union_rows, owners, union_length)
    ends = torch.empty(count, x.group, dtype=torch.int32, device=device)
    narrow = x.rows < NARROW
    keys = torch.empty(tokens, topk, dtype=torch.int16 if narrow else torch.int32, device=device)
    nothing = torch.iinfo(keys.dtype).max
    block = min(config.block, triton.next_power_of_2(topk))
    _clean_kernel[(tokens, triton.cdiv(topk, block))](
        x.indices, x.topk_length, keys,
        x.rows, topk, x.indices.stride(0),
        NOTHING=nothing, HAS_LENGTH=x.topk_length is not None, BLOCK=block,
    )  # fmt: skip
    _plan_kernel[(count,)](
        keys.sort(dim=1).values, union_rows, owners, union_length, ends,
        tokens, topk,
        G=x.group, NOTHING=nothing, BLOCK=block,
        num_warps=config.num_warps,
    )  # fmt: skip
    return Output(union_rows, owners, union_length)
