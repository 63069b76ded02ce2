"""A step copies what was written since the last one: chains of steps, and steps that forget."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.gate import check
from workbench.layouts import footer_584
from workbench.models.ledger import ledger
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.page_split import definition as split
from workbench.ops.page_split_step.definition import dirty_tokens, pages_of

STEP = OPS["page_split_step"]
SMALL = STEP.Workload(pages=6, batch=2, window=70, written=5)
every_variant = pytest.mark.parametrize("v", STEP.variants.values(), ids=STEP.variants)


def inputs(**changes):
    return STEP.make_inputs(replace(SMALL, **changes), DEVICE)


def mirror(x) -> torch.Tensor:
    """A fresh split of the whole pool, the pads as a destination is born with."""
    born = torch.full_like(x.destination, split.SENTINEL)
    return split.reference(pages_of(x, None)._replace(destination=born)).split


def written(x, tokens: list[int], step: int) -> None:
    """New bytes for the rows of `tokens`."""
    for part in footer_584.rows_and_scales(x.source, x.page_size):
        for token in tokens:
            part[token // x.page_size, token % x.page_size] += 1 + step


def test_inputs_mirror_the_pool_but_for_the_dirty_rows():
    x = inputs(page_size=128)
    off = (x.destination != mirror(x)).any(1).nonzero().flatten().tolist()
    tokens = dirty_tokens(x)
    assert len(tokens) == 10 and off == (tokens // 64).unique().tolist()
    here = footer_584.rows_and_scales(x.destination, 64)
    there = footer_584.rows_and_scales(mirror(x), 64)
    for have, want in zip(here, there, strict=True):
        differs = (have != want).any(-1).flatten()
        assert differs.nonzero().flatten().tolist() == tokens.tolist(), "not in every part of a row"


@pytest.mark.parametrize("size", [128, 256, 320])
@every_variant
def test_five_steps_keep_the_mirror(v, size):
    """Windows walk over the end of a page; each step's rows are dirty once and never again."""
    x = inputs(page_size=size)
    assert v(x).split.data_ptr() == x.destination.data_ptr()
    start, batch, window, new = size - 22, 2, 70, 9
    for step in range(5):
        ends = [start + new * (step + 1) + 3 * size * b for b in range(batch)]
        last = [list(range(end - new, end)) for end in ends]
        written(x, [token for tokens in last for token in tokens], step)
        windows = [list(range(end - window, end)) for end in ends]
        x = x._replace(indices=torch.tensor(windows, dtype=torch.int32, device=DEVICE),
                       dirty=torch.tensor(last, dtype=torch.int32, device=DEVICE))  # fmt: skip
        assert not STEP.doubts(x), "a variant may not assume what these steps do"
        v(x)
        wrong = (x.destination != mirror(x)).any(1).nonzero().flatten().tolist()
        assert not wrong, f"step {step}: destination pages {wrong} are no longer the pool's"
    assert ends[0] > size > ends[0] - 5 * new, "no step crossed a page"


@every_variant
def test_a_row_that_is_written_again_is_copied_again(v):
    x = inputs()
    for step in range(2):
        written(x, dirty_tokens(x).tolist(), step)
        v(x)
        assert same_bits(x.destination, mirror(x)), f"step {step}"


@every_variant
def test_what_a_step_may_leave_alone_it_may_also_repeat(v):
    """From a destination that mirrors nothing: dirty rows are right, no byte is of neither kind."""
    x = inputs()
    x.destination.random_(generator=torch.Generator(DEVICE).manual_seed(1))
    before = x._replace(destination=x.destination.clone())
    verdict = STEP.compare(x, v(x), STEP.reference(before))
    assert verdict.passed, verdict


@every_variant
def test_dirty_lanes_may_be_strided_wide_and_of_any_shape(v):
    x, y, z = (inputs() for _ in range(3))
    lanes = torch.full((2, 5, 3), -1, dtype=torch.int64, device=DEVICE)
    lanes[..., 1] = y.dirty
    v(x)
    v(y._replace(dirty=lanes[..., 1]))
    v(z._replace(dirty=torch.cat((lanes, lanes)), indices=z.indices.long().flatten()))
    whole = mirror(x)
    assert all(same_bits(each.destination, whole) for each in (x, y, z))


def rows_by_hand(x, keep=lambda tokens: tokens, scales=True, footer=None, spill=0):
    """Copies the rows of `keep(dirty)`; the other arguments are faults."""
    tokens = keep(dirty_tokens(x)).tolist()
    for token in tokens:
        page, place = divmod(token, x.page_size)
        copy, where = divmod(token, 64)
        row = x.source[page, place * 576 : place * 576 + 576 + spill]
        x.destination[copy, where * 576 : where * 576 + 576 + spill] = row
        at = (x.page_size if footer is None else footer) * 576 + place * 8
        if scales:
            x.destination[copy, 36864 + where * 8 : 36872 + where * 8] = x.source[page, at : at + 8]
    return STEP.Output(x.destination)


def poked(x, place: int, value: int):
    """The right rows, and one byte more."""
    split_ = rows_by_hand(x)
    x.destination.view(-1)[place] = value
    return split_


WRONG = {
    "the last dirty row forgotten": (partial(rows_by_hand, keep=lambda t: t[:-1]), "data byte"),
    "the first dirty row forgotten": (partial(rows_by_hand, keep=lambda t: t[1:]), "data byte"),
    "no row copied": (partial(rows_by_hand, keep=lambda t: t[:0]), "data byte"),
    "no scales": (partial(rows_by_hand, scales=False), "scale byte"),
    "footer of a page of 64": (partial(rows_by_hand, footer=64), "scale byte"),
    "tokens of the step before": (partial(rows_by_hand, keep=lambda t: t - 5), "data byte"),
    "the pad written": (partial(poked, place=37376, value=0), "pad byte 37376"),
    "another row changed": (partial(poked, place=23 * 37440 + 1000, value=0x11), "data byte 1000"),
    "a new destination": (lambda x: STEP.Output(rows_by_hand(x).split.clone()), "not a view"),
}  # fmt: skip


def gate(run, w=SMALL):
    v = Variant("by hand", STEP, lambda x, config: run(x), None, "a test", capturable=False)
    return check(v, w, device=DEVICE)


@pytest.mark.parametrize("page_size", [128, 256])
def test_rows_copied_by_hand_pass(page_size):
    verdict = gate(rows_by_hand, replace(SMALL, page_size=page_size))
    assert verdict.passed, verdict


@pytest.mark.parametrize(("run", "why"), WRONG.values(), ids=WRONG)
def test_the_gate_refuses(run, why):
    verdict = gate(run)
    assert verdict.status == "incorrect" and why in verdict.why, verdict


def test_pages_of_64_are_the_source_and_nothing_is_written():
    w = replace(SMALL, page_size=64)
    assert gate(lambda x: STEP.Output(x.source), w).passed
    verdict = gate(lambda x: STEP.Output(x.destination), w)
    assert verdict.status == "incorrect" and "source itself" in verdict.why
    x = inputs(page_size=64)
    assert STEP.cost(x) == (0, 0) and STEP.shared_bytes([x, x]) == 0


@pytest.mark.parametrize("changes", [{"written": -1}, {"written": 71}, {"page_size": 100},
                                     {"window": 0}, {"invalid": 2.0}])  # fmt: skip
def test_a_workload_that_makes_no_sense_is_refused_with_its_value(changes):
    ((name, value),) = changes.items()
    with pytest.raises(ValueError, match=f"{name}={value}"):
        replace(SMALL, **changes)


@pytest.mark.parametrize("name", ["indices", "dirty"])
@pytest.mark.parametrize("tokens", [None, torch.zeros(3)])
def test_tokens_that_are_no_whole_numbers_are_refused(name, tokens):
    with pytest.raises(ValueError, match=f"{name} are"):
        STEP.variants["eager_rows"](inputs()._replace(**{name: tokens}))


def test_costs_count_distinct_rows_and_steps_that_break_the_contract_are_doubted():
    x = inputs()
    valid = set(x.dirty.flatten().tolist())
    assert len(valid) == 10 and STEP.cost(x).bytes == 2 * 584 * 10 + 4 * 10
    twice = x._replace(dirty=torch.cat((x.dirty, x.dirty, torch.full_like(x.dirty, -1))))
    assert STEP.cost(twice).bytes == 2 * 584 * 10 + 4 * 30
    found = STEP.statistics(twice)
    assert (found["dirty_rows"], found["row_bytes"]) == (10, 584)
    counts, pages = ledger("page_split_step", twice), len({t // 256 for t in valid})
    assert counts["dirty_rows"] == 10 and counts["dirty_pages"] == pages
    assert counts["dirty_copy_bytes"] == pages * 2 * 256 * 584 <= counts["touched_copy_bytes"]
    assert STEP.shared_bytes([x, twice]) == 2 * 584 * 10 and STEP.shared_bytes([x]) == 0
    assert STEP.doubts(x) == []
    assert "10 dirty rows" in STEP.doubts(x._replace(indices=x.indices.fill_(-1)))[0]
    dummies = x._replace(indices=twice.dirty, dirty=x.dirty[:1, :1].expand(4, 5))
    (said,) = STEP.doubts(dummies)
    assert said.startswith("dirty: dummies")
