"""`split_k_mma` without a GPU: its text run on tensors, on every edge it takes, split or not."""

from dataclasses import replace

import pytest
import torch
from emulated_gluon import Machine
from test_orientation import Launched

from workbench.ops import OPS
from workbench.ops.sparse_decode.kernels import _narrow, split_k_mma
from workbench.ops.sparse_decode.workload import SUITES, V32

OP = OPS["sparse_decode"]
V = OP.variants["split_k_mma"]
TAKEN = [w for w in SUITES["edges"] if V.requires(w, V.config) is None]
SMALL = replace(V32, tokens=1, heads=16, topk=250, rows=320)
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setattr(split_k_mma, "_split_k_mma_kernel",
                        Launched(split_k_mma._split_k_mma_kernel))  # fmt: skip


def verdict(w, chunks=0):
    x = OP.make_inputs(w, "cpu")
    actual = V(x, replace(V.config, chunks_per_block=chunks))
    return OP.compare(x, actual, OP.reference(x))


@pytest.mark.parametrize("chunks", [99, pytest.param(0, marks=pytest.mark.slow)],
                         ids=["no split", "a program a chunk"])  # fmt: skip
def test_every_edge_is_right(chunks):
    assert len(TAKEN) > 15
    for w in TAKEN:
        found = verdict(w, chunks)
        assert found.passed, (w, found)


def test_splits_give_the_same_answer():
    for chunks in (1, 3):
        assert verdict(SMALL, chunks).passed


@pytest.mark.parametrize("tiles", range(1, 11))
def test_the_ring_of_tiles_goes_round(tiles):
    found = verdict(replace(SMALL, topk=64 * tiles - 6, rows=640), 99)
    assert found.passed, found


@pytest.mark.parametrize("name", ["wait", "commit"])
def test_a_copy_that_is_not_waited_for_is_seen(name, monkeypatch):
    monkeypatch.setattr(Machine, name, lambda self, *left: None)
    assert verdict(SMALL, 99).status == "incorrect"


def test_all_copies_have_landed_before_the_answer_is_written(monkeypatch):
    """Shared memory of the first tiles is also that of the answer on its way out."""
    left, made = [], Machine.__init__

    def kept(self, *program):
        made(self, *program)
        left.append(self)

    monkeypatch.setattr(Machine, "__init__", kept)
    assert verdict(SMALL, 99).passed
    assert left and not any(m.open or m.groups for m in left)


@pytest.mark.parametrize("step, wrong", [
    ("in_order", lambda sums, *shape: sums),
    ("counting", lambda lanes, start, end, tokens, BLOCK_K, L: lanes.load(L) >= 0),
], ids=lambda a: a if isinstance(a, str) else "")  # fmt: skip
def test_a_step_that_forgets_something_is_seen(step, wrong, monkeypatch):
    monkeypatch.setattr(_narrow, step, wrong)
    assert verdict(replace(SMALL, scale_format="arbitrary_fp32"), 99).status == "incorrect"
