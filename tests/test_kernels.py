"""Every variant of every op is right on every workload of its op's `edges` suite.

A new variant is found here by itself. The verdict of the gate is the message of a failure, and an
`unsupported` one must say why before it is skipped.
"""

from dataclasses import fields, replace

import pytest
import torch
from conftest import DEVICE

from workbench.gate import check
from workbench.ops import OPS

torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other


def said(w) -> str:
    """The fields in which workload `w` differs from the first edge of its suite, as a test id."""
    (suite,) = [op.suites["edges"] for op in OPS.values() if op.Workload is type(w)]
    changed = [
        f"{f.name}={getattr(w, f.name)}"
        for f in fields(w)
        if getattr(w, f.name) != getattr(suite[0], f.name)
    ]
    return ",".join(changed) or "first"


def long(v, w) -> bool:
    """Whether the interpreter takes tens of seconds; other variants run on the edge here."""
    return v.name == "dirty_pages" and (w.written >= 33 or w.batch >= 19)


CASES = [
    pytest.param(v, w, v.config, id=f"{op.name}-{v.name}-{said(w)}",
                 marks=[pytest.mark.slow] * long(v, w))
    for op in OPS.values()
    for v in op.variants.values()
    for w in op.suites["edges"]
]
PREFILL, PLAN, SPLIT, STEP, READ = (
    OPS[name]
    for name in ("sparse_prefill", "union_plan", "page_split", "page_split_step", "paged_read")
)
# The default group is 4; pairs of tokens take another tile and leave another tail.
PAIRS = [
    pytest.param(v, w, replace(v.config, group=2), id=f"{v.name}-group=2-{said(w)}")
    for v in (PREFILL.variants["union"], PREFILL.variants["eager_union"])
    for w in PREFILL.suites["edges"]
]
TILES = [  # other configs than the default: a list longer than a tile, a tile longer than a page
    (PLAN.variants["sort_search"], {"block": 16}),
    (PREFILL.variants["per_token"], {"block_k": 16}),
    (PREFILL.variants["union"], {"block_k": 32}),
    (SPLIT.variants["full"], {"block_words": 8192}),
    (SPLIT.variants["masked"], {"sub_pages": 1, "block_lanes": 32}),
    (SPLIT.variants["masked"], {"sub_pages": 3}),
    (STEP.variants["dirty_rows"], {"lanes": 1}),
    (READ.variants["direct"], {"lanes": 32}),
]
MORE = [
    pytest.param(v, w, replace(v.config, **changes), id=f"{v.name}-{changes}-{said(w)}")
    for v, changes in TILES
    for w in v.op.suites["edges"][:2]
]


@pytest.mark.parametrize("v, w, config", CASES + PAIRS + MORE)
def test_passes_the_gate(v, w, config):
    verdict = check(v, w, config, device=DEVICE)
    if verdict.status == "unsupported":
        assert verdict.why, f"{v.name} refuses {w} without a reason"
        pytest.skip(verdict.why)
    assert verdict.passed, f"{v.op.name} {v.name} on {w}: {verdict}"


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_edge_is_taken_and_every_variant_takes_one(op):
    """A workload that all refuse tests nothing, nor does a variant that refuses them all."""
    takes = {v.name: [w for w in op.suites["edges"] if v.requires(w, v.config) is None]
             for v in op.variants.values()}  # fmt: skip
    assert all(takes.values()), f"a variant takes none: {takes}"
    for w in op.suites["edges"]:
        assert any(w in taken for taken in takes.values()), f"nothing takes {w}"
