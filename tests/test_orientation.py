"""Three orientations of one kernel for `mma`: what they compute, and what a compiler makes of them.

There is no GPU for most of this: the text of the kernel is run on tensors, on every edge, and what
is claimed of SM120 is read from the code that is compiled for it.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from emulated_gluon import run

from workbench.compare import relative_l2
from workbench.compiled import table
from workbench.compiled.cache import KINDS
from workbench.layouts import LAYOUTS
from workbench.models.ledger import ledger
from workbench.models.quantised_error import Arithmetic, answers
from workbench.op import Tile
from workbench.ops import OPS
from workbench.ops.fp8_prefill.kernels import _mma, _operands
from workbench.ops.fp8_prefill.workload import DOTS3, GLM, SUITES, V4_C4, V32

OP = OPS["fp8_prefill"]
WIDENED, FP8 = ("swapab", "mg", "heads_on_warps"), ("swapab_fp8", "mg_fp8", "heads_on_warps_fp8")
ARMS = [  # heads over warps as they were shares all steps with the others
    pytest.param(name, {}, marks=[pytest.mark.slow] * name.startswith("heads_on_warps"))
    for name in WIDENED + FP8
] + [
    pytest.param("swapab", {"arithmetic": "f16"}, marks=pytest.mark.slow),
    pytest.param("mg", {"arithmetic": "f16"}, marks=pytest.mark.slow),
    pytest.param("mg", {"block_k": 32}, marks=pytest.mark.slow),
]  # fmt: skip
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
SM120_BYTES = 101376  # of shared memory that a block may have
SMALL = replace(V32, tokens=2, heads=8, topk=140, rows=150)


class Launched:
    """`kernel[grid](...)`, program by program on the CPU."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *args, **options: run(self.kernel, grid, args, options)


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    monkeypatch.setattr(_mma, "_mma_kernel", Launched(_mma._mma_kernel))


def verdict(name: str, w, **changes):
    v = OP.variants[name]
    x = OP.make_inputs(w, "cpu")
    actual = v(x, replace(v.config, **changes))
    return OP.compare(x, actual, OP.reference(v.widens(x)))


@pytest.mark.parametrize("name, changes", ARMS, ids=lambda a: a if isinstance(a, str) else str(a))
def test_every_edge_is_right(name, changes):
    v = OP.variants[name]
    taken = [w for w in SUITES["edges"] if not v.requires(w, v.config)]
    assert len(taken) > 30 and all(LAYOUTS[w.layout].d_v == 512 for w in taken)
    for w in taken:
        found = verdict(name, w, **changes)
        assert found.passed, (w, found)


@pytest.mark.parametrize("w", [SMALL, replace(SMALL, scale_format="arbitrary_fp32"), replace(
    V4_C4, tokens=2, heads=72, topk=70, rows=150, extra_topk=70, extra_rows=80)],
    ids=["inline", "arbitrary", "dual"])  # fmt: skip
@pytest.mark.parametrize("name", WIDENED + FP8)
def test_several_tiles(name, w):
    found = verdict(name, w)
    assert found.passed, found


def test_one_pass_of_e4m3_weights_is_seen():
    assert verdict("swapab_fp8", SMALL, passes=2).passed
    found = verdict("swapab_fp8", SMALL, passes=1)
    assert found.status == "incorrect" and 2e-3 < found.error < 5e-2, found


@pytest.mark.parametrize("name, module, step, wrong", [
    ("swapab_fp8", _operands, "as_values", lambda right: lambda r, w, h: right(r, w, not h)),
    ("mg_fp8", _operands, "as_values", lambda right: lambda r, w, h: right(r, w, not h)),
    ("swapab", _mma, "in_order", lambda right: lambda sums, *shape: sums),
    ("mg", _operands, "as_bf16_reads", lambda right: lambda found, dim: (
        found if dim else right(found, dim))),
], ids=lambda a: a if isinstance(a, str) else "")  # fmt: skip
def test_a_name_that_is_not_kept_is_seen(name, module, step, wrong, monkeypatch):
    """Rows, columns and inner positions are renamed so that none moves: everywhere or nowhere."""
    assert verdict(name, SMALL).passed
    right = getattr(module, step)
    monkeypatch.setattr(module, step, wrong(getattr(right, "fn", right)))
    assert verdict(name, SMALL).status == "incorrect"


def test_a_copy_that_is_not_waited_for_is_seen(monkeypatch):
    import emulated_gluon

    monkeypatch.setattr(emulated_gluon.Machine, "wait", lambda self, outstanding: None)
    assert verdict("swapab", SMALL).status == "incorrect"


@pytest.mark.parametrize("name, arithmetic", [
    ("swapab_fp8", Arithmetic("fp8", "fp8", 2)), ("mg_fp8", Arithmetic("fp8", "fp8", 2)),
    ("swapab", Arithmetic()), ("mg", Arithmetic(passes=2)),
], ids=lambda a: a if isinstance(a, str) else "")  # fmt: skip
def test_the_error_that_is_computed_without_a_kernel_is_the_kernels(name, arithmetic):
    """Against the answer of what is stored, queries unrounded: not the question of the gate."""
    v, x = OP.variants[name], OP.make_inputs(SMALL, "cpu")
    exact, passes = OP.reference(x).out, arithmetic.passes
    (out,) = answers(x, [arithmetic])
    of_kernel = relative_l2(v(x, replace(v.config, passes=passes)).out, exact)
    assert relative_l2(out, exact) == pytest.approx(of_kernel, rel=0.05)


def test_queries_in_e4m3_are_bf16_numbers_again():
    x = OP.make_inputs(SMALL, "cpu")
    once = _mma.quantised_query(x)
    assert torch.equal(once.q, _mma.quantised_query(once).q)
    assert torch.equal(once.q[..., 512:], x.q[..., 512:])
    error = (once.q.float() - x.q.float()).norm() / x.q.float().norm()
    assert 0.01 < error < 0.04


@pytest.mark.parametrize("w, changes, told", [
    (DOTS3, {}, "footer_1160: 1024 sums of a head"),
    (replace(V32, row_stride=660), {}, "row_stride=660 is no multiple of 16"),
    (V32, {"block_k": 128}, "block_k=128 is neither"),
    (V32, {"passes": 3}, "passes=3"),
    (V32, {"arithmetic": "fp8"}, "arithmetic='fp8' is none of bf16, f16"),
])  # fmt: skip
def test_what_is_not_covered_is_told(w, changes, told):
    v = OP.variants["swapab"]
    assert told in v.requires(w, replace(v.config, **changes))


def test_pages_at_odd_places_are_refused():
    x = OP.make_inputs(replace(SMALL, topk=8, rows=8, page_size=4), "cpu")
    cache = torch.zeros(x.cache.numel() + 16, dtype=torch.uint8)[4:-12].view(x.cache.shape)
    with pytest.raises(ValueError, match="multiples of 16"):
        OP.variants["swapab"](x._replace(cache=cache))


COMMITTED = Path(__file__).parents[1] / "traces/compiled/fp8_prefill.json"


def as_committed(found: dict) -> None:
    """What figures and notebook 04 show is what this compiles to. After a change of the kernel:

    workbench compile fp8_prefill --arch sm_90,sm_100,sm_120 -w tokens=16 -w rows=4096
    -w heads=64,128 --json > traces/compiled/fp8_prefill.json
    """
    same = ("variant", "arch", "workload", "config")
    (kept,) = (row for row in json.loads(COMMITTED.read_text())
               if all(row[name] == found[name] for name in same))  # fmt: skip
    changed = {name: (kept[name], found[name]) for name in KINDS if kept[name] != found[name]}
    assert not changed, f"{found['variant']} {found['arch']}: {changed}"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Rows by (variant, heads) of what is compiled for an architecture."""
    made = {}

    def of(arch, variants, heads=64):
        key = (arch, variants, heads)
        if key not in made:
            found = table(
                "fp8_prefill", variants=list(variants), arch=arch,
                workload={"tokens": "16", "rows": "4096", "heads": str(heads)},
                cache_folder=tmp_path_factory.mktemp("cache"),
            )  # fmt: skip
            made[key] = {(r["variant"].split()[0], r["workload"]["heads"]): r for r in found}
        return made[key]

    return of


@pytest.mark.parametrize("heads", [64, pytest.param(128, marks=pytest.mark.slow)])
def test_what_sm120_makes_of_each_orientation(heads, compiled):
    rows = compiled("sm_120", FP8, heads)
    swapped, mg, upright = (rows[name, heads] for name in FP8)
    for row in (swapped, mg, upright):
        as_committed(row)
        assert row["fits"] and row["shared_bytes"] <= SM120_BYTES, row["why"]
        assert set(row["mma"]) == {"QMMA.16832", "HMMA.16816"}  # codes; rotary values
    for row in (swapped, mg):
        assert not {"LDL", "STL"} & set(row["looped"]) and row["spill_store_bytes"] == 0
    assert swapped["config"]["block_k"] == 64 and swapped["shared_bytes"] > 2 * 64 * 656
    assert swapped["hot_loop"]["BAR"] <= 6 and swapped["hot_loop"]["BAR"] < mg["hot_loop"]["BAR"]
    assert upright["hot_loop"]["LDL"] > 50 and upright["hot_loop"]["STL"] > 50
    # 64 rows a tile: 64 products for scores, twice 64 for values in two passes
    assert swapped["hot_loop"]["QMMA"] == 192 and mg["hot_loop"]["QMMA"] == 96
    per_row = {row["variant"]: row["hot_loop"]["LDSM"] / row["config"]["block_k"]
               for row in (swapped, mg)}  # fmt: skip
    assert all(1 < loads < 4 for loads in per_row.values()), per_row


@pytest.mark.slow
def test_hopper_holds_two_orientations_in_registers(compiled):
    rows = compiled("sm_90", ("swapab", "mg"))
    for row in rows.values():
        as_committed(row)
        assert row["fits"] and row["stack_bytes"] == 0 and row["registers"] <= 255, row["why"]
        assert row["mma"] == {"HMMA.16816": row["hot_loop"]["HMMA"]} == {"HMMA.16816": 272}
    # widening: each warp its own copy of all codes, or of its own share
    work = {name: sum(rows[name, 64]["hot_loop"].values()) for name in ("swapab", "mg")}
    assert work["swapab"] > 1.5 * work["mg"]


@pytest.mark.slow
def test_arbitrary_scales_keep_two_passes_in_registers(tmp_path):
    w = {"tokens": "16", "rows": "4096", "heads": "64", "scale_format": GLM.scale_format}
    for row in table("fp8_prefill", variants=["swapab", "mg"], arch="sm_90", workload=w,
                     cache_folder=tmp_path):  # fmt: skip
        assert row["fits"] and row["stack_bytes"] == 0 and row["hot_loop"]["HMMA"] == 400


def test_fp8_rows_of_both_caches_by_hand():
    w = replace(V4_C4, tokens=3, heads=80, topk=5, rows=20, extra_topk=4, extra_rows=9, wild=True)
    x = OPS["fp8_prefill"].make_inputs(w, "cpu")
    main = torch.tensor([[7, -1, 3, 9, 999999], [3, 7, 2, -1, -1], [-1] * 5], dtype=torch.int32)
    extra = torch.tensor([[1, 2, 3, 4], [4, -1, -1, -1], [4, 5, -1, 6]], dtype=torch.int32)
    x = x._replace(indices=main, extra_indices=extra)
    counts = ledger("fp8_prefill", x, Tile(64, 1, 2, programs=2), 2)
    assert counts["valid_lanes"] == 3 + 3 + 4 + 1 + 3 and counts["gathered_rows"] == 2 * 14
    assert counts["unique_rows"] == len({7, 3, 9, 2}) + len({1, 2, 3, 4, 5, 6})
    assert counts["unique_rows_wave"] == 4 + (4 + 3) and counts["row_bytes"] == 584
    assert counts["unique_bytes"] == 584 * 10 and counts["gathered_bytes"] == 584 * 28
    steps = (2 + 2 + 0) + (2 + 1 + 2)  # up to the last valid lane, holes too
    assert counts["executed_lanes"] == 2 * 64 * 2 * steps and counts["useful_lanes"] == 80 * 14
    assert counts["useful_flops"] == 2 * 80 * 14 * 1024
    assert "executed_lanes" not in ledger("fp8_prefill", x)
