"""`split_k_registers` without a GPU: its text run on tensors, its warp groups in any order."""

from dataclasses import replace

import emulated_gluon
import emulated_groups
import pytest
import torch
from test_orientation import Launched

from workbench.ops import OPS
from workbench.ops.sparse_decode.kernels import _tile, _weigh, split_k_registers
from workbench.ops.sparse_decode.workload import SUITES, V32

OP = OPS["sparse_decode"]
V = OP.variants["split_k_registers"]
TAKEN = [w for w in SUITES["edges"] if V.requires(w, V.config) is None]
SMALL = replace(V32, tokens=1, heads=16, topk=250, rows=320)
LONG = replace(V32, tokens=1, heads=12, topk=900, rows=1024, scale_format="arbitrary_fp32")
WIDE = replace(LONG, heads=40)  # two blocks of heads, of another shape
BARRIERS = ("full", "empty", "spare", "ready", "taken", "turn", "loaded", "done")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setattr(split_k_registers, "_split_k_registers_kernel",
                        Launched(split_k_registers._split_k_registers_kernel))  # fmt: skip


def verdict(w, chunks=99, **inputs):
    x = OP.make_inputs(w, "cpu")._replace(**inputs)
    actual = V(x, replace(V.config, chunks_per_block=chunks))
    return OP.compare(x, actual, OP.reference(x))


@pytest.mark.parametrize("chunks", [99, 0], ids=["no split", "a program a chunk"])
def test_every_edge_is_right(chunks):
    assert len(TAKEN) > 15
    for w in TAKEN:
        found = verdict(w, chunks)
        assert found.passed, (w, found)


@pytest.mark.parametrize("tiles", range(1, 13))
def test_the_ring_of_tiles_goes_round(tiles):
    found = verdict(replace(SMALL, topk=64 * tiles - 6, rows=768))
    assert found.passed, found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("w", [LONG, WIDE], ids=["few heads", "many heads"])
def test_any_order_of_the_groups_gives_the_answer(w, seed, monkeypatch):
    monkeypatch.setattr(emulated_gluon, "SEED", seed)
    found = verdict(w)
    assert found.passed, found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.0, 3.0, -3.0])
def test_maxima_that_rise_in_every_tile(scale, seed, monkeypatch):
    """Both groups raise what they share, and weigh again what the other one has raised."""
    monkeypatch.setattr(emulated_gluon, "SEED", seed)
    found = verdict(LONG, sm_scale=scale)
    assert found.passed, found


@pytest.mark.parametrize("without", BARRIERS)
def test_a_barrier_that_nobody_waits_for_is_seen(without, monkeypatch):
    """For each there is an order of the groups in which its absence shows."""
    waited = emulated_groups.Groups.wait

    def wait(self, barrier, phase):
        names = dict(zip(self.barriers.memories(), BARRIERS, strict=True))
        if names[id(barrier.memory)] == without:
            self.pause()
        else:
            waited(self, barrier, phase)

    monkeypatch.setattr(emulated_groups.Groups, "wait", wait)

    def seen(seed):
        monkeypatch.setattr(emulated_gluon, "SEED", seed)
        try:
            return not verdict(LONG, sm_scale=3.0).passed
        except AssertionError:
            return True

    assert any(seen(seed) for seed in range(40))


@pytest.mark.parametrize("step, wrong", [
    ("_vote", lambda above, factors: _none(factors)),
    ("_factors", lambda scales, room: scales),
    ("by_group", lambda scales, S: (scales[:, :1],) * 4),
], ids=lambda a: a if isinstance(a, str) else "")  # fmt: skip
def test_a_step_that_forgets_something_is_seen(step, wrong, monkeypatch):
    monkeypatch.setattr(_weigh, step, wrong)
    assert verdict(LONG, sm_scale=3.0).status == "incorrect"


def _none(factors):
    return emulated_gluon.Value(torch.zeros(4, dtype=torch.int32))


@pytest.mark.parametrize("columns", [split_k_registers.FEW, split_k_registers.MANY])
def test_registers_are_those_of_the_launch(columns):
    groups = 3 + columns.adders
    each = 65536 // (128 * groups) // 8 * 8
    asked = 2 * columns.weigher_registers + columns.adders * columns.adder_registers
    assert asked + columns.feeder_registers == groups * each


def test_places_of_rows_outlast_what_is_copied_by_them():
    assert _tile.STARTS.value >= _tile.BESIDE.value + _tile.FOUND.value


def test_a_cache_beyond_32_bits_of_places_is_refused():
    x = OP.make_inputs(SMALL, "cpu")
    huge = torch.empty((2**30, *x.cache.shape[1:]), dtype=x.cache.dtype, device="meta")
    with pytest.raises(ValueError, match=r"a cache of .* bytes exceeds 34,359,738,368"):
        V(x._replace(cache=huge), V.config)
