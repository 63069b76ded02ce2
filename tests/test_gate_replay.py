"""The gate refuses page splits that are wrong in what persists: state, and what the host has of it.

Some are right whenever Python calls them and wrong in a graph. Each fault is an edit of code that
passes without it; tests/test_gate.py has the faults of a single call.
"""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.gate import check
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.page_split.definition import all_pages, touched_pages

SPLIT = OPS["page_split"]
W = SPLIT.Workload(pages=12, batch=3, window=200)  # neighbouring seeds touch some pages in common
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other


def lanes(x, page_size=None):
    """For each lane of the indices the page that it names, `pages` where it names none."""
    pages, token = len(x.source), x.indices.flatten().long()
    inside = (token >= 0) & (token < pages * x.page_size)
    return torch.where(inside, token // (page_size or x.page_size), pages).clamp(max=pages)


def marked(x, mask, **page):
    """`mask` [pages], after 1 was written where a lane names a page."""
    spare = torch.zeros(len(mask) + 1, dtype=mask.dtype, device=mask.device)
    mask |= spare.scatter_(0, lanes(x, **page), 1)[:-1]
    return mask


def cleared(x, **page):
    return marked(x, x.mask.zero_(), **page)


def copied(x, mask, to=None):
    """The destination, after the pages of `mask` were copied there."""
    to = x.destination if to is None else to
    whole, ratio = SPLIT.reference(all_pages(x)).split, x.page_size // 64
    touched = mask.bool().view(-1, 1).expand(-1, ratio).reshape(-1, 1)
    to.copy_(torch.where(touched, whole, to))
    return SPLIT.Output(to)


@triton.jit
def _stamp_kernel(named, mine, stamps, epoch, PAGES, ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr):
    """mine: the named pages that bear another stamp than `epoch`; they get it."""
    page = tl.arange(0, BLOCK)
    asked = tl.load(named + page, mask=page < PAGES, other=0) != 0
    stamp = tl.load(stamps + page, mask=asked, other=0)
    now = tl.load(epoch) if ON_DEVICE else epoch
    tl.store(mine + page, asked & (stamp != now), mask=page < PAGES)
    tl.store(stamps + page, now + tl.zeros_like(stamp), mask=asked)


def stamped(x, epoch):
    """Copy the pages that do not bear `epoch` yet: a number, or one on the device."""
    mine, on_device = torch.empty_like(x.mask), isinstance(epoch, torch.Tensor)
    _stamp_kernel[(1,)](
        cleared(x), mine, x.stamps[0, 2:], epoch, len(mine), ON_DEVICE=on_device, BLOCK=64
    )
    return copied(x, mine)


def calls(s):
    """How many there were, this one included: what a host counts and a graph does not."""
    s.calls += 1
    return s.calls


def in_turns(x, s, clears):
    """Two masks in turns; each call clears its own, or (1) that of the next call."""
    turn = calls(s) % 2
    s.masks[(turn + clears) % 2].zero_()
    return copied(x, marked(x, s.masks[turn]))


def where_changed(x, s, *of):
    """Copy only where a tensor of `of` is not what it was in the call before."""
    key = torch.cat([t.flatten().view(torch.uint8) for t in of])
    changed = (key != s.key[: len(key)]).any()
    s.key[: len(key)] = key
    return copied(x, cleared(x) * changed)


def listed(x, s):
    """The pages out of a list that the host makes, past what a gate can see."""
    x.mask.zero_()
    for token in np.from_dlpack(x.indices).flat:
        x.mask[int(token) // x.page_size] = 1
    return copied(x, x.mask)


def right(x, s):
    return copied(x, cleared(x))


def once_written(x, s):
    """Copy only where somebody wrote the indices since the call before."""
    s.written, before = x.indices._version, s.written
    return right(x, s) if s.written != before else SPLIT.Output(x.destination)


# name: (reason, the fault, the same without it), each of the inputs x and of what a server holds
FAULTS = {
    "mask ignored": ("page 4 (untouched) differs", lambda x, s: copied(x, cleared(x) | 1), right),
    "mask never cleared": ("replayed: page 16 (untouched) differs",
        lambda x, s: copied(x, marked(x, s.masks[0])), right),
    "mask cleared while the host thinks it dirty": ("replayed: page 16 (untouched) differs",
        lambda x, s: copied(x, cleared(x) if calls(s) == 1 else marked(x, x.mask)), right),
    "marks token // 64": ("page 4 (untouched) differs",
        lambda x, s: copied(x, cleared(x, page_size=64)), right),
    "one destination for all caches": ("split is not a view of the destination",
        lambda x, s: copied(x, cleared(x), to=s.destination), right),
    "epoch that never advances": ("second call: page 0 (touched) differs",
        lambda x, s: stamped(x, x.stamps[0, :1] + 1),
        lambda x, s: stamped(x, x.stamps[0, :1].add_(1))),
    "marks remembered by shape": ("replayed: page 8 (touched) differs",
        lambda x, s: copied(x, s.marks.setdefault(x.indices.shape, cleared(x).clone())), right),
    "equal indices, nothing copied": ("second call: page 0 (touched) differs",
        lambda x, s: where_changed(x, s, x.indices),
        lambda x, s: where_changed(x, s, x.indices, x.source)),
    "indices not written, nothing copied": ("second call: page 0 (touched) differs",
        once_written, right),
}  # fmt: skip
# These are right as often as Python calls them
GRAPH_FAULTS = {
    "next mask cleared, in turns of the host": (
        f"replayed: page {16 if DEVICE == 'cpu' else 0} (untouched) differs",
        lambda x, s: in_turns(x, s, 1), lambda x, s: in_turns(x, s, 0)),
    "epoch of the host": ("replayed: page 0 (touched) differs",
        lambda x, s: stamped(x, calls(s)), lambda x, s: stamped(x, x.stamps[0, :1].add_(1))),
    "pages listed on the host": ("replayed: page 8 (touched) differs", listed, right),
}  # fmt: skip


def gate(run, s=None, x=None, w=W, **declared):
    """The verdict on an unregistered split, which may hold `s` from call to call."""
    x = x or SPLIT.make_inputs(w, DEVICE)
    s = s or SimpleNamespace(
        calls=0, written=None, marks={},
        masks=torch.zeros(2, w.pages, dtype=torch.uint8, device=DEVICE),
        destination=x.destination.clone(),
        key=torch.zeros(x.source.numel() + 4 * x.indices.numel(), dtype=torch.uint8, device=DEVICE),
    )  # fmt: skip
    v = Variant("wrong", SPLIT, lambda x, config: run(x, s), None, "a test", **declared)
    return check(v, w, device=DEVICE, inputs=x)


@pytest.mark.parametrize("name", FAULTS | GRAPH_FAULTS)
def test_a_fault_of_what_persists_is_refused(name):
    if name == "pages listed on the host" and DEVICE != "cpu":
        pytest.skip("the host cannot look into a GPU's memory")
    why, wrong, honest = (FAULTS | GRAPH_FAULTS)[name]
    verdict = gate(honest)
    assert verdict.passed, verdict
    verdict = gate(wrong)
    assert verdict.status == "incorrect" and why in verdict.why, verdict
    assert gate(wrong, capturable=False).passed == (name in GRAPH_FAULTS)


def test_an_epoch_of_the_host_is_refused_where_other_indices_touch_other_pages():
    apart = SPLIT.Workload(pages=50, batch=2, window=70)
    each = [touched_pages(SPLIT.make_inputs(replace(apart, seed=n), DEVICE)) for n in (0, 2)]
    assert not torch.isin(*each).any()
    _, wrong, honest = GRAPH_FAULTS["epoch of the host"]
    assert gate(honest, w=apart).passed
    verdict = gate(wrong, w=apart)
    assert verdict.why.startswith("replayed: page") and "(touched) differs" in verdict.why, verdict


def test_memory_of_one_cache_is_no_answer_for_another():
    def first_one(x, s):
        s.destination = getattr(s, "destination", x.destination)
        return copied(x, cleared(x), to=s.destination)

    held = SimpleNamespace()
    assert gate(first_one, held).passed
    verdict = gate(first_one, held)
    assert "not a view of the destination" in verdict.why, verdict


def test_inputs_come_back_as_they_were():
    x, untouched = (SPLIT.make_inputs(W, DEVICE) for _ in range(2))
    assert gate(right, x=x).passed
    for name in ("source", "indices", *SPLIT.writes):
        assert same_bits(getattr(x, name), getattr(untouched, name)), f"{name} is another"
