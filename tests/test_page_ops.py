"""Addresses past 32 bits in the ops beside the page split: a step's rows, and reads of a pool.

As in test_offsets: a few pages that stand far apart, in memory that is mostly never touched.
"""

import pytest
import torch
from conftest import DEVICE
from test_offsets import LOST, LOST_WIDE, ROOM, STRIDES, behind, far, mapped, one_in

from workbench.compare import same_bits
from workbench.ops import OPS

SPLIT, STEP, READ = OPS["page_split"], OPS["page_split_step"], OPS["paged_read"]
steps = pytest.mark.parametrize("v", STEP.variants.values(), ids=STEP.variants)
reads = pytest.mark.parametrize("v", READ.variants.values(), ids=READ.variants)
strides = pytest.mark.parametrize("stride", STRIDES)


def lanes(tokens: list[int], dtype=torch.int32) -> torch.Tensor:
    return torch.tensor([tokens], dtype=dtype, device=DEVICE)


def step_inputs(pages: int, tokens: list[int]):
    """A pool of 128-token pages that one row in each of some pages was written in."""
    x = STEP.make_inputs(STEP.Workload(pages=pages, page_size=128, batch=1, written=0), DEVICE)
    here = lanes(tokens)
    for token in tokens:
        x.source[token // 128, token % 128 * 576] ^= 0xFF
        x.source[token // 128, 128 * 576 + token % 128 * 8] ^= 0xFF
    return x._replace(indices=here, dirty=here.clone())


def read_inputs(pages: int, tokens: list[int]):
    x = READ.make_inputs(READ.Workload(pages=pages, page_size=128, batch=1, window=len(tokens)),
                         DEVICE)  # fmt: skip
    return x._replace(indices=lanes(tokens))


def same_step(v, x, near) -> None:
    """`v` on `x` is right for the same bytes close together; its dirty rows were not before."""
    expected = STEP.reference(near).split
    assert not same_bits(expected, near.destination)
    assert STEP.compare(x, v(x), STEP.Output(expected)).passed
    wrong = [n for n in range(len(expected)) if not torch.equal(x.destination[n], expected[n])]
    assert not wrong, f"destination pages {wrong} differ"


@strides
@steps
def test_source_pages_of_a_step_far_apart(v, stride):
    near = step_inputs(34, one_in(sorted({p + d for p in STRIDES[stride] for d in (-1, 0, 1)})))
    x = near._replace(source=far(near.source, stride), destination=near.destination.clone())
    same_step(v, x, near)


@strides
@steps
def test_destination_pages_of_a_step_far_apart(v, stride):
    touched = sorted({p // 2 + d for p in STRIDES[stride] for d in (-1, 0)})  # two parts a page
    near = step_inputs(17, [128 * page + at for page in touched for at in (5, 127)])
    x = near._replace(destination=far(near.destination, stride))
    beside = behind(x.destination).fill_(0x5A)
    same_step(v, x, near)
    assert (beside == 0x5A).all(), "memory behind a destination page was written"


@strides
@reads
def test_source_pages_of_a_read_far_apart(v, stride):
    near = read_inputs(34, one_in(sorted({p + d for p in STRIDES[stride] for d in (-1, 0, 1)})))
    expected = READ.reference(near).rows
    assert same_bits(v(near._replace(source=far(near.source, stride))).rows, expected)


@reads
@pytest.mark.parametrize("axis", [0, 1])
@strides
def test_rows_far_apart(v, axis, stride):
    """Requests, or the lanes of one, whose rows begin at 2**31 and 2**32 bytes and words."""
    near = read_inputs(6, [37 * i % 768 for i in range(34)])
    apart = far(near.rows[0], stride)  # [34, 584]
    beside = behind(apart).fill_(0x5A)
    rows, indices = (t.unsqueeze(1 - axis) for t in (apart, near.indices[0]))
    expected = READ.reference(near).rows[0]
    got = v(near._replace(indices=indices, rows=rows)).rows.squeeze(1 - axis)
    wrong = [n for n in range(34) if not torch.equal(got[n], expected[n])]
    assert not wrong, f"rows {wrong} differ"
    assert (beside == 0x5A).all(), "memory behind a row was written"


WILD = pytest.mark.parametrize(
    "tokens, dtype", [(LOST, torch.int32), (LOST, torch.int64), (LOST_WIDE, torch.int64)]
)


@WILD
@steps
def test_a_dirty_token_past_the_pool_is_no_row(v, tokens, dtype):
    near = step_inputs(6, [5, 300])
    wild = lanes([*tokens, 5, *tokens, 300], dtype)
    x = near._replace(dirty=wild, indices=wild, destination=far(near.destination, 37440))
    beside = x.destination.as_strided((1 << 20,), (1,), ROOM - (1 << 20)).fill_(0x5A)
    same_step(v, x, near)
    assert (beside == 0x5A).all(), "memory before the destination was written"


@WILD
@reads
def test_a_token_past_the_pool_reads_zeros(v, tokens, dtype):
    """There is memory where it would stand, and it is not zero."""
    whole = mapped(1 << 31)
    whole[: 1 << 23] = 0x77
    near = read_inputs(6, [5] * (2 * len(tokens) + 1))
    source = whole[1 << 22 : (1 << 22) + near.source.numel()].view(near.source.shape)
    source.copy_(near.source)
    x = near._replace(source=source, indices=lanes([*tokens, 5, *tokens], dtype))
    got = v(x).rows[0]
    middle = len(tokens)
    assert same_bits(got[middle], READ.reference(near).rows[0, 0])
    assert not got[:middle].any() and not got[middle + 1 :].any()


def test_more_lanes_than_32_bits_number_are_refused():
    x = SPLIT.make_inputs(SPLIT.Workload(pages=2, batch=1, window=1), DEVICE)
    with pytest.raises(ValueError, match="indices have 2147483648 lanes"):
        SPLIT.validate(x._replace(indices=x.indices.expand(2, 2**30)))


@pytest.mark.parametrize("name, bytes_", [("source", 149508), ("destination", 37380)])
def test_pages_of_no_whole_words_are_refused(name, bytes_):
    """Though their stride is one: a kernel sees them as words."""
    x = SPLIT.make_inputs(SPLIT.Workload(pages=2, batch=1), DEVICE)
    with pytest.raises(ValueError, match=f"{name} has stride .* pages of {bytes_} bytes"):
        SPLIT.variants["claimed"](x._replace(**{name: getattr(x, name)[:, :bytes_]}))
