"""Page split of a decode step: the destination mirrors the pool but for the rows just written.

A decode step writes one token row a request, 576 data and 8 scale bytes; to copy the one or two
whole pages that its window touches once more moves 256 times as much. So a server that keeps the
split pages needs only the rows that were written since its last step: `dirty`, token numbers as in
`page_split`, invalid lanes skipped, repeats legal.

What a variant may assume: the destination equals the split of the pool in every row that `dirty`
does not name, and each dirty row stands in a page that `indices`, the tokens that attention reads,
touch. What it must leave: the source's bytes in every dirty row; anywhere else the bytes that were
there or the source's own for that place, which are the same under the assumption, so that whole
pages are right too; pads as they were. That is checked from any state of the destination.
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch

from ...layouts import footer_584
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes
from ..page_split import definition as split
from ..page_split.definition import PAGE, Output

ROW, SCALE = footer_584.ROW_BYTES, footer_584.SCALE_BYTES
FRESH = 1 << 40  # added to the seed for the rows that are written: not the noise of the pool


@dataclass(frozen=True, kw_only=True)
class Workload:
    pages: int = 1024  # of the pool
    page_size: int = 256  # tokens of a pool page, a multiple of 64
    batch: int = 8  # requests of the decode step
    window: int = 128  # tokens that each request's sliding window reads
    written: int = 1  # tokens of each request since the last step: the last ones of its window
    invalid: float = 0.0  # share of index lanes that name no token; dirty lanes are among them
    wide: bool = False  # indices and dirty int64 in place of int32
    padded: bool = True  # pool pages end in a pad, as servers lay them out
    seed: int = 0

    def __post_init__(self):
        if not 0 <= self.written <= self.read.window:
            raise ValueError(f"written={self.written} is outside [0, window={self.window}]")

    @property
    def read(self) -> split.Workload:
        """The split that copies what the window touches. Raises ValueError as it does."""
        shared = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "written"}
        return split.Workload(**shared)


class Inputs(NamedTuple):
    source: torch.Tensor  # [pages, >= page_bytes(page_size)] uint8, any row stride
    page_size: int  # tokens of a source page
    indices: torch.Tensor  # int32 or int64, any shape: tokens that attention reads in this step
    dirty: torch.Tensor  # int32 or int64, any shape: tokens written since the last step
    destination: torch.Tensor  # [pages * page_size / 64, >= 37,376] uint8, persistent, written
    mask: torch.Tensor  # scratch of `page_split`, as it describes it, written
    stamps: torch.Tensor  # likewise


def pages_of(x: Inputs, tokens: torch.Tensor) -> split.Inputs:
    """The question of `page_split` that copies every page in which one of `tokens` stands."""
    return split.Inputs(x.source, x.page_size, tokens, x.destination, x.mask, x.stamps)


def dirty_tokens(x: Inputs) -> torch.Tensor:
    """The valid tokens of `dirty`, ascending, without repeats (reads the device)."""
    valid = (x.dirty >= 0) & (x.dirty < x.source.shape[0] * x.page_size)
    return x.dirty[valid].long().unique()


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw a pool, split it as a step before, then write fresh rows to the pool."""
    before = split.make_inputs(w.read, device)
    if w.page_size > PAGE:
        mirror = split.reference(split.all_pages(before)).split
        before = before._replace(destination=mirror)
    dirty = before.indices[:, w.window - w.written :].clone()
    x = Inputs(before.source, w.page_size, before.indices, dirty, *before[3:])
    tokens = dirty_tokens(x)
    fresh = random_bytes((len(tokens), footer_584.TOKEN_BYTES), w.seed + FRESH, device)
    rows, scales = footer_584.rows_and_scales(x.source, w.page_size)
    place = tokens // w.page_size, tokens % w.page_size
    rows[place], scales[place] = fresh[:, :ROW], fresh[:, ROW:]
    return x


def validate(x: Inputs) -> None:
    """Raise ValueError where `page_split` would, and on token numbers of another type."""
    split.validate(pages_of(x, x.indices))
    for name in ("indices", "dirty"):
        tokens = getattr(x, name)
        if tokens is None or tokens.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"{name} are {getattr(tokens, 'dtype', None)}, not int32 or int64")


def reference(x: Inputs) -> Output:
    """The definition, row by row: data, then scales, from where the page has them."""
    if x.page_size == PAGE:
        return Output(x.source)
    out = x.destination.clone()
    for token in dirty_tokens(x).tolist():
        page, place = divmod(token, x.page_size)
        copy, where = divmod(token, PAGE)
        data, footer = place * ROW, x.page_size * ROW + place * SCALE
        to_data, to_footer = where * ROW, PAGE * ROW + where * SCALE
        out[copy, to_data : to_data + ROW] = x.source[page, data : data + ROW]
        out[copy, to_footer : to_footer + SCALE] = x.source[page, footer : footer + SCALE]
    return Output(out)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit: as expected, or as a split of the whole pool would leave that byte.

    In a dirty row these are one and the same, in a pad too.
    """
    if x.page_size > PAGE:
        whole = pages_of(x._replace(destination=expected.split), None)
        whole = split.reference(whole).split
        expected = Output(torch.where(actual.split == whole, whole, expected.split))
    return split.compare(pages_of(x, x.dirty), actual, expected)


def cost(x: Inputs) -> Cost:
    """Read and write every byte of the dirty rows once; read the dirty lanes once."""
    if x.page_size == PAGE:
        return Cost(0, 0)
    lanes = x.dirty.numel() * x.dirty.element_size()
    return Cost(2 * len(dirty_tokens(x)) * footer_584.TOKEN_BYTES + lanes, 0)


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Another step's tokens on the pool and the buffers of `first`."""
    kept = {name: getattr(first, name) for name in split.WRITES}
    return fresh._replace(source=first.source, **kept)


def shared_bytes(sets) -> int:
    """Rows of the one pool that are dirty in several sets, read and written."""
    if sets[0].page_size == PAGE:
        return 0
    dirty = [dirty_tokens(x) for x in sets]
    again = sum(map(len, dirty)) - len(torch.cat(dirty).unique())
    return 2 * again * footer_584.TOKEN_BYTES


def doubts(x: Inputs) -> list[str]:
    """Dummies among the tokens, and dirty rows in pages that the step does not read."""
    dirty = [f"dirty: {said}" for said in split.doubts(pages_of(x, x.dirty))]
    unread = sum(~torch.isin(dirty_tokens(x) // x.page_size, _pages(x, x.indices)))
    if unread:
        dirty.append(f"{int(unread)} dirty rows stand in pages that no index touches")
    return split.doubts(pages_of(x, x.indices)) + dirty


def statistics(x: Inputs) -> dict:
    return {
        "touched_pages": len(_pages(x, x.indices)),
        "dirty_pages": len(_pages(x, x.dirty)),
        "dirty_rows": len(dirty_tokens(x)),
        "row_bytes": footer_584.TOKEN_BYTES,
        "page_bytes": footer_584.page_bytes(x.page_size),
    }


def _pages(x: Inputs, tokens: torch.Tensor) -> torch.Tensor:
    return split.touched_pages(pages_of(x, tokens))


_tiny = Workload(pages=6, batch=2, window=70)
_edges = (
    _tiny,
    replace(_tiny, page_size=128),
    replace(_tiny, page_size=64),  # nothing to split: the input itself
    replace(_tiny, page_size=320, written=3),  # a ratio that is no power of two
    replace(_tiny, padded=False, written=4),
    replace(_tiny, written=70),  # the whole window: a chunk of a prefill
    replace(_tiny, written=0),
    replace(_tiny, invalid=0.5, written=33),
    replace(_tiny, invalid=0.5, written=33, wide=True),
    replace(_tiny, invalid=1.0, written=4),
    replace(_tiny, pages=1, batch=1, window=1),
    replace(_tiny, pages=2, batch=19, written=5),  # requests that write the same rows
    replace(_tiny, batch=0),
)

page_split_step = Op(
    name="page_split_step",
    Workload=Workload,
    Output=Output,
    dtypes={"split": "uint8"},
    suites={
        "edges": _edges,
        "steps": tuple(
            Workload(pages=pages, batch=batch, written=written)
            for pages in (1024, 16384) for batch in (8, 64) for written in (1, 4)
        ),
        "steps_small": tuple(Workload(pages=pages) for pages in (64, 256, 1024)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    rotated=rotated,
    shared_bytes=shared_bytes,
    doubts=doubts,
    writes=split.WRITES,
)  # fmt: skip
