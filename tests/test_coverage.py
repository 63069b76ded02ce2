"""Which page sizes a reader takes, told before a launch; and pools read through any view."""

import pytest
import torch
from conftest import DEVICE

from workbench.layouts import footer_584
from workbench.ops import OPS
from workbench.ops.page_split import coverage
from workbench.ops.page_split.coverage import AS_IT_IS, CACHES, SPLIT, Reader, Uncovered, route

SPLITS = OPS["page_split"]
VARIANTS = pytest.mark.parametrize("v", SPLITS.variants.values(), ids=SPLITS.variants)
ALONE, PREFILL, PREFILL_128, DECODE = coverage.READERS
NO = None


@pytest.mark.parametrize("reader, cache, extra, expected", [
    (ALONE, "window", False, SPLIT),
    (ALONE, "C4A", True, AS_IT_IS),
    (ALONE, "C128A", True, NO),
    (ALONE, "ratio 2", True, SPLIT),
    (PREFILL, "C128A", True, AS_IT_IS),
    (PREFILL, "ratio 2", True, SPLIT),
    (PREFILL_128, "ratio 2", True, AS_IT_IS),
    (DECODE, "ratio 2", True, AS_IT_IS),
    (DECODE, "C128A", True, AS_IT_IS),
    (DECODE, "window", False, SPLIT),
])  # fmt: skip
def test_A04_the_way_of_a_page_size_is_known_before_a_launch(reader, cache, extra, expected):
    """The dual prefill that aborted on pages of 128 (seed 003) gets them split; none aborts."""
    if expected is NO:
        with pytest.raises(Uncovered, match="pages of 2 tokens"):
            route(reader, CACHES[cache], extra)
    else:
        assert route(reader, CACHES[cache], extra) == expected


@pytest.mark.parametrize("size", range(1, 400))
def test_what_is_said_to_split_splits(size):
    """The predicate accepts exactly what the op does."""
    try:
        said = route(ALONE, size)
    except Uncovered:
        said = NO
    try:
        SPLITS.Workload(page_size=size)
        taken = AS_IT_IS if size == 64 else SPLIT
    except ValueError:
        taken = NO
    assert said == taken


@pytest.mark.parametrize("size", [0, -64])
def test_no_page_holds_less_than_a_token(size):
    with pytest.raises(Uncovered, match=f"page_size={size}"):
        route(DECODE, size, extra=True)


def test_a_reader_without_64_gets_nothing_split():
    reader = Reader("of 128", main=frozenset({128}))
    assert route(reader, 128) == AS_IT_IS
    with pytest.raises(Uncovered, match="256"):
        route(reader, 256)


# Views of the same bytes: [pages, bytes], [pages, P, 584], NHD [pages, P, 1, 584], HND
def views(flat: torch.Tensor, size: int) -> dict[str, torch.Tensor]:
    pages, stride = len(flat), flat.stride(0)
    return {
        "2-D": flat,
        "3-D": flat.as_strided((pages, size, 584), (stride, 584, 1)),
        "NHD": flat.as_strided((pages, size, 1, 584), (stride, 584, 584, 1)),
        "HND": flat.as_strided((pages, 1, size, 584), (stride, 584 * size, 584, 1)),
    }


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("size", [64, 128, 256])
@VARIANTS
def test_every_view_of_a_pool_is_split_alike(v, size, padded):
    x = SPLITS.make_inputs(SPLITS.Workload(pages=3, batch=2, window=9, page_size=size,
                                           padded=padded), DEVICE)  # fmt: skip
    expected = SPLITS.reference(v.widens(x)).split
    for name, view in views(x.source, size).items():
        pool, found = footer_584.pool_of(view, size if name == "2-D" else None)
        assert found == size and pool.data_ptr() == x.source.data_ptr()
        own = x._replace(source=pool, destination=x.destination.clone())
        got = v(own).split
        assert torch.equal(got[:, : 584 * 64], expected[:, : 584 * 64]), name


def flat(pages=3, size=128):
    return torch.zeros(pages, footer_584.page_stride(size), dtype=torch.uint8)


@pytest.mark.parametrize("cache, size, told", [
    (flat().view(torch.int16), 128, "int16"),
    (flat().view(torch.float16), 128, "float16"),
    (flat(), None, "page_size"),
    (flat(), 256, "149504"),
    (flat()[0], 128, "shape"),
    (views(flat(), 128)["3-D"], 64, "page_size=64"),
    (views(flat(), 128)["3-D"][..., :576], None, "576"),
    (views(flat(), 128)["3-D"][:, ::2], None, "strides"),
    (torch.zeros(3, 2, 2, 584, dtype=torch.uint8), None, "shape"),
    (torch.zeros(3, 1, 1, 1, 584, dtype=torch.uint8), None, "shape"),
    (flat()[:, ::2], 64, "strides"),
    (flat(), 0, "page_size"),
], ids=lambda x: x if isinstance(x, str) else "")  # fmt: skip
def test_what_is_no_pool_of_pages_is_refused(cache, size, told):
    with pytest.raises(ValueError, match=told):
        footer_584.pool_of(cache, size)


def test_A07_the_page_size_comes_from_the_pool_at_hand():
    """A pool whose manager changed its pages is told by its own shape; a kept size is refused."""
    first, later = views(flat(2, 256), 256)["NHD"], views(flat(8, 64), 64)["NHD"]
    assert footer_584.pool_of(first)[1] == 256 and footer_584.pool_of(later)[1] == 64
    with pytest.raises(ValueError, match="page_size=256, but the cache has pages of 64 tokens"):
        footer_584.pool_of(later, 256)
