"""State on the device: an epoch of its own for each variant, through its wrap, on any server's."""

from dataclasses import replace

import pytest
import torch
from conftest import DEVICE

from workbench.ops import OPS
from workbench.ops.page_split.kernels._blocks import LAST_EPOCH

SPLIT = OPS["page_split"]
ROWS = {"stamped": 0, "listed": 1}  # of the stamps, one a variant
HEADS = {"stamped": 2, "listed": 4}  # words before the stamps of pages
every_variant = pytest.mark.parametrize("name", ROWS)


def fresh(**changes):
    return SPLIT.make_inputs(SPLIT.Workload(**{"pages": 4, "batch": 2, "window": 40} | changes),
                             DEVICE)  # fmt: skip


def right(name, x):
    """Whether a call copies every touched page and no other."""
    before = x._replace(destination=x.destination.clone())
    return torch.equal(SPLIT.variants[name](x).split, SPLIT.reference(before).split)


def aged(name, x, stamp: int, epoch: int):
    """The variant's row as after `epoch` launches, every page last copied by number `stamp`."""
    row = x.stamps[ROWS[name]]
    row[HEADS[name] :] = stamp
    row[0] = epoch
    return row


@every_variant
def test_each_launch_is_an_epoch(name):
    x = fresh()
    row = x.stamps[ROWS[name]]
    for epoch in (1, 2, 3):
        assert right(name, x)
        assert row[:2].tolist() == [epoch, 0], "the last program advances the epoch"
        x.source.bitwise_not_()
    assert not x.stamps[1 - ROWS[name]].any(), "another variant's state was touched"


def test_a_page_is_stamped_by_sub_page_or_whole():
    x = fresh()
    pages = sorted({int(t) // 256 for t in x.indices.flatten()})
    rest = [page for page in range(4) if page not in pages]
    assert right("stamped", x) and right("listed", x)
    subs, whole = x.stamps[0, 2 : 2 + 16].view(4, 4), x.stamps[1, 4:8]
    assert (subs[pages] == 1).all() and not subs[rest].any()
    assert (whole[pages] == 1).all() and not whole[rest].any()
    room = (x.stamps.shape[1] - 4) // 2
    assert x.stamps[1, 2:4].tolist() == [0, len(pages)]
    assert sorted(x.stamps[1, 4 + room :][: len(pages)].tolist()) == pages, "each page once"


@every_variant
@pytest.mark.parametrize("start", [LAST_EPOCH - 2, LAST_EPOCH - 1, LAST_EPOCH])
def test_the_wrap_copies_too(name, start):
    x = fresh()
    row = aged(name, x, start, start)
    for _ in range(5):
        assert right(name, x), f"epoch {int(row[0])} copied nothing"
        x.source.bitwise_not_()
    assert 0 < int(row[0]) < 5, "it starts anew"


@every_variant
def test_a_stamp_from_before_the_wrap_is_forgotten(name):
    """Epoch 1 comes again: a page that the first epoch 1 copied must not look as if it were new."""
    x = fresh()
    row = aged(name, x, 1, LAST_EPOCH)
    assert right(name, x) and int(row[0]) == 0
    x.source.bitwise_not_()
    assert right(name, x) and int(row[0]) == 1


@every_variant
def test_what_lies_past_the_pool_at_hand_is_cleared_with_it(name):
    """A smaller pool on the memory of a larger one: the larger one's stamps wrap as well."""
    large, small = fresh(pages=9), fresh(pages=2)
    aged(name, large, 1, LAST_EPOCH)
    assert right(name, small._replace(stamps=large.stamps))
    assert right(name, large), "a page of the larger pool was taken as copied"


@every_variant
def test_no_lane_leaves_the_epoch_alone(name):
    x = fresh(touch="empty")
    assert right(name, x) and not x.stamps.any()


@every_variant
def test_pools_of_two_page_sizes_may_share_the_memory(name):
    wide, narrow = fresh(), fresh(page_size=128, pages=8)
    for _ in range(3):
        assert right(name, wide) and right(name, narrow._replace(stamps=wide.stamps))
        wide.source.bitwise_not_(), narrow.source.bitwise_not_()


@pytest.mark.parametrize("shape, dtype", [
    ((2, 19), torch.int32), ((1, 20), torch.int32), ((40,), torch.int32), ((2, 20), torch.int64),
    ((), torch.int32), ((2,), torch.int32), ((2, 20, 1), torch.int32),
])  # fmt: skip
def test_stamps_of_another_form_are_refused(shape, dtype):
    stamps = torch.zeros(shape, dtype=dtype, device=DEVICE)
    with pytest.raises(ValueError, match=r"needs int32 \[2, 20\] or wider"):
        SPLIT.variants["stamped"](fresh()._replace(stamps=stamps))


def test_stamps_whose_words_lie_apart_are_refused():
    stamps = torch.zeros(20, 2, dtype=torch.int32, device=DEVICE).mT
    with pytest.raises(ValueError, match=r"strides \(1, 2\), needs int32 \[2, 20\]"):
        SPLIT.variants["listed"](fresh()._replace(stamps=stamps))


@pytest.mark.parametrize("programs", [0, -3])
def test_a_list_that_nobody_would_copy_is_refused(programs):
    with pytest.raises(ValueError, match=f"programs={programs} is below 1"):
        replace(SPLIT.variants["listed"].config, programs=programs)
