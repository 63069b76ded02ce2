"""What a run moves and computes, counted from its own inputs: rows, bytes, MMA lanes, pages.

A ledger is a dict of whole numbers; ratios and times are derived from it on reading. A count that
the variant does not determine is left out: lanes without a tile, a wave of unknown width.
`least_bytes` is in every ledger: what any variant reads from and writes to memory, each byte once.
"""

from collections.abc import Callable

import torch

from .. import selections
from ..layouts import LAYOUTS, footer_584
from ..op import Inputs, Tile
from ..ops.fp8_prefill import definition as fp8_prefill
from ..ops.page_split import definition as page_split
from ..ops.page_split_step import definition as page_split_step
from ..ops.paged_read import definition as paged_read
from ..ops.sparse_prefill import definition as sparse_prefill
from ..ops.union_plan import definition as union_plan
from ..selections.overlap import distinct_rows

Counts = dict[str, int]


def ledger(op_name: str, x: Inputs, tile: Tile | None = None, wave: int | None = None) -> Counts:
    """The counts of inputs `x` of an op, empty for an op that has none (reads the device).

    `tile`: of the variant; None counts a gather a token, and no executed lanes. `wave`: programs
    that run together, multiprocessors times programs a multiprocessor; programs are taken in order,
    as if all took equally long. Raises ValueError on a wave, or a number of the tile, below 1.
    """
    if wave is not None and wave < 1:
        raise ValueError(f"wave={wave} is below 1")
    if tile is not None and min(tile) < 1:
        raise ValueError(f"{tile} has a number below 1")
    return LEDGERS[op_name](x, tile, wave) if op_name in LEDGERS else {}


def lane_ratio(counts: Counts) -> float:
    """Executed tensor-core lanes over useful ones; nan where either is unknown or none is useful.

    Where tiles are whole: ceil(H/M) M/H for a program a token, ceil(GH/M) M/(GH) * U/topk for a
    union of U rows, M rows of a tile.
    """
    if "executed_lanes" not in counts or not counts["useful_lanes"]:
        return float("nan")
    return counts["executed_lanes"] / counts["useful_lanes"]


def _sparse_prefill(x: sparse_prefill.Inputs, tile: Tile | None, wave: int | None) -> Counts:
    """Cache rows: gathered, and distinct in a group, in a wave and in all. Products and lanes.

    A program of one token gathers its valid lanes, a row that is listed twice twice; a group of
    more gathers its union. One useful lane is one head times one valid (token, row) pair.
    """
    valid = sparse_prefill.valid_lanes(x)
    kept = torch.where(valid, x.indices, -1)
    rows, group = len(x.kv), tile.group if tile else 1
    lanes, unions = int(valid.sum()), distinct_rows(kept, rows, group)
    distinct = {"_group": int(unions.sum())}
    if wave is not None:
        distinct["_wave"] = int(distinct_rows(kept, rows, wave * group).sum())
    distinct[""] = int(distinct_rows(kept, rows, max(1, len(kept))).sum())
    gathered = lanes if group == 1 else distinct["_group"]
    gathered *= tile.programs if tile else 1
    row_bytes = x.kv.shape[1] * x.kv.element_size()
    counts = {"tokens": len(kept), "valid_lanes": lanes, "row_bytes": row_bytes}
    counts |= {"gathered_rows": gathered, "gathered_bytes": gathered * row_bytes}
    for within, count in distinct.items():
        counts |= {f"unique_rows{within}": count, f"unique_bytes{within}": count * row_bytes}
    counts |= {"least_bytes": sparse_prefill.cost(x).bytes}
    counts |= _products("useful", x.q.shape[1] * lanes)
    if tile:
        walked = _last_lanes(valid) if group == 1 else unions
        steps = int((-(-walked // tile.block_k)).sum())
        counts |= _products("executed", tile.programs * tile.rows * steps * tile.block_k)
        counts |= {"shared_read_bytes": _shared_read_bytes(gathered, x.kv.element_size())}
    return counts


def _fp8_prefill(x: fp8_prefill.Inputs, tile: Tile | None, wave: int | None) -> Counts:
    """Tokens of both caches: gathered, and distinct in a wave and in all. Products and lanes.

    A program takes one query token: tiles of the main cache, then of the second one.
    """
    layout, programs = LAYOUTS[x.layout], tile.programs if tile else 1
    counts = dict.fromkeys(("valid_lanes", "gathered_rows", "unique_rows"), 0)
    counts |= {"tokens": len(x.indices), "row_bytes": layout.token_bytes}
    if wave is not None:
        counts["unique_rows_wave"] = 0
    steps = 0
    for source in fp8_prefill.sources(x):
        valid = fp8_prefill.valid_lanes(source)
        kept = torch.where(valid, source.indices, -1)
        counts["valid_lanes"] += int(valid.sum())
        counts["gathered_rows"] += int(valid.sum()) * programs
        counts["unique_rows"] += int(distinct_rows(kept, source.rows, max(1, len(kept))).sum())
        if wave is not None:
            counts["unique_rows_wave"] += int(distinct_rows(kept, source.rows, wave).sum())
        if tile:
            steps += int((-(-_last_lanes(valid) // tile.block_k)).sum())
    for kind in [name for name in counts if name.endswith(("_rows", "_rows_wave"))]:
        counts[kind.replace("rows", "bytes")] = counts[kind] * layout.token_bytes
    lanes = {"useful": x.q.shape[1] * counts["valid_lanes"]}
    if tile:
        lanes["executed"] = programs * tile.rows * steps * tile.block_k
    for kind, count in lanes.items():
        counts |= {f"{kind}_lanes": count, f"{kind}_flops": 2 * count * (layout.d_qk + layout.d_v)}
    return counts | {"least_bytes": fp8_prefill.cost(x).bytes}


def _last_lanes(valid: torch.Tensor) -> torch.Tensor:
    """Lanes [tokens] up to the last valid one: a program of one token walks its list, holes too."""
    lane = torch.arange(1, valid.shape[1] + 1, dtype=torch.int32, device=valid.device)
    return (valid * lane).amax(1) if len(lane) else lane.new_zeros(len(valid))


def _products(kind: str, lanes: int) -> Counts:
    """Lanes and floating-point operations: a lane is a score of 576 and a value of 512 products."""
    flops = 2 * lanes * (sparse_prefill.D + sparse_prefill.DC)
    return {f"{kind}_lanes": lanes, f"{kind}_flops": flops}


def _shared_read_bytes(gathered: int, element_bytes: int) -> int:
    """What one warp group reads of the gathered rows in shared memory: 576 as K, 512 as V, once.

    The least: a second warp group that needs the same rows reads them again; writes, Q and P are
    not counted.
    """
    return gathered * (sparse_prefill.D + sparse_prefill.DC) * element_bytes


def _union_plan(x: union_plan.Inputs, tile: None, wave: int | None) -> Counts:
    """Read each index once, write row and owners of each union entry and a length a group once."""
    valid = selections.valid_lanes(x.indices, x.rows, x.topk_length)
    union = int(distinct_rows(torch.where(valid, x.indices, -1), x.rows, x.group).sum())
    return {
        "tokens": len(x.indices),
        "valid_lanes": int(valid.sum()),
        "union_rows": union,
        "least_bytes": 4 * x.indices.numel() + 8 * union + 4 * union_plan.groups(x),
    }


def _page_split(x: page_split.Inputs, tile: None, wave: int | None) -> Counts:
    """Pages by how many of their tokens the indices name; bytes read and written by copies.

    `indices=None` names every token. Pages of 64 tokens need no copy: no bytes.
    """
    pages, size = len(x.source), x.page_size
    touched = full = pages
    if x.indices is not None:
        inside = (x.indices >= 0) & (x.indices < pages * size)
        named = x.indices[inside].long().unique() // size  # ascending: tokens of a page follow
        tokens_of_page = named.unique_consecutive(return_counts=True)[1]
        touched, full = len(tokens_of_page), int((tokens_of_page == size).sum())
    moved = 0 if size == page_split.PAGE else 2 * footer_584.page_bytes(size)
    return {
        "pages": pages,
        "touched_pages": touched,
        "full_pages": full,
        "partial_pages": touched - full,
        "empty_pages": pages - touched,
        "touched_copy_bytes": touched * moved,
        "whole_copy_bytes": pages * moved,
        "least_bytes": page_split.cost(x).bytes,
    }


def _page_split_step(x: page_split_step.Inputs, tile: None, wave: int | None) -> Counts:
    """Rows that were written, and the pages around them that a copy of whole pages moves."""
    found = page_split_step.statistics(x)
    moved = 0 if x.page_size == page_split.PAGE else 2 * found["page_bytes"]
    return {
        "dirty_rows": found["dirty_rows"],
        "dirty_pages": found["dirty_pages"],
        "touched_pages": found["touched_pages"],
        "dirty_copy_bytes": found["dirty_pages"] * moved,
        "touched_copy_bytes": found["touched_pages"] * moved,
        "least_bytes": page_split_step.cost(x).bytes,
    }


def _paged_read(x: paged_read.Inputs, tile: None, wave: int | None) -> Counts:
    """Rows that are read, each once, and the pages around them that a split before it copies."""
    found = paged_read.statistics(x)
    return {
        "lanes": x.indices.numel(),
        "unique_rows": found["read_rows"],
        "touched_pages": found["touched_pages"],
        "least_bytes": paged_read.cost(x).bytes,
    }


LEDGERS: dict[str, Callable[..., Counts]] = {
    "sparse_prefill": _sparse_prefill,
    "fp8_prefill": _fp8_prefill,
    "union_plan": _union_plan,
    "page_split": _page_split,
    "page_split_step": _page_split_step,
    "paged_read": _paged_read,
}
