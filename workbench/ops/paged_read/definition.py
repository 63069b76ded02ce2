"""Paged read: the rows that attention would gather, out of pages of any size.

A reader that takes pages as they lie needs no split: token t of pages of P tokens has its 576 data
bytes at (t % P) * 576 of page t // P, and its 8 scale bytes at P * 576 + (t % P) * 8. That reader's
time is the floor which every split pays on top of. Its answer for a lane are those 584 bytes; zeros
where the lane names no token of the pool. Pages of 2 tokens (DeepSeek-V4's C128A) can be read so,
and nothing of them can be split into 64.

A variant may split first: destination, mask and stamps are `page_split`'s, scratch here, and what
it leaves there is not compared. Seeds 000 and 003.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...layouts import footer_584
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes
from ..page_split import definition as split
from ..page_split.definition import SENTINEL

ROW, SCALE = footer_584.ROW_BYTES, footer_584.SCALE_BYTES
TOKEN = footer_584.TOKEN_BYTES
TOUCHES = ("window", "scattered")


@dataclass(frozen=True, kw_only=True)
class Workload:
    pages: int = 1024  # of the pool
    page_size: int = 256  # tokens of a pool page
    batch: int = 8  # requests of the decode step
    window: int = 128  # tokens that each request reads
    touch: str = "window"  # one of TOUCHES: side by side, or anywhere in the pool
    invalid: float = 0.0  # share of index lanes that name no token of the pool
    wide: bool = False  # indices int64 in place of int32
    padded: bool = True  # pool pages end in a pad, as servers lay them out
    row_bytes: int = TOKEN  # width of the rows that are written; what is beyond 584 is left alone
    seed: int = 0

    def __post_init__(self):
        for name, least in (("pages", 1), ("page_size", 1), ("batch", 0), ("window", 1),
                            ("seed", 0)):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is below {least}")
        if self.touch not in TOUCHES:
            raise ValueError(f"touch={self.touch!r} is none of {', '.join(TOUCHES)}")
        if not 0.0 <= self.invalid <= 1.0:
            raise ValueError(f"invalid={self.invalid} is outside [0, 1]")
        if self.row_bytes < TOKEN or self.row_bytes % 8:
            raise ValueError(f"row_bytes={self.row_bytes} is no multiple of 8 from {TOKEN} on")


class Inputs(NamedTuple):
    source: torch.Tensor  # [pages, >= page_bytes(page_size)] uint8, any row stride
    page_size: int  # tokens of a source page
    indices: torch.Tensor  # [batch, window] int32 or int64: token numbers
    # Scratch of `page_split`, for a variant that splits first; written. As many pages of 64 as
    # there are whole ones in the pool: none for 6 pages of 2 tokens
    destination: torch.Tensor
    mask: torch.Tensor
    stamps: torch.Tensor
    rows: torch.Tensor  # [batch, window, >= 584] uint8, any outer strides, written


class Output(NamedTuple):
    rows: torch.Tensor  # `Inputs.rows`: a lane's data and scales, or zeros, in its first 584 bytes


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the pool and the indices; all that is written holds the sentinel."""
    stride = footer_584.page_stride(w.page_size, w.padded)
    return Inputs(
        source=random_bytes((w.pages, stride), w.seed, device),
        page_size=w.page_size,
        indices=split.token_numbers(w).to(device),
        **split.scratch(w.pages, w.page_size, device)._asdict(),
        rows=torch.full((w.batch, w.window, w.row_bytes), SENTINEL, dtype=torch.uint8,
                        device=device),
    )  # fmt: skip


def validate(x: Inputs) -> None:
    """Raise ValueError where bytes would be read or written at another stride than was meant.

    What a split demands of its scratch is checked where it runs.
    """
    if x.page_size < 1:
        raise ValueError(f"page_size={x.page_size} is below 1")
    width = footer_584.page_bytes(x.page_size)
    if x.source.ndim != 2 or x.source.shape[1] < width:
        raise ValueError(f"source has shape {tuple(x.source.shape)}, needs [pages, >= {width}]")
    if x.indices.dtype not in (torch.int32, torch.int64) or x.indices.ndim != 2:
        raise ValueError(f"indices are {x.indices.dtype} {tuple(x.indices.shape)}, "
                         "not int32 or int64 [batch, window]")  # fmt: skip
    if x.rows.shape[:-1] != x.indices.shape or x.rows.shape[-1] < TOKEN:
        raise ValueError(f"rows have shape {tuple(x.rows.shape)}, needs "
                         f"{(*x.indices.shape, TOKEN)} or wider")  # fmt: skip
    for name in ("source", "rows"):
        tensor = getattr(x, name)
        if tensor.dtype != torch.uint8 or tensor.stride(-1) != 1:
            raise ValueError(f"{name} is {tensor.dtype} with a last stride of "
                             f"{tensor.stride(-1)}, not uint8 with 1")  # fmt: skip
        steps = (tensor.shape[-1], tensor.data_ptr(), *tensor.stride()[:-1])
        if any(step % 8 for step in steps):
            raise ValueError(f"{name} has strides {tensor.stride()} and rows of "
                             f"{tensor.shape[-1]} bytes: not whole words of 8")  # fmt: skip


def read_tokens(x: Inputs) -> torch.Tensor:
    """The tokens that the indices name, ascending, without repeats (reads the device)."""
    valid = (x.indices >= 0) & (x.indices < x.source.shape[0] * x.page_size)
    return x.indices[valid].long().unique()


def reference(x: Inputs) -> Output:
    """The definition, lane by lane: data, then scales, from where the page has them."""
    out = x.rows.clone()
    for b, tokens in enumerate(x.indices.tolist()):
        for lane, token in enumerate(tokens):
            row = out[b, lane, :TOKEN]
            page, place = divmod(token, x.page_size)
            if not 0 <= page < x.source.shape[0]:
                row.zero_()
                continue
            data, footer = place * ROW, x.page_size * ROW + place * SCALE
            row[:ROW] = x.source[page, data : data + ROW]
            row[ROW:] = x.source[page, footer : footer + SCALE]
    return Output(out)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit, what stands beside the rows included, and in the memory that was given."""
    if actual.rows.data_ptr() != x.rows.data_ptr() or actual.rows.stride() != x.rows.stride():
        return Verdict("incorrect", why="rows are not the memory that was given")
    if not same_bits(actual.rows, expected.rows):
        wrong = actual.rows != expected.rows
        b, lane, at = (int(i) for i in wrong.nonzero()[0])
        token, end = int(x.indices[b, lane]), x.source.shape[0] * x.page_size
        kind = "pad" if at >= TOKEN else "scale" if at >= ROW else "data"
        named = f"token {token}" if 0 <= token < end else f"no token: {token}"
        why = f"request {b} lane {lane} ({named}) differs at {kind} byte {at}"
        return Verdict("incorrect", why=f"{why}; {int(wrong.any(-1).sum())} rows differ")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read each row that is named once, and every index; write the row of every lane."""
    lanes = x.indices.numel()
    moved = (len(read_tokens(x)) + lanes) * TOKEN
    return Cost(moved + lanes * x.indices.element_size(), 0)


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Other indices on the pool and the split's scratch of `first`; rows of their own."""
    kept = {name: getattr(first, name) for name in split.WRITES}
    return fresh._replace(source=first.source, **kept)


def shared_bytes(sets) -> int:
    """Rows of the one pool that several sets read."""
    read = [read_tokens(x) for x in sets]
    return (sum(map(len, read)) - len(torch.cat(read).unique())) * TOKEN


def statistics(x: Inputs) -> dict:
    read = read_tokens(x)
    touched = len((read // x.page_size).unique())
    return {
        "read_rows": len(read),
        "row_bytes": TOKEN,
        "touched_pages": touched,
        "touched_bytes": touched * footer_584.page_bytes(x.page_size),  # what a split would read
    }


_tiny = Workload(pages=6, batch=2, window=70)
_edges = (
    _tiny,
    replace(_tiny, page_size=2),  # C128A: nothing to split, and not 64 tokens in all
    replace(_tiny, page_size=2, pages=80, invalid=0.3, padded=False),
    replace(_tiny, page_size=64),  # as a split would leave it
    replace(_tiny, page_size=128, padded=False),
    replace(_tiny, page_size=192),
    replace(_tiny, page_size=53),  # no multiple of anything
    replace(_tiny, padded=False),
    replace(_tiny, touch="scattered", window=3, batch=1),
    replace(_tiny, invalid=0.5),
    replace(_tiny, invalid=0.5, wide=True),
    replace(_tiny, invalid=1.0),
    replace(_tiny, row_bytes=640, invalid=0.3),  # rows that stand apart
    replace(_tiny, pages=1, batch=1, window=1),
    replace(_tiny, batch=19, window=9),
    replace(_tiny, batch=0),
)

paged_read = Op(
    name="paged_read",
    Workload=Workload,
    Output=Output,
    dtypes={"rows": "uint8"},
    suites={
        "edges": _edges,
        "pools": tuple(
            Workload(pages=pages, batch=batch) for pages in (1024, 4096, 16384) for batch in (8, 64)
        ),
        "pools_small": tuple(Workload(pages=pages) for pages in (64, 256, 1024)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
    rotated=rotated,
    shared_bytes=shared_bytes,
    doubts=split.doubts,
    writes=(*split.WRITES, "rows"),
)
