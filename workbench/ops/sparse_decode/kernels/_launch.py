"""What a launch of each variant is given, in the order of its kernel; and how a call is split."""

import math
from typing import NamedTuple

import torch
import triton

from ....layouts import ARBITRARY, LAYOUTS
from ....op import Tile
from ...fp8_prefill.definition import sources
from ..definition import Inputs
from ..workload import MOST_HEADS

CHUNK = 64  # lanes; a split is a number of whole chunks
LOG2_E = 1.4426950408889634
SOME_MULTIPROCESSORS = 132  # taken where there is no GPU to ask


class Scratch(NamedTuple):
    """What the parts of a call leave for the merge."""

    partial: torch.Tensor  # [T, H, splits, d_v] float32
    lse: torch.Tensor  # [T, H, splits] float32


def tensors(x: Inputs) -> tuple:
    return (x.q, x.cache, x.indices, x.topk_length, x.extra_cache, x.extra_indices,
            x.extra_topk_length)  # fmt: skip


def numbers(x: Inputs) -> tuple:
    """The softmax scale and the sizes; those of a cache that is missing are the other one's."""
    main, extra = sources(x)[0], sources(x)[-1]
    return (
        x.sm_scale * LOG2_E,
        x.q.shape[1], main.rows, main.indices.shape[1], main.indices.stride(0),
        main.cache.stride(0), x.row_stride,
        extra.rows, extra.indices.shape[1], extra.indices.stride(0), extra.cache.stride(0),
    )  # fmt: skip


def passes_of(scale_format: str) -> int:
    """bf16 rows that hold the digits of one row: arbitrary scales leave more than one has."""
    return 2 if scale_format == ARBITRARY else 1


def rows_of(scale_format: str) -> int:
    """Rows of a tile that a lane takes: with arbitrary scales three, and a tile is a power of two.
    """
    return 4 if scale_format == ARBITRARY else 1


def constants(x: Inputs, config) -> dict:
    layout, passes = LAYOUTS[x.layout], passes_of(x.scale_format)
    return {
        "CHUNK": CHUNK, "PAGE_SIZE": x.page_size, "EXTRA_PAGE_SIZE": x.extra_page_size,
        "NOPE": layout.nope, "ROPE": layout.rope, "GROUP": layout.group,
        "FOOTER_BYTES": layout.footer_bytes, "ROPE_IN_V": layout.d_v > layout.nope,
        "PASSES": passes, "D_V": layout.d_v,
        "BLOCK_G": triton.next_power_of_2(layout.groups), "BLOCK_H": config.block_h,
        "BLOCK_K": config.block_k // rows_of(x.scale_format),
        "num_warps": config.num_warps, "num_stages": config.num_stages,
    }  # fmt: skip


def chunks(topk: int, extra_topk: int) -> int:
    """Chunks of a token: those of the second cache begin anew."""
    return triton.cdiv(topk, CHUNK) + triton.cdiv(extra_topk, CHUNK)


def chunks_of(x: Inputs) -> int:
    return chunks(x.indices.shape[1], 0 if x.extra_indices is None else x.extra_indices.shape[1])


def multiprocessors() -> int:
    """Of the current GPU."""
    if not torch.cuda.is_available():
        return SOME_MULTIPROCESSORS
    return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count


def share_of(count: int, pieces: int, asked: int, at_once: int = 1) -> int:
    """Chunks of `count` that a program takes: those asked for, or as many as leave no part idle.

    The rule gives each multiprocessor one program at most: a second one only adds to what is
    merged. `pieces` are programs without splits; a program takes `at_once` chunks or a multiple. A
    measured number, or a model's, goes into `chunks_per_block`.
    """
    if asked:
        return min(asked, count)
    steps = triton.cdiv(count, at_once)
    return at_once * triton.cdiv(steps, max(1, min(steps, multiprocessors() // max(1, pieces))))


def splits_of(x: Inputs, config) -> tuple[int, int]:
    """(chunks that a program takes, programs of a token's heads)."""
    tokens, heads, _ = x.q.shape
    count, pieces = chunks_of(x), tokens * triton.cdiv(heads, config.block_h)
    share = share_of(count, pieces, config.chunks_per_block)
    return share, triton.cdiv(count, share)


def empty_out(x: Inputs) -> torch.Tensor:
    """Memory for out [T, H, d_v]: the caller's where it keeps some."""
    if x.memory is not None:
        return x.memory.out
    tokens, heads, _ = x.q.shape
    return torch.empty(tokens, heads, LAYOUTS[x.layout].d_v, dtype=x.q.dtype, device=x.q.device)


def beside(x: Inputs, count: int) -> torch.Tensor:
    """Memory [count] float32: the caller's where it keeps some. Raises ValueError where that ends.
    """
    if x.memory is None:
        return torch.empty(count, dtype=torch.float32, device=x.q.device)
    if len(x.memory.parts) < count:
        raise ValueError(f"a call takes {count} numbers, the memory has {len(x.memory.parts)}")
    return x.memory.parts[:count]


def scratch(x: Inputs, splits: int) -> Scratch:
    """Memory for the parts, as `beside` has it."""
    tokens, heads, _ = x.q.shape
    shape, d_v = (tokens, heads, splits), LAYOUTS[x.layout].d_v
    lse, end = math.prod(shape) * d_v, math.prod(shape) * (d_v + 1)
    flat = beside(x, end)
    return Scratch(flat[:lse].view(*shape, d_v), flat[lse:].view(shape))


def scratch_bytes(w, config) -> int:
    """Bytes of `scratch` for a workload."""
    return parts_bytes(w, triton.cdiv(w.heads, config.block_h), config.chunks_per_block)


def parts_bytes(w, blocks: int, asked: int, at_once: int = 1) -> int:
    """Bytes of the parts of workload `w` in `blocks` of heads; one split needs none."""
    count = chunks(w.topk, w.extra_topk)
    splits = triton.cdiv(count, share_of(count, w.tokens * blocks, asked, at_once))
    return 4 * w.tokens * w.heads * splits * (LAYOUTS[w.layout].d_v + 1) if splits > 1 else 0


def refused(w, config) -> str | None:
    """Why a config is none, or None."""
    if config.block_h < 16 or config.block_h > MOST_HEADS or config.block_h & config.block_h - 1:
        return f"block_h={config.block_h} is none of 16, 32, 64, {MOST_HEADS}"
    least = 16 * rows_of(w.scale_format)
    if config.block_k < least or CHUNK % config.block_k:
        return (f"block_k={config.block_k} does not divide chunks of {CHUNK} lanes, or is below "
                f"{least} rows")  # fmt: skip
    if getattr(config, "chunks_per_block", 0) < 0:
        return f"chunks_per_block={config.chunks_per_block} is below 0"
    return None


def tile(w, config) -> Tile:
    return Tile(triton.cdiv(w.heads, config.block_h) * config.block_h, 1, config.block_k)
