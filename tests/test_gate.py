"""The gate refuses wrong kernels, each for its own reason; the same code without the fault passes.

A fault is an edit of what an honest variant is given or of what it returns, or a switch in code
that is right when it is off. None of these variants is registered. Faults that end their process
are in test_isolate.py.
"""

import contextlib
import math
from functools import cache, partial

import pytest
import torch
from conftest import DEVICE

from workbench.gate import check
from workbench.op import Variant
from workbench.ops import OPS
from workbench.ops.page_split import definition as pages
from workbench.ops.sparse_prefill.definition import DC, valid_lanes

PREFILL, SPLIT, PLAN = (OPS[name] for name in ("sparse_prefill", "page_split", "union_plan"))
attention = partial(PREFILL.variants["eager"].run, config=None)
copy_all = partial(SPLIT.variants["eager_full"].run, config=None)
copy_touched = partial(SPLIT.variants["eager_masked"].run, config=None)
plan = partial(PLAN.variants["eager"].run, config=None)
HONEST = {PREFILL.Workload: attention, SPLIT.Workload: copy_touched, PLAN.Workload: plan}
LN_2 = math.log(2)
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other


def prefill(**changes):
    return PREFILL.Workload(**{"tokens": 5, "topk": 70, "rows": 160, "churn": 0.3} | changes)


def split(**changes):
    return SPLIT.Workload(**{"pages": 6, "batch": 2, "window": 70} | changes)


def gate(run, w, **declared):
    """The verdict on an unregistered variant; `run` takes the inputs alone."""
    (op,) = (op for op in OPS.values() if op.Workload is type(w))
    declared = {"capturable": op is not SPLIT} | declared
    v = Variant("wrong", op, lambda x, config: run(x), None, "a test", **declared)
    return check(v, w, device=DEVICE)


def refused(verdict, why: str, status: str = "incorrect") -> None:
    assert verdict.status == status and why in verdict.why, verdict


def unwritten_element(r):
    out = torch.empty_like(r.out)
    out.flatten()[:-1] = r.out.flatten()[:-1]
    return r._replace(out=out)


def stored(count, r):
    """Each token, the last one first, stores `count` rows of heads, the spare ones zero."""
    tokens, heads, _ = r.out.shape
    flat = r.out.new_zeros(tokens * heads + count, DC)
    for t in reversed(range(tokens)):
        flat[t * heads : t * heads + count] = 0
        flat[t * heads : (t + 1) * heads] = r.out[t]
    return r._replace(out=flat[: tokens * heads].view_as(r.out))


def poked(tensor, place, value, r):
    """`r`, after one element was written at `place` of the memory that `tensor` begins."""
    tensor.as_strided((1,), (1,), tensor.storage_offset() + place).fill_(value)
    return r


def scaled(row, factor, r):
    r.out[row] *= factor
    return r


def page_by_page(x, touched=pages.touched_pages, footer=lambda x, s: x.page_size * 576 + s * 512):
    """The copy of `touched(x)` pages; the scales of sub-page s stand at `footer(x, s)`."""
    ratio, found = x.page_size // 64, touched(x)
    for s in range(ratio):
        data = x.source[found, s * pages.DATA_BYTES : (s + 1) * pages.DATA_BYTES]
        scales = x.source[found, footer(x, s) : footer(x, s) + pages.SCALES_BYTES]
        x.destination[found * ratio + s, : pages.COPIED_BYTES] = torch.cat((data, scales), 1)
    return SPLIT.Output(x.destination)


# name: (workload, reason, what it makes of the inputs x and the right result r)
same = PLAN.Workload(tokens=8, topk=24, rows=64, churn=0.0)  # the union of a group has 24 rows
WRONG = {
    "scale": (prefill(), "lse is off",
        lambda x, r: attention(x._replace(sm_scale=1.02 * x.sm_scale))),
    "last of 2048 slots dropped": (prefill(tokens=2, topk=2048, rows=4096), "lse is off",
        lambda x, r: attention(x._replace(indices=x.indices[:, :-1]))),
    "last of 2048 slots dropped, lse right": (prefill(tokens=2, topk=2048, rows=4096), "out is off",
        lambda x, r: attention(x._replace(indices=x.indices[:, :-1]))._replace(lse=r.lse)),
    "padding is row 0, NaN": (prefill(padding="mixed", holes=0.4), "out is not finite",
        lambda x, r: attention(x._replace(indices=x.indices.clamp(min=0)))),
    "padding is row 0, selected by others": (prefill(rows=32), "lse is off",
        lambda x, r: attention(x._replace(indices=x.indices.clamp(min=0)))),
    "topk_length ignored": (prefill(law="uniform", length="ragged"), "out is not finite",
        lambda x, r: attention(x._replace(topk_length=None))),
    "lane at topk_length": (prefill(tokens=9, churn=0.0, length="ragged"), "lse is off",
        lambda x, r: attention(x._replace(topk_length=x.topk_length.clamp(min=0) + 1))),
    "row counted twice": (prefill(rows=32), "lse is off",
        lambda x, r: attention(x._replace(indices=x.indices[:, [*range(70), 0]]))),
    "sink left out": (prefill(rows=8, sink="random"), "out is off",
        lambda x, r: attention(x._replace(attn_sink=None))),
    "lse includes the sink": (prefill(sink="random"), "lse is off",
        lambda x, r: r._replace(lse=torch.logaddexp2(r.lse, x.attn_sink / LN_2))),
    "natural-log lse": (prefill(), "lse is off", lambda x, r: r._replace(lse=r.lse * LN_2)),
    "lse of an empty row is +inf": (prefill(holes=1.0), "lse is not -inf exactly",
        lambda x, r: r._replace(lse=-r.lse)),
    "empty row not zero": (prefill(holes=1.0), "out is not zero where no lane",
        lambda x, r: r._replace(out=r.out + 1e-6)),
    "element never written": (prefill(), "out is not finite, first at token 4 head 7",
        lambda x, r: unwritten_element(r)),
    "query overwritten": (prefill(), "input q was modified", lambda x, r: poked(x.q, 0, 1, r)),
    "cache overwritten": (prefill(), "input kv was modified", lambda x, r: poked(x.kv, 0, 1, r)),
    "heads over the next token": (prefill(heads=12), "out is off", lambda x, r: stored(16, r)),
    "one row of 512": (prefill(tokens=64, rows=256), "out of token, head (40, 5) is off",
        lambda x, r: scaled((40, 5), 1.02, r)),
    "every row a little": (prefill(), "out is off", lambda x, r: r._replace(out=r.out * 1.004)),
    "dtype": (prefill(), "out is torch.float32", lambda x, r: r._replace(out=r.out.float())),
    "shape": (prefill(), "shape (5, 8, 511)", lambda x, r: r._replace(out=r.out[..., 1:])),
    "no tensor": (prefill(), "lse is NoneType", lambda x, r: r._replace(lse=None)),
    "None": (prefill(), "returned NoneType, not Output", lambda x, r: None),
    "number": (prefill(), "returned int, not Output", lambda x, r: 0),
    "bare tuple": (prefill(), "returned tuple, not Output", lambda x, r: tuple(r)),
    "past the destination": (split(), "memory beside destination",
        lambda x, r: poked(x.destination, x.destination.numel(), 0, r)),
    "before the destination": (split(), "memory beside destination",
        lambda x, r: poked(x.destination, -1, 0, r)),
    "past the mask": (split(), "memory beside mask", lambda x, r: poked(x.mask, 6, 0, r)),
    "untouched pages": (split(), "(untouched) differs at data byte 0", lambda x, r: copy_all(x)),
    "pad": (split(), "differs at pad byte 37376",
        lambda x, r: poked(x.destination, pages.COPIED_BYTES, 0, r)),
    "marks token // 64": (split(page_size=128), "(untouched) differs at data", lambda x, r:
        page_by_page(x, lambda x: (x.indices.flatten() // 64 % len(x.source)).unique())),
    "-1 marks page 0": (split(invalid=0.5, seed=4), "page 0 (untouched) differs", lambda x, r:
        page_by_page(x, lambda x: (x.indices.clamp(0, 1535).flatten() // 256).unique())),
    "footer behind its own sub-page": (split(), "differs at scale byte 36864",
        lambda x, r: page_by_page(x, footer=lambda x, s: s * 37376 + 36864)),
    "copy of the destination": (split(), "not a view of the destination",
        lambda x, r: r._replace(split=r.split.clone())),
    "source overwritten": (split(), "input source was modified",
        lambda x, r: poked(x.source, 0, 1, r)),
    "pages of 64 tokens written": (split(page_size=64), "nothing to split",
        lambda x, r: poked(x.destination, 0, 0, r)),
    "row listed twice": (same, "group 0 lists 25 rows, its tokens select 24", lambda x, r: poked(
        r.union_rows, 24, r.union_rows[0, 0], poked(r.union_length, 0, 25, r))),
    "row in place of another": (same, "rows of 1 entries differ, first in group 0",
        lambda x, r: poked(r.union_rows, 1, r.union_rows[0, 0], r)),
    "owner lost": (same, "owners of 1 entries differ, first in group 0: 14, not 15",
        lambda x, r: poked(r.owners, 0, 14, r)),
}  # fmt: skip
passes = cache(lambda w: gate(HONEST[type(w)], w).passed)


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    w, why, edit = WRONG[name]
    assert passes(w)
    refused(gate(lambda x: edit(x, HONEST[type(w)](x)), w), why)


def test_what_the_faults_are_made_of_is_right():
    assert gate(lambda x: stored(8, attention(x)), prefill()).passed
    assert gate(page_by_page, split()).passed
    assert gate(lambda x: PLAN.Output(*(t.flip(1) if t.ndim == 2 else t for t in plan(x))),
                PLAN.Workload(tokens=4, topk=6, rows=64, group=1)).passed  # fmt: skip


def online(x, start, tile=16):
    """Online softmax over tiles of lanes; `start` is the first running maximum."""
    valid = valid_lanes(x)
    q, (tokens, heads, _) = x.q.float(), x.q.shape
    m = torch.full((tokens, heads), start, device=q.device)
    l, acc = torch.zeros_like(m), q.new_zeros(tokens, heads, DC)
    for first in range(0, valid.shape[1], tile):
        ok = valid[:, first : first + tile]
        rows = x.kv[torch.where(ok, x.indices[:, first : first + tile], 0).long()]
        rows = torch.where(ok[..., None], rows, 0).float()
        scores = (q @ rows.mT * x.sm_scale).masked_fill(~ok[:, None], -torch.inf)
        peak = torch.maximum(m, scores.amax(-1))
        alpha, p = (m - peak).exp(), (scores - peak[..., None]).exp()
        acc = acc * alpha[..., None] + p @ rows[..., :DC]
        m, l = peak, l * alpha + p.sum(-1)
    return PREFILL.Output((acc / l[..., None]).bfloat16(), (m + l.log()) / LN_2)


def test_first_tile_fully_masked():
    hostile = prefill(padding="head", rows=50)  # 50 rows of 70 lanes: the first 20 are padding
    assert gate(partial(online, start=-1e30), hostile).passed
    assert gate(partial(online, start=-torch.inf), prefill()).passed
    refused(gate(partial(online, start=-torch.inf), hostile), "out is not finite")


def test_a_variant_answers_the_question_that_it_declares():
    assert gate(copy_all, split(), widens=pages.all_pages).passed
    refused(gate(copy_touched, split(), widens=pages.all_pages), "differs at data byte 0")


@pytest.mark.parametrize("read", (
    lambda x: x.kv[0, 0].item(), lambda x: bool((x.indices < 0).any()), lambda x: x.kv[x.kv > 0],
    lambda x: x.indices.nonzero(), lambda x: x.indices.unique(), lambda x: x.indices.tolist(),
    lambda x: x.kv[0].float().numpy(), lambda x: x.indices.cpu(),
), ids=("item", "bool", "mask", "nonzero", "unique", "tolist", "numpy", "cpu"))  # fmt: skip
def test_host_read(read):
    def run(x):
        read(x)
        return attention(x)

    assert gate(run, prefill(), capturable=False).passed
    refused(gate(run, prefill()), "reads the device on the host, yet the variant calls itself")


def test_a_host_read_cannot_be_hidden():
    def run(x):
        with contextlib.suppress(RuntimeError):
            x.kv[0, 0].item()
        return attention(x)

    refused(gate(run, prefill()), "reads the device on the host")


@pytest.mark.parametrize("key", [lambda x: x.q.shape, lambda x: x.q.data_ptr()])
def test_an_answer_may_not_be_remembered(key):
    answers = {}

    def run(x):
        if key(x) not in answers:
            answers[key(x)] = attention(x)
        return PREFILL.Output(*(t.clone() for t in answers[key(x)]))

    refused(gate(run, prefill()), "second call:")


def test_a_call_must_be_right_twice():
    calls = []

    def run(x):
        calls.append(None)
        return attention(x) if len(calls) % 2 else attention(x._replace(sm_scale=0.0))

    refused(gate(run, prefill()), "second call: lse is off")


def test_a_further_set_of_inputs_is_one_call():
    calls = []

    def run(x):
        calls.append(None)
        return attention(x) if len(calls) == 1 else attention(x._replace(sm_scale=0.0))

    v = Variant("once", PREFILL, lambda x, config: run(x), None, "a test")
    assert check(v, prefill(), device=DEVICE, once=True).passed and len(calls) == 1


def test_a_crash_is_a_result():
    def run(x):
        try:
            raise ValueError(f"{len(x.q)} tokens")
        except ValueError as error:
            raise RuntimeError("no launch") from error

    refused(gate(run, prefill()), "RuntimeError: no launch; ValueError: 5 tokens", "error")


def test_a_refusal_runs_nothing():
    refused(gate(None, prefill(), requires=lambda w, c: "no"), "no", "unsupported")
