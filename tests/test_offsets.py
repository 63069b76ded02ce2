"""Which bytes a page split moves, and addresses past 32 bits. Field reports of areas A and E.

Strides are inputs, so a few pages that stand far apart cross 2**31 and 2**32 bytes, and the same
counts of the units that kernels multiply in (8-byte words, bf16 elements, int32 lanes). The memory
is mapped and mostly never touched. Room is left below it, so that an offset that wraps reads zeros
there and fails a comparison, where it would otherwise end the process.
"""

import mmap
from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each, runs_here

from workbench.compare import same_bits
from workbench.ops import OPS

SPLIT, PREFILL, PLAN = (OPS[name] for name in ("page_split", "sparse_prefill", "union_plan"))
NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named by Python 3.13; the value is Linux's
ROOM = 2**31 * 8  # bytes: as far back as an offset of 8-byte words wraps
BESIDE = 4096  # bytes behind each page that are looked at
SMALL = SPLIT.Workload(pages=6, batch=2, window=70)
splits = pytest.mark.parametrize("v", SPLIT.variants.values(), ids=SPLIT.variants)


def mapped(size: int) -> torch.Tensor:
    """`size` bytes of memory that is not there until it is touched; on a GPU it is."""
    if DEVICE == "cpu":
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
        return torch.frombuffer(mmap.mmap(-1, size, flags=flags), dtype=torch.uint8)
    free = torch.cuda.mem_get_info()[0]
    if size > free:
        pytest.skip(f"takes {size >> 30} GiB of GPU memory, {free >> 30} GiB are free")
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


def far(near: torch.Tensor, stride: int) -> torch.Tensor:
    """A copy of `near` [n, width] whose rows stand `stride` elements apart, with room below."""
    (count, width), size = near.shape, near.element_size()
    whole = mapped(ROOM + count * stride * size).view(near.dtype)
    view = whole.as_strided((count, width), (stride, 1), ROOM // size)
    view.copy_(near)
    return view


def behind(view: torch.Tensor) -> torch.Tensor:
    """What stands right behind each row of a far view."""
    place = view.storage_offset() + view.shape[1]
    return view.as_strided((len(view), BESIDE), view.stride(), place)


def page_inputs(pages: int, tokens: list[int]):
    """A pool of 128-token pages and the tokens that are asked for."""
    w = SPLIT.Workload(pages=pages, page_size=128, touch="all")
    return SPLIT.make_inputs(w, DEVICE)._replace(
        indices=torch.tensor(tokens, dtype=torch.int32, device=DEVICE)
    )


def one_in(pages) -> list[int]:
    """One token of each page of 128, each at another place of it."""
    return [128 * page + 37 * i % 128 for i, page in enumerate(pages)]


def same_split(v, x, near) -> None:
    """`v` on `x` gives what the definition gives for the same bytes close together."""
    expected = SPLIT.reference(v.widens(near)).split
    got = v(x).split
    assert got.data_ptr() == x.destination.data_ptr()
    wrong = [n for n in range(len(expected)) if not torch.equal(got[n], expected[n])]
    assert not wrong, f"destination pages {wrong} differ"


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("size", [128, 192, 256])
@splits
def test_A01_touched_pages_equal_a_full_split_and_no_other_byte_changes(v, size, padded):
    x = SPLIT.make_inputs(replace(SMALL, page_size=size, padded=padded), DEVICE)
    whole = SPLIT.reference(x._replace(indices=None)).split
    touched = sorted({int(t) // size for t in x.indices.flatten() if 0 <= t < 6 * size})
    assert 0 < len(touched) < 6
    split = v(x).split.unflatten(0, (6, size // 64))
    assert torch.equal(split[touched], whole.unflatten(0, (6, size // 64))[touched])
    assert (split[..., 37376:] == 0xA5).all(), "the pad of a page was written"
    if v.widens(x).indices is not None:
        rest = [page for page in range(6) if page not in touched]
        assert (split[rest] == 0xA5).all(), "an untouched page was written"


@splits
def test_A02_a_first_call_in_inference_mode_leaves_ordinary_buffers(v):
    x = SPLIT.make_inputs(SMALL, DEVICE)
    places = x.destination.data_ptr(), x.destination.data_ptr(), x.mask.data_ptr()
    with torch.inference_mode():
        v(x)
    x.destination.fill_(0xA5)
    split = v(x).split
    buffers = (split, x.destination, x.mask)
    assert not any(buffer.is_inference() for buffer in buffers)
    assert places == tuple(buffer.data_ptr() for buffer in buffers)
    assert torch.equal(split, SPLIT.reference(v.widens(x))[0])


@splits
def test_A03_A09_every_call_writes_the_destination_that_it_was_given(v):
    main, extra = (SPLIT.make_inputs(replace(SMALL, page_size=p), DEVICE) for p in (256, 128))
    first = v(main).split
    kept = first.clone()
    assert v(extra).split.data_ptr() == extra.destination.data_ptr()
    assert torch.equal(first, kept), "the second cache overwrote the first one's pages"
    again = v(main._replace(indices=main.indices.flip(1))).split
    assert again.data_ptr() == first.data_ptr() == main.destination.data_ptr()


@splits
def test_A07_the_page_size_is_taken_from_each_call(v):
    """The same bytes as pages of 256, of 128 and of 64 tokens."""
    x = SPLIT.make_inputs(replace(SMALL, padded=False, pages=4), DEVICE)
    for size in (256, 128, 256, 64, 192):
        pages = 1024 // size
        source = x.source.view(-1)[: pages * size * 584].view(pages, size * 584)
        tokens = torch.tensor([0, pages * size - 1], dtype=torch.int32, device=DEVICE)
        call = x._replace(
            source=source, page_size=size, indices=tokens, mask=x.mask.new_empty(pages),
            destination=torch.full((pages * size // 64, 37440), 0xA5, dtype=torch.uint8,
                                   device=DEVICE),
        )  # fmt: skip
        expected = SPLIT.reference(v.widens(call)).split
        assert torch.equal(v(call).split, expected), f"pages of {size} tokens"


# stride -> the pages that begin at 2**31 or 2**32 bytes or 8-byte words (E02, E04, E05, E10)
STRIDES = {
    2**27: (16, 32),  # in bytes
    2**30: (2, 4, 16, 32),  # in bytes, then in words
}


@pytest.mark.parametrize("stride", STRIDES)
@splits
def test_source_pages_far_apart(v, stride):
    touched = sorted({p + d for p in STRIDES[stride] for d in (-1, 0, 1)})
    near = page_inputs(34, one_in(touched))
    x = near._replace(source=far(near.source, stride), destination=near.destination.clone())
    same_split(v, x, near)


@pytest.mark.parametrize("stride", STRIDES)
@splits
def test_destination_pages_far_apart(v, stride):
    touched = sorted({p // 2 + d for p in STRIDES[stride] for d in (-1, 0)})  # two parts a page
    near = page_inputs(17, one_in(touched))
    x = near._replace(destination=far(near.destination, stride))
    beside = behind(x.destination).fill_(0x5A)
    same_split(v, x, near)
    assert (beside == 0x5A).all(), "memory behind a destination page was written"


@splits
def test_a_page_reads_alike_wherever_its_pool_begins(v):
    """E03: a page of a far pool is what that page is on its own."""
    near = page_inputs(34, one_in(range(34)))
    source = far(near.source, 2**27)
    alone = page_inputs(1, [5])
    for page in (15, 16, 32):
        x = alone._replace(source=source[page : page + 1], destination=alone.destination.clone())
        same_split(v, x, alone._replace(source=near.source[page : page + 1]))


@splits
def test_wide_and_narrow_indices_give_the_same_bytes(v):
    near = page_inputs(6, [5, 300, -1, 128 * 5 + 127, 2**31 - 1])
    narrow, wide = (near.destination.clone() for _ in range(2))
    v(near._replace(destination=narrow))
    v(near._replace(destination=wide, indices=near.indices.long()))
    assert torch.equal(narrow, wide)


LOST = [2**31 - 1, 2**31 - 128, 6 * 128, -(2**31)]
LOST_WIDE = [2**31, 2**32, 2**32 + 5, 2**37 + 3, -(2**32) + 5]


@pytest.mark.parametrize(
    "tokens, dtype", [(LOST, torch.int32), (LOST, torch.int64), (LOST_WIDE, torch.int64)]
)
@splits
def test_a_token_past_the_pool_touches_no_page(v, tokens, dtype):
    near = page_inputs(6, [])
    whole = mapped(2**32)  # with room for the marks of pages that are not there
    near = near._replace(
        indices=torch.tensor(tokens, dtype=dtype, device=DEVICE), mask=whole[2**31 : 2**31 + 6]
    )
    places = [2**31 + token // 128 for token in tokens]
    whole[places] = 0x5A
    same_split(v, near._replace(destination=near.destination.clone()), near)
    assert (whole[places] == 0x5A).all(), "a page past the pool was marked"
    if v.widens(near).indices is not None:
        assert SPLIT.statistics(near)["touched_pages"] == 0
        x = near._replace(destination=near.destination.clone())
        assert (v(x).split == 0xA5).all(), "a page was written"


FAR_ROWS = PREFILL.Workload(tokens=5, heads=8, topk=40, rows=72, law="uniform", first_position=71)
ATTENTION = {
    **{name: {} for name, v in PREFILL.variants.items() if runs_here(v)},
    "union, group of 2": {"group": 2},
}


def attend(name: str, x):
    """Output of an attention variant whose arm is called `name`."""
    v = PREFILL.variants[name.split(",")[0]]
    return v(x, replace(v.config, **ATTENTION[name]) if ATTENTION[name] else v.config)


@pytest.mark.parametrize("name", ATTENTION)
def test_cache_rows_far_apart(name):
    """E05, E07, E10: row 32 stands 2**31 elements behind row 0, row 64 stands 2**32."""
    near = PREFILL.make_inputs(FAR_ROWS, DEVICE)
    chosen = set(near.indices.flatten().tolist())
    assert {31, 32, 33, 63, 64, 65} <= chosen, "the rows that matter are not selected"
    out, lse = attend(name, near._replace(kv=far(near.kv, 2**26)))
    expected = attend(name, near)
    assert same_bits(out, expected.out) and same_bits(lse, expected.lse)
    verdict = PREFILL.compare(near, expected, PREFILL.reference(near))
    assert verdict.passed, verdict.why


@pytest.mark.parametrize("name", ATTENTION)
def test_index_rows_far_apart(name):
    """E06: token 2's indices begin 2**31 lanes behind token 0's, token 4's begin 2**32."""
    near = PREFILL.make_inputs(replace(FAR_ROWS, topk=16), DEVICE)
    out, lse = attend(name, near._replace(indices=far(near.indices, 2**30)))
    expected = attend(name, near)
    assert same_bits(out, expected.out) and same_bits(lse, expected.lse)


@each(PLAN.variants.values())
def test_a_plan_of_index_rows_far_apart(v):
    near = PLAN.make_inputs(PLAN.Workload(tokens=5, topk=16, rows=72, group=2), DEVICE)
    found = v(near._replace(indices=far(near.indices, 2**30)))
    verdict = PLAN.compare(near, found, PLAN.reference(near))
    assert verdict.passed, verdict.why
