"""Rows are read alike out of pages of any size: split or not, near or apart, a lane or none."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.gate import check
from workbench.models.ledger import ledger
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.page_split import definition as split

READ, SPLIT = OPS["paged_read"], OPS["page_split"]
SMALL = READ.Workload(pages=6, batch=2, window=70, invalid=0.2)
every_variant = pytest.mark.parametrize("v", READ.variants.values(), ids=READ.variants)


def inputs(**changes):
    return READ.make_inputs(replace(SMALL, **changes), DEVICE)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("size", [128, 192, 256])
@pytest.mark.parametrize("touch", ["window", "scattered"])
def test_pages_as_they_lie_and_split_ones_read_alike(touch, size, padded):
    """Token numbers do not change by a split (seed 000): the same indices, bit for bit."""
    direct = READ.variants["direct"]
    x = inputs(page_size=size, touch=touch, padded=padded)
    whole = split.Inputs(x.source, size, None, x.destination, x.mask, x.stamps)
    pages = SPLIT.reference(whole).split
    y = x._replace(source=pages, page_size=64, rows=torch.zeros_like(x.rows))
    rows = direct(x).rows
    assert same_bits(rows, direct(y).rows)
    assert rows.flatten(0, 1).any(1).sum() == ((x.indices >= 0) & (x.indices < 6 * size)).sum()


@every_variant
def test_rows_are_written_where_their_strides_say(v):
    """Requests far apart and out of order in one buffer; nothing beside a row is touched."""
    near = inputs()
    buffer = torch.full((70, 5, 600), 0x5A, dtype=torch.uint8, device=DEVICE)
    apart = buffer[:, 1:4:2].transpose(0, 1)  # [2, 70, 600]
    x = near._replace(rows=apart)
    got = v(x).rows
    assert got.data_ptr() == apart.data_ptr()
    assert same_bits(got[..., :584], v(near).rows)
    assert (apart[..., 584:] == 0x5A).all() and (buffer[:, ::2] == 0x5A).all()


@every_variant
def test_lanes_without_a_token_are_zero_whatever_was_there(v):
    end = 6 * 256
    lost = [-1, -(2**31), end, end + 5, 2**31 - 1]
    x = inputs(window=6, batch=1)
    for dtype, tokens in ((torch.int32, lost), (torch.int64, [*lost, 2**32, 2**40 + 3, -(2**32)])):
        lanes = torch.tensor([[*tokens, end - 1]], dtype=dtype, device=DEVICE)
        rows = torch.full((1, lanes.shape[1], 584), 0x77, dtype=torch.uint8, device=DEVICE)
        got = v(x._replace(indices=lanes, rows=rows)).rows
        assert not got[0, :-1].any() and got[0, -1].any()


@every_variant
def test_narrow_wide_and_strided_indices_read_the_same_rows(v):
    x = inputs()
    expected = v(x).rows.clone()
    wide = torch.full((2, 70, 2), -1, dtype=torch.int64, device=DEVICE)
    wide[..., 1] = x.indices
    for lanes in (x.indices.long(), wide[..., 1], x.indices.t().contiguous().t()):
        assert same_bits(v(x._replace(indices=lanes, rows=x.rows.fill_(3))).rows, expected)


def test_pages_that_cannot_be_split_are_refused_by_name_and_read_by_the_others():
    w = replace(SMALL, page_size=2)
    said = {v.name: v.requires(w, v.config) for v in READ.variants.values()}
    why = "pages of 2 tokens cannot be split into 64"
    assert said == {"eager": None, "direct": None, "masked_then_read": why, "split_then_read": why}


def test_at_64_tokens_nothing_is_split():
    for v in READ.variants.values():
        x = inputs(page_size=64)
        v(x)
        assert (x.destination == split.SENTINEL).all() and (x.mask == split.SENTINEL).all()


def by_hand(x, until=None, footer=None, lost=0, row=576):
    """Reads lane by lane; the arguments are faults."""
    end = len(x.source) * x.page_size if until is None else until
    for lane, token in enumerate(x.indices.flatten().tolist()):
        out = x.rows[lane // x.indices.shape[1], lane % x.indices.shape[1]]
        if not 0 <= token < end:
            out[:584] = lost
            continue
        page, place = divmod(token, x.page_size)
        at = (x.page_size if footer is None else footer) * 576 + place * 8
        out[:576] = x.source[page, place * row : place * row + 576]
        out[576:584] = x.source[page, at : at + 8]
    return READ.Output(x.rows)


def poked(x, at: tuple, name: str = "rows"):
    result = by_hand(x)
    getattr(x, name)[at] = 0x11
    return result


def stale(x):
    """Leaves lanes as they are that name no token."""
    before = x.rows.clone()
    valid = (x.indices >= 0) & (x.indices < len(x.source) * x.page_size)
    x.rows.copy_(torch.where(valid[..., None], by_hand(x).rows, before))
    return READ.Output(x.rows)


WRONG = {
    "lanes without a token keep what was there": (stale, "(no token: "),
    "lanes without a token read token 0": (partial(by_hand, lost=1), "(no token: "),
    "the last page not read": (partial(by_hand, until=5 * 256), "differs at data byte 0"),
    "footer of a page of 64": (partial(by_hand, footer=64), "differs at scale byte"),
    "rows of 584 bytes": (partial(by_hand, row=584), "differs at data byte"),
    "beside a row": (partial(poked, at=(1, 3, 590)), "differs at pad byte 590"),
    "rows of its own": (lambda x: READ.Output(by_hand(x).rows.clone()), "memory that was given"),
    "the pool changed": (partial(poked, at=(0, 5), name="source"), "source was modified"),
}  # fmt: skip


def gate(run):
    v = Variant("by hand", READ, lambda x, config: run(x), None, "a test", capturable=False)
    return check(v, replace(SMALL, touch="scattered", row_bytes=592), device=DEVICE)


def test_rows_read_by_hand_pass():
    verdict = gate(by_hand)
    assert verdict.passed, verdict


@pytest.mark.parametrize(("run", "why"), WRONG.values(), ids=WRONG)
def test_the_gate_refuses(run, why):
    verdict = gate(run)
    assert verdict.status == "incorrect" and why in verdict.why, verdict


@pytest.mark.parametrize("changes", [{"page_size": 0}, {"pages": 0}, {"window": 0}, {"batch": -1},
                                     {"touch": "share"}, {"invalid": -0.1}, {"row_bytes": 580},
                                     {"row_bytes": 588}])  # fmt: skip
def test_a_workload_that_makes_no_sense_is_refused_with_its_value(changes):
    ((name, value),) = changes.items()
    with pytest.raises(ValueError, match=f"{name}={value!r}"):
        replace(SMALL, **changes)


@pytest.mark.parametrize("name, wrong, said", [
    ("rows", lambda x: x.rows[:1], "rows have shape"),
    ("rows", lambda x: x.rows[..., :580], "rows have shape"),
    ("rows", lambda x: torch.zeros(2, 70, 585, dtype=torch.uint8)[..., :584], "strides"),
    ("rows", lambda x: x.rows.float(), "not uint8"),
    ("source", lambda x: x.source[:, :1000], "source has shape"),
    ("source", lambda x: x.source.flip(1).t().contiguous().t(), "last stride"),
    ("indices", lambda x: x.indices.flatten(), "indices are"),
    ("indices", lambda x: x.indices.float(), "indices are"),
    ("page_size", lambda x: 0, "page_size=0"),
])  # fmt: skip
def test_tensors_that_would_be_read_as_something_else_are_refused(name, wrong, said):
    x = inputs()
    with pytest.raises(ValueError, match=said):
        READ.variants["direct"](x._replace(**{name: wrong(x)}))


def test_costs_count_a_row_once_and_a_lane_each_time():
    x = inputs(invalid=0.0)
    x = x._replace(indices=x.indices[:1].expand(2, 70).contiguous())
    assert READ.cost(x).bytes == 584 * (70 + 140) + 4 * 140
    found = READ.statistics(x)
    assert (found["read_rows"], found["row_bytes"]) == (70, 584)
    assert found["touched_bytes"] == found["touched_pages"] * 256 * 584
    counts = ledger("paged_read", x)
    assert (counts["lanes"], counts["unique_rows"]) == (140, 70)
    assert READ.shared_bytes([x, x]) == 584 * 70 and READ.shared_bytes([x]) == 0
