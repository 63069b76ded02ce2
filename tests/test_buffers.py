"""Buffers that a server holds: apart for each cache, never freed, never an inference tensor."""

import pytest
import torch
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.ops import OPS
from workbench.ops.page_split.buffers import SplitBuffers, split_inputs
from workbench.ops.page_split.definition import touched_pages
from workbench.replay import record

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
    copies = pages * page_size // 64 if page_size > 64 else 0  # pages of 64 are read as they lie
    assert len(got.destination) == copies and len(got.mask) == pages
    assert not copies or got.destination.data_ptr() == where.destination.data_ptr()
    assert len(buffers.kept) == 1


@every_variant
def test_a_pool_of_64_token_pages_takes_no_memory_for_copies(v):
    buffers, x = SplitBuffers(DEVICE), pool(page_size=64)
    split = v(split_inputs(buffers, x.source, 64, x.indices)).split
    assert split.data_ptr() == x.source.data_ptr() and not buffers.kept[0].destination.numel()


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


@pytest.mark.parametrize("taken, have", [(0, 0), (4, 16)])
def test_A10_first_use_inside_a_capture_is_refused(monkeypatch, taken, have):
    """What a capture allocates is the graph's own, and replays of others overwrite it."""
    buffers = SplitBuffers(DEVICE)
    if taken:
        buffers.take(taken, 256)
    buffers.device = "cuda"
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    told = f"24 split pages exceed the {have} of these .*: take the largest pool once before"
    with pytest.raises(RuntimeError, match=told):
        buffers.take(6, 256)
    if taken:  # what is there may be taken
        assert len(buffers.take(taken, 256).mask) == taken
    assert len(buffers.kept) == (taken > 0)


@pytest.mark.parametrize("pages, page_size", [(3, 63), (3, 100), (-1, 64), (1, 0)])
def test_what_is_no_pool_is_refused(pages, page_size):
    with pytest.raises(ValueError, match=f"page_size={page_size}"):
        SplitBuffers(DEVICE).take(pages, page_size)


def recorded(v, *held):
    """Replay of one forward that splits all of `held`, each on the buffers of its own cache."""
    return record(lambda: [v(x).split for x in held], DEVICE)[1]


def renew(own, other):
    """Put the bytes and the tokens of `other` where a server holds its own."""
    own.source.copy_(other.source)
    own.indices.copy_(other.indices)


def wanted(v, own):
    """What a split of `own` must leave, other pages as they are now."""
    return SPLIT.reference(v.widens(own)).split


@every_variant
def test_a_recorded_split_follows_indices_and_bytes_as_an_eager_one(v):
    buffers, x = SplitBuffers(DEVICE), pool()
    own = split_inputs(buffers, x.source, x.page_size, x.indices)
    replay = recorded(v, own)
    for seed in (1, 2):
        renew(own, pool(seed))
        state = own.destination, own.mask, own.stamps
        eager = own._replace(**dict(zip(SPLIT.writes, (t.clone() for t in state), strict=True)))
        right = wanted(v, own)
        (out,) = replay()
        assert same_bits(out, right) and same_bits(out, v(eager).split)
        assert out.data_ptr() == own.destination.data_ptr()


@every_variant
def test_two_caches_of_one_recorded_forward_keep_their_own(v):
    caches = pool(0), pool(1, page_size=128, pages=9)
    held = [split_inputs(SplitBuffers(DEVICE), x.source, x.page_size, x.indices) for x in caches]
    replay = recorded(v, *held)
    for seed in (2, 4):
        renew(held[0], pool(seed))
        renew(held[1], pool(seed + 1, page_size=128, pages=9))
        right = [wanted(v, own) for own in held]
        for out, expected in zip(replay(), right, strict=True):
            assert same_bits(out, expected)


@every_variant
def test_A12_a_graph_of_a_short_step_replays_a_long_one(v):
    """The tensor of indices is as large as it can get, and padded; so are the buffers."""
    w = {"pages": 12, "batch": 4, "window": 300}
    long = pool(1, **w)
    x = pool(0, **w)
    x.indices[1:] = -1
    x.indices[:, 5:] = -1
    own = split_inputs(SplitBuffers(DEVICE), x.source, x.page_size, x.indices)
    replay = recorded(v, own)
    assert len(touched_pages(long)) > 2 * len(touched_pages(own)) > 0
    renew(own, long)
    right = wanted(v, own)
    assert same_bits(replay()[0], right)
    x.indices[1:] = -1  # and a short one again
    own.source.bitwise_not_()
    right = wanted(v, own)
    assert same_bits(replay()[0], right)


@every_variant
def test_A02_a_call_under_inference_mode_and_a_recording_outside_agree(v):
    buffers, x = SplitBuffers(DEVICE), pool()
    with torch.inference_mode():
        v(split_inputs(buffers, x.source, x.page_size, x.indices))
    own = split_inputs(buffers, x.source, x.page_size, x.indices)
    assert not any(t.is_inference() for t in (own.destination, own.mask, own.stamps))
    replay = recorded(v, own)
    renew(own, pool(3))
    right = wanted(v, own)
    assert same_bits(replay()[0], right)


@every_variant
def test_a_recording_survives_the_growth_of_its_buffers(v):
    buffers, x, y = SplitBuffers(DEVICE), pool(), pool(5, pages=50)
    own = split_inputs(buffers, x.source, x.page_size, x.indices)
    replay = recorded(v, own)
    grown = split_inputs(buffers, y.source, y.page_size, y.indices)
    assert grown.destination.data_ptr() != own.destination.data_ptr()
    later = wanted(v, grown)
    assert same_bits(v(grown).split, later)
    renew(own, pool(3))
    right = wanted(v, own)
    assert same_bits(replay()[0], right)
    assert same_bits(grown.destination, later), "a replay wrote the memory that replaced its own"
