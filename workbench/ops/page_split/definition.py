"""Page split: cache pages of 64 * r tokens become r pages of 64, in a destination that persists.

A 64-token reader cannot take DeepSeek-V4's 256-token pages, so a server copies them before every
attention call. Each page of P tokens holds its data rows, then its scale footer (`footer_584`), so
sub-page s takes 36,864 data bytes from s * 36,864 and 512 scale bytes from P * 576 + s * 512. Token
numbers do not change: page * P + offset names the same token before and after.

Only pages that `indices` touch are copied; the rest of the destination, and the pad at the end of
each of its pages, keep the bytes they had. A variant that copies the whole pool answers the wider
question `indices=None` (`all_pages`). Seed 000 (sgl-project/sglang#32320).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import same_bits
from ...layouts import footer_584
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes

PAGE = 64  # tokens of a destination page
DATA_BYTES = PAGE * footer_584.ROW_BYTES  # 36,864
SCALES_BYTES = PAGE * footer_584.SCALE_BYTES  # 512
COPIED_BYTES = DATA_BYTES + SCALES_BYTES  # of a destination page; its last 64 are pad

SENTINEL = 0xA5  # in every byte of a destination before a run

TOUCHES = ("window", "scattered", "share", "all", "empty", "none_valid")
WILD = (-2147483648, -123456, -1)  # and, past the pool: see _hostile


@dataclass(frozen=True, kw_only=True)
class Workload:
    pages: int = 1024  # of the pool
    page_size: int = 256  # tokens of a pool page, a multiple of 64
    batch: int = 8  # requests of the decode step
    window: int = 128  # tokens that each request's sliding window reads
    touch: str = "window"  # one of TOUCHES: which tokens the indices name
    share: float = 0.5  # of the pool's pages that are touched, where touch is "share"
    invalid: float = 0.0  # share of index lanes that name no token of the pool
    wide: bool = False  # indices int64 in place of int32
    padded: bool = True  # pool pages end in a pad, as servers lay them out
    seed: int = 0

    def __post_init__(self):
        if self.page_size < PAGE or self.page_size % PAGE:
            raise ValueError(f"page_size={self.page_size} is not a multiple of {PAGE}")
        for name, least in (("pages", 1), ("batch", 0), ("window", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is below {least}")
        if self.touch not in TOUCHES:
            raise ValueError(f"touch={self.touch!r} is none of {', '.join(TOUCHES)}")
        for name in ("invalid", "share"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name}={getattr(self, name)} is outside [0, 1]")


class Inputs(NamedTuple):
    source: torch.Tensor  # [pages, >= page_bytes(page_size)] uint8, any row stride
    page_size: int  # tokens of a source page
    indices: torch.Tensor | None  # int32 or int64, any shape: token numbers; None: copy all pages
    destination: torch.Tensor  # [pages * page_size / 64, >= 37,376] uint8, persistent, written
    mask: torch.Tensor  # [pages] uint8, scratch that persists: which pages were touched, written
    # [2, >= 4 + pages * page_size / 64] int32, scratch that persists, zero before the first call,
    # as wide in every later one: a row for each variant that keeps state on the device (`stamped`,
    # `listed`), its own alone
    stamps: torch.Tensor


class Output(NamedTuple):
    split: torch.Tensor  # [pages * page_size / 64, ...] uint8: destination, or source at 64 tokens


def token_numbers(w: Workload) -> torch.Tensor | None:
    """Where the batch reads: per request a window that ends anywhere, in pages of its own."""
    if w.touch == "all":
        return None
    if w.touch == "empty":
        return torch.empty(0, w.window, dtype=torch.int32)
    gen = torch.Generator().manual_seed(w.seed)
    if w.touch == "share":  # `window` tokens of each page, as many pages as the share asks for
        pages = torch.randperm(w.pages, generator=gen)[: round(w.share * w.pages)]
        tokens = torch.arange(w.window) % w.page_size
        drawn = pages[:, None] * w.page_size + tokens
    elif w.touch == "scattered":
        drawn = torch.randint(w.pages * w.page_size, (w.batch, w.window), generator=gen)
    else:
        span = -(-w.window // w.page_size) + 1  # pages that one window can touch
        homes = torch.randperm(max(w.pages, w.batch * span), generator=gen) % w.pages
        homes = homes[: w.batch * span].view(w.batch, span)
        first = torch.randint(w.page_size, (w.batch, 1), generator=gen)
        place = first + torch.arange(w.window)
        drawn = homes.gather(1, place // w.page_size) * w.page_size + place % w.page_size
    lost = torch.rand(drawn.shape, generator=gen) < w.invalid
    if w.touch == "none_valid":
        lost[:] = True
    end = w.pages * w.page_size
    wild = torch.tensor([*WILD, end, end + 64, 114514 + end, 2147483647])
    drawn[lost] = wild[torch.randint(len(wild), (int(lost.sum()),), generator=gen)]
    return drawn.to(torch.int64 if w.wide else torch.int32)


class Scratch(NamedTuple):
    """What the split of one cache writes: fields of `Inputs`, and of other ops that split."""

    destination: torch.Tensor
    mask: torch.Tensor
    stamps: torch.Tensor


WRITES = Scratch._fields


def scratch(pages: int, page_size: int, device: str) -> Scratch:
    """Memory for the split of a pool, bytes the sentinel; its least size where none can be."""
    copies = pages * page_size // PAGE
    byte = {"dtype": torch.uint8, "device": device}
    return Scratch(
        torch.full((copies, footer_584.page_stride(PAGE)), SENTINEL, **byte),
        torch.full((pages,), SENTINEL, **byte),
        torch.zeros(2, 4 + copies, dtype=torch.int32, device=device),
    )


def make_inputs(w: Workload, device: str) -> Inputs:
    """Draw the pool and the indices; the destination holds the sentinel."""
    stride = footer_584.page_stride(w.page_size, w.padded)
    indices = token_numbers(w)
    return Inputs(
        source=random_bytes((w.pages, stride), w.seed, device),
        page_size=w.page_size,
        indices=None if indices is None else indices.to(device),
        **scratch(w.pages, w.page_size, device)._asdict(),
    )


def validate(x: Inputs) -> None:
    """Raise ValueError where bytes would be read at another stride or width than was meant."""
    for name in ("source", "destination", "mask"):
        tensor = getattr(x, name)
        if tensor.dtype != torch.uint8:
            raise ValueError(f"{name} is {tensor.dtype}, not uint8: strides count bytes")
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"{name} has a last stride of {tensor.stride(-1)}, not 1")
    if x.page_size < PAGE or x.page_size % PAGE:
        raise ValueError(f"page_size={x.page_size} is not a multiple of {PAGE}")
    pages = x.source.shape[0]
    needed = {"source": (pages, footer_584.page_bytes(x.page_size))}
    if x.page_size > PAGE:  # else nothing is written
        needed["destination"] = (pages * x.page_size // PAGE, COPIED_BYTES)
    for name, shape in needed.items():
        tensor = getattr(x, name)
        if tensor.ndim != 2 or tensor.shape[0] != shape[0] or tensor.shape[1] < shape[1]:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, needs {shape} or wider")
        if any(n % 8 for n in (tensor.stride(0), tensor.shape[1], tensor.data_ptr())):
            raise ValueError(f"{name} has stride {tensor.stride(0)} and pages of {tensor.shape[1]} "
                             "bytes: not whole words of 8")  # fmt: skip
    if x.mask.shape != (pages,):
        raise ValueError(f"mask has shape {tuple(x.mask.shape)}, needs {(pages,)}")
    form, least = (x.stamps.dtype, x.stamps.ndim, *x.stamps.shape[:1]), 4 + len(x.destination)
    if form != (torch.int32, 2, 2) or x.stamps.shape[1] < least or x.stamps.stride(1) != 1:
        raise ValueError(f"stamps are {x.stamps.dtype} {tuple(x.stamps.shape)} with strides "
                         f"{x.stamps.stride()}, needs int32 [2, {least}] or wider, words side by "
                         "side")  # fmt: skip
    if x.indices is not None and x.indices.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"indices are {x.indices.dtype}, not int32 or int64")
    if x.indices is not None and x.indices.numel() >= 2**31:
        raise ValueError(f"indices have {x.indices.numel()} lanes: lane numbers are 32-bit")


def touched_pages(x: Inputs) -> torch.Tensor:
    """The pages that the indices name, ascending, without repeats (reads the device)."""
    pages = x.source.shape[0]
    if x.indices is None:
        return torch.arange(pages, device=x.source.device)
    valid = x.indices[(x.indices >= 0) & (x.indices < pages * x.page_size)]
    return (valid.long() // x.page_size).unique()


def reference(x: Inputs) -> Output:
    """The definition: bytes of each touched page, sub-page by sub-page."""
    if x.page_size == PAGE:
        return Output(x.source)
    out = x.destination.clone()
    ratio, touched = x.page_size // PAGE, touched_pages(x)
    for s in range(ratio):
        scales = x.page_size * footer_584.ROW_BYTES + s * SCALES_BYTES
        target = touched * ratio + s
        out[target, :DATA_BYTES] = x.source[touched, s * DATA_BYTES : (s + 1) * DATA_BYTES]
        out[target, DATA_BYTES:COPIED_BYTES] = x.source[touched, scales : scales + SCALES_BYTES]
    return Output(out)


def all_pages(x: Inputs) -> Inputs:
    """The wider question of a variant that does not look at the indices."""
    return x._replace(indices=None)


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Bit for bit, the untouched pages and pads included, and in the memory that was given."""
    home = x.source if x.page_size == PAGE else x.destination
    if actual.split.data_ptr() != home.data_ptr() or actual.split.stride() != home.stride():
        where = "source itself" if x.page_size == PAGE else "destination"
        return Verdict("incorrect", why=f"split is not a view of the {where}")
    if x.page_size == PAGE and not (x.destination == SENTINEL).all():
        return Verdict("incorrect", why="destination was written though there is nothing to split")
    if x.page_size > PAGE and not same_bits(actual.split, expected.split):
        rows = (actual.split != expected.split).any(1).nonzero().flatten()
        page = int(rows[0])
        at = int((actual.split[page] != expected.split[page]).nonzero()[0])
        asked = page // (x.page_size // PAGE) in touched_pages(x).tolist()
        kind = "pad" if at >= COPIED_BYTES else "scale" if at >= DATA_BYTES else "data"
        why = f"page {page} ({'touched' if asked else 'untouched'}) differs at {kind} byte {at}"
        return Verdict("incorrect", why=f"{why}; {len(rows)} destination pages differ")
    return Verdict("passed", 0.0, 0.0)


def cost(x: Inputs) -> Cost:
    """Read and write every byte of the touched pages once; read the indices once."""
    if x.page_size == PAGE:
        return Cost(0, 0)
    copied = len(touched_pages(x)) * footer_584.page_bytes(x.page_size)
    lanes = 0 if x.indices is None else x.indices.numel() * x.indices.element_size()
    return Cost(2 * copied + lanes, 0)


def rotated(first: Inputs, fresh: Inputs) -> Inputs:
    """Other indices on the pool, destination and mask of `first`, as the next decode step has."""
    return fresh._replace(source=first.source, **{name: getattr(first, name) for name in WRITES})


def shared_bytes(sets) -> int:
    """Pages of the one pool that several sets touch, read and written."""
    touched = [touched_pages(x) for x in sets]
    again = sum(map(len, touched)) - len(torch.cat(touched).unique())
    return 2 * again * footer_584.page_bytes(sets[0].page_size)


def doubts(x: Inputs) -> list[str]:
    pages = x.source.shape[0]
    if x.indices is None or x.indices.numel() < 2:
        return []
    valid = x.indices[(x.indices >= 0) & (x.indices < pages * x.page_size)]
    if len(valid) > 1 and (valid == valid[0]).all():
        return [f"dummies: every valid lane names token {int(valid[0])}"]
    return []


def statistics(x: Inputs) -> dict:
    touched = len(touched_pages(x))
    return {"touched_pages": touched, "touched_share": touched / x.source.shape[0]}


_tiny = Workload(pages=6, batch=2, window=70)
_edges = (
    _tiny,
    replace(_tiny, page_size=128),
    replace(_tiny, page_size=64),  # nothing to split: the input itself
    replace(_tiny, page_size=320),  # a ratio that is no power of two
    replace(_tiny, padded=False),
    replace(_tiny, touch="all"),
    replace(_tiny, touch="empty"),
    replace(_tiny, touch="none_valid"),
    replace(_tiny, touch="scattered", window=3, batch=1),
    replace(_tiny, invalid=0.5),
    replace(_tiny, invalid=0.5, wide=True),
    replace(_tiny, pages=1, batch=1, window=1),
    replace(_tiny, batch=19),  # more lanes than one program of the mark pass takes
    replace(_tiny, batch=0),
    replace(_tiny, touch="share", share=0.5, window=3),
    replace(_tiny, touch="share", share=0.0),
)

page_split = Op(
    name="page_split",
    Workload=Workload,
    Output=Output,
    dtypes={"split": "uint8"},
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
    doubts=doubts,
    writes=WRITES,
)
