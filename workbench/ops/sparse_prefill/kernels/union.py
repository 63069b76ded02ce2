"""One gather for a group of neighbouring tokens, whose heads together fill the tensor-core tile.

Two or four tokens that select nearly the same rows cost one pass over their union (1.1 to 1.2 times
one token's rows in captures of seed 004) in place of two or four. Owner bits restore each token's
own softmax support, so the result is the per-token one up to the order of summation.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from .... import ranges
from ....op import Tile
from ...union_plan.definition import Inputs as Selections
from ...union_plan.definition import output_bytes
from ...union_plan.kernels.sort_search import sort_search as plan
from ...union_plan.kernels.sort_search import workspace_bytes as of_plan
from ..definition import DC, DR, D, Inputs, Output, sparse_prefill
from ._blocks import LOG2_E, MASKED, attend, finish, gather, load_lanes, load_query, store_result

GROUPS = (2, 4)
MIN_ROWS, MAX_ROWS = 16, 32  # of the tile: fewer waste the tensor core, more spill the accumulator


@dataclass(frozen=True)
class Config:
    group: int = 4  # tokens that share a gather
    block_k: int = 64  # rows a step
    num_warps: int = 4
    num_stages: int = 2


@triton.jit
def _union_kernel(
    q, kv, union_rows, owners, union_length, attn_sink, out, lse,
    scale_log2,
    T, H, WIDTH,
    HAS_SINK: tl.constexpr, KV_STRIDE: tl.constexpr,
    D: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr,
    QUERIES: tl.constexpr, G: tl.constexpr, WHOLE: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    g = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, QUERIES)  # query row r is head r % H of token g * G + r // H
    member = r // H
    th = g * G * H + r
    inside = g * G + member < T
    q_c, q_r = load_query(q, th, inside, D, DC, DR)
    end = tl.load(union_length + g)
    acc = tl.zeros([QUERIES, DC], tl.float32)
    m = tl.full([QUERIES], MASKED, tl.float32)
    l = tl.zeros([QUERIES], tl.float32)

    union_rows += g * WIDTH
    owners += g * WIDTH
    lane = tl.arange(0, BLOCK_K)
    for start in range(0, end, BLOCK_K):
        k = start + lane
        rows = load_lanes(union_rows, k, end, 0, WHOLE)
        bits = tl.where(k < end, load_lanes(owners, k, end, 0, WHOLE), 0)
        keys_c, keys_r = gather(kv, rows, k < end, KV_STRIDE, DC, DR)
        owned = ((bits[None, :] >> member[:, None]) & 1) != 0  # [QUERIES, BLOCK_K]
        acc, m, l = attend(acc, m, l, q_c, q_r, keys_c, keys_r, owned, scale_log2)

    sink = tl.full([QUERIES], -float("inf"), tl.float32)
    if HAS_SINK:
        sink = tl.load(attn_sink + r % H) * LOG2_E
    row_out, row_lse = finish(acc, m, l, sink)
    store_result(out, lse, th, inside, row_out, row_lse, DC)


def _requires(w, config: Config) -> str | None:
    queries = config.group * w.heads
    if config.group not in GROUPS:
        return f"group={config.group} is none of {', '.join(map(str, GROUPS))}"
    if queries & (queries - 1) or not MIN_ROWS <= queries <= MAX_ROWS:
        return (f"group * heads = {config.group} * {w.heads} = {queries} is no power of two "
                f"in [{MIN_ROWS}, {MAX_ROWS}]")  # fmt: skip
    return None


def _workspace_bytes(w, config: Config) -> int:
    lists = output_bytes(w.tokens, w.topk, config.group)
    return lists + of_plan(w.tokens, w.topk, w.cache_rows, config.group)


def _tile(w, config: Config) -> Tile:
    return Tile(config.group * w.heads, config.group, config.block_k)


# The state of 32 query rows takes all 255 registers of 4 warps and a few words of stack. 8 warps
# need no stack and take a quarter longer on an H200 (traces/tuning/nvidia_h200/union_tiles.jsonl).
@sparse_prefill.variant(
    config=Config(), step_from="per_token", requires=_requires, tile=_tile, independent=False,
    stack_bytes=120, workspace_bytes=_workspace_bytes,
)  # fmt: skip
def union(x: Inputs, config: Config) -> Output:
    """Gather the union of a group's rows once; owner bits keep each token's own softmax support."""
    tokens, heads, _ = x.q.shape
    out = torch.empty(tokens, heads, DC, dtype=x.q.dtype, device=x.q.device)
    lse = torch.empty(tokens, heads, dtype=torch.float32, device=x.q.device)
    if not tokens:
        return Output(out, lse)
    with ranges.span("plan"):
        union_rows, owners, length = plan(
            Selections(x.indices, x.topk_length, len(x.kv), config.group)
        )
    with ranges.span("kernel"):
        _union_kernel[(len(length),)](
            x.q, x.kv, union_rows, owners, length, x.attn_sink, out, lse,
            x.sm_scale * LOG2_E.value,
            tokens, heads, union_rows.stride(0),
            HAS_SINK=x.attn_sink is not None, KV_STRIDE=x.kv.stride(0),
            D=D, DC=DC, DR=DR,
            QUERIES=config.group * heads, G=config.group,
            WHOLE=union_rows.stride(0) % config.block_k == 0, BLOCK_K=config.block_k,
            num_warps=config.num_warps, num_stages=config.num_stages,
        )  # fmt: skip
    return Output(out, lse)
