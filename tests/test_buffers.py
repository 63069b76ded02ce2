"""Buffers that a server holds: apart for each cache, never freed, never an inference tensor."""

import pytest
import torch
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.ops import OPS
from workbench.ops.page_split.buffers import SplitBuffers, split_inputs

SPLIT = OPS["page_split"]
VARIANTS = [v for v in SPLIT.variants.values() if v.capturable]
every_variant = pytest.mark.parametrize("v", VARIANTS, ids=lambda v: v.name)


def pool(seed: int = 0, **changes):
    return SPLIT.make_inputs(SPLIT.Workload(**{"pages": 6, "batch": 2, "window": 70, "seed": seed}
                                            | changes), DEVICE)  # fmt: skip


def split(v, buffers, x):
    """(what the variant returns on a server's buffers, what is right: other pages as before)."""
    own = split_inputs(buffers, x.source, x.page_size, x.indices)
    before = own._replace(destination=own.destination.clone(), mask=own.mask.clone())
    return v(own).split, SPLIT.reference(v.widens(before)).split


@every_variant
def test_two_caches_in_one_forward_keep_their_own(v):
    main, extra = SplitBuffers(DEVICE), SplitBuffers(DEVICE)
    x, y = pool(0), pool(1, page_size=128, pages=9)
    first, right = split(v, main, x)
    second, other = split(v, extra, y)
    assert same_bits(first, right), "the second cache overwrote the first one's pages"
    assert same_bits(second, other)
    assert main.take(6, 256).destination.data_ptr() != extra.take(9, 128).destination.data_ptr()


@every_variant
def test_every_call_gets_the_same_memory_and_new_bytes(v):
    buffers, x = SplitBuffers(DEVICE), pool()
    first, _ = split(v, buffers, x)
    where = first.data_ptr()
    x.source.bitwise_not_()  # the same indices, other bytes: nothing may be taken as copied before
    second, right = split(v, buffers, x)
    assert second.data_ptr() == where and same_bits(second, right)


def test_memory_that_was_replaced_stays_alive_and_as_it_was():
    buffers = SplitBuffers(DEVICE)
    small = buffers.take(4, 256)
    small.destination.fill_(7)
    large = buffers.take(9, 256)
    assert large.destination.data_ptr() != small.destination.data_ptr()
    assert any(k.destination.data_ptr() == small.destination.data_ptr() for k in buffers.kept)
    assert (small.destination == 7).all()
    again = buffers.take(4, 256)
    assert again.destination.data_ptr() == large.destination.data_ptr() and len(again.mask) == 4


@pytest.mark.parametrize("pages, page_size", [(3, 256), (6, 128), (12, 64), (2, 320)])
def test_pools_of_any_page_size_share_the_memory_of_the_largest(pages, page_size):
    buffers = SplitBuffers(DEVICE)
    where = buffers.take(12, 320)
    got = buffers.take(pages, page_size)
    assert got.destination.data_ptr() == where.destination.data_ptr()
    assert len(got.destination) == pages * page_size // 64 and len(got.mask) == pages
    assert len(buffers.kept) == 1


@every_variant
def test_a_buffer_that_is_born_under_inference_mode_is_a_normal_tensor(v):
    buffers, x = SplitBuffers(DEVICE), pool()
    with torch.inference_mode():
        split(v, buffers, x)
        buffers.take(12, 256)
    for kept in buffers.kept:
        assert not kept.destination.is_inference() and not kept.mask.is_inference()
    got, right = split(v, buffers, x)  # outside: writing an inference tensor would raise
    assert same_bits(got, right)


def test_growth_inside_a_capture_is_refused_with_the_sizes(monkeypatch):
    buffers = SplitBuffers("cuda")
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="24 split pages exceed the 0 of these buffers"):
        buffers.take(6, 256)
    assert not buffers.kept


@pytest.mark.parametrize("pages, page_size", [(3, 63), (3, 100), (-1, 64), (1, 0)])
def test_what_is_no_pool_is_refused(pages, page_size):
    with pytest.raises(ValueError, match=f"page_size={page_size}"):
        SplitBuffers(DEVICE).take(pages, page_size)


@pytest.mark.skipif(DEVICE == "cpu", reason="CUDA graphs need a GPU")
@every_variant
def test_a_captured_graph_replays_on_new_indices_and_survives_growth(v):
    buffers, x = SplitBuffers(DEVICE), pool()
    own = split_inputs(buffers, x.source, x.page_size, x.indices)
    v(own)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = v(own).split
    buffers.take(50, 256)
    other = pool(3)
    x.indices.copy_(other.indices)
    x.source.copy_(other.source)
    before = own._replace(destination=own.destination.clone(), mask=own.mask.clone())
    right = SPLIT.reference(v.widens(before)).split
    graph.replay()
    torch.cuda.synchronize()
    assert same_bits(out, right)
