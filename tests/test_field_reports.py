"""Faults that others met in kernels of this kind, one test a kind; ids name the report's row.

Areas B (sparse prefill and its union) and F (toolchain); test_offsets.py holds areas A and E,
test_fp8_reports.py B and C out of fp8 caches. Every run of the gate refuses a read of the device on
the host (B09). Where a report falls back to another kernel, this code says `unsupported`; where it
asks for equal bits after another order of summation, the rounding budget of the op decides.
"""

import ast
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from conftest import DEVICE, each
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.compare import SLACK, relative_l2, same_bits, storage_rounding
from workbench.compiled import fit, smaller
from workbench.gate import check
from workbench.ops import OPS
from workbench.selections import violations

ROOT = Path(__file__).parents[1]
PREFILL, PLAN = OPS["sparse_prefill"], OPS["union_plan"]
QUERIES = PREFILL.Workload(tokens=4, heads=8, topk=40, rows=90, churn=0.3)
attentions = each(PREFILL.variants.values())


def same(a, b) -> bool:
    return all(map(same_bits, a, b))


SHAPES = {
    "B07 last group of three": replace(QUERIES, tokens=7),
    "B11 fewer rows than topk": replace(QUERIES, rows=20),
    "B12 counted holes": replace(QUERIES, padding="mixed", holes=0.4, length="counted"),
    "B17 topk 33": replace(QUERIES, topk=33),
    "B17 topk 70": replace(QUERIES, topk=70),
    "B17 topk 96": replace(QUERIES, topk=96, rows=200),
    "B22 positions 3 apart": replace(QUERIES, position_stride=3),
    **{f"B21 {h} heads": replace(QUERIES, heads=h, topk=20) for h in (1, 3, 5, 12, 33)},
}


@pytest.mark.parametrize("shape", SHAPES)
@attentions
def test_a_shape_is_right_or_refused_with_a_reason(v, shape):
    verdict = check(v, SHAPES[shape], device=DEVICE)
    refused = shape.startswith("B21") and verdict.status == "unsupported" and verdict.why
    assert verdict.passed or refused, f"{verdict.status}: {verdict.why}"


@attentions
def test_B04_a_token_without_rows_gives_zeros_and_no_nan(v):
    x = PREFILL.make_inputs(replace(QUERIES, topk=72, sink="random"), DEVICE)
    x.indices[0] = -1
    x.indices[2, :67] = -1  # whole tiles are masked before the first valid lane
    length = torch.tensor([72, 0, 72, 72], dtype=torch.int32, device=DEVICE)
    x = x._replace(topk_length=length)
    out, lse = v(x)
    assert not out[:2].any() and lse[:2].isneginf().all()
    assert PREFILL.compare(x, v(x), PREFILL.reference(x)).passed and out[2].any()


@st.composite
def plans(draw):
    """Rows near the end of a cache, without repeats; rows of 32,767 and more need 32-bit keys."""
    rows, topk = draw(st.sampled_from([9, 32766, 32767, 32768])), draw(st.integers(1, 6))
    lane = st.integers(max(0, rows - 9), rows + 1)
    chosen = draw(st.lists(st.lists(lane, unique=True, max_size=topk), min_size=1, max_size=7))
    padded = [draw(st.permutations(row + [-1] * (topk - len(row)))) for row in chosen]
    length = draw(st.none() | st.lists(st.integers(-1, topk + 1), min_size=len(chosen),
                                       max_size=len(chosen)))  # fmt: skip
    return padded, rows, draw(st.integers(1, 5)), length


@settings(deadline=None, max_examples=40)
@given(plan=plans())
@each(PLAN.variants.values())
def test_B06_a_union_lists_each_row_once_with_all_its_owners(v, plan):
    tokens, rows, group, length = plan
    x = PLAN.make_inputs(PLAN.Workload(tokens=1, topk=1), DEVICE)
    lists = [None if n is None else x.indices.new_tensor(n) for n in (tokens, length)]
    found = v(x._replace(indices=lists[0], topk_length=lists[1], rows=rows, group=group))
    ends = length or [len(tokens[0])] * len(tokens)
    counted = [t[: max(n, 0)] for t, n in zip(tokens, ends, strict=True)]
    sets = [{r for r in t if 0 <= r < rows} for t in counted]
    assert len(found.union_length) == -(-len(sets) // group)
    for g, count in enumerate(found.union_length.tolist()):
        members = sets[g * group : (g + 1) * group]
        listed = found.union_rows[g, :count].tolist()
        assert sorted(listed) == sorted(set().union(*members))
        for row, bits in zip(listed, found.owners[g, :count].tolist(), strict=True):
            assert bits == sum(1 << j for j, chosen in enumerate(members) if row in chosen)


@pytest.mark.parametrize("group, tail", [(2, 1), (4, 3)])
def test_B07_the_tail_of_a_union_equals_the_per_token_path(group, tail):
    x = PREFILL.make_inputs(replace(QUERIES, tokens=7), DEVICE)
    v = PREFILL.variants["union"]
    union, alone = v(x, replace(v.config, group=group)), PREFILL.variants["per_token"](x)
    exact = PREFILL.reference(x).out[-tail:]
    budget = SLACK * storage_rounding(exact, torch.bfloat16)
    assert relative_l2(union.out[-tail:], alone.out[-tail:]) < budget
    torch.testing.assert_close(union.lse[-tail:], alone.lse[-tail:], atol=1e-4, rtol=0)


@pytest.mark.parametrize("heads, group, legal", [
    (4, 2, False), (12, 2, False), (6, 4, False), (16, 4, False),
    (8, 2, True), (8, 4, True), (16, 2, True),
])  # fmt: skip
def test_B08_a_union_tile_that_is_not_legal_is_named_before_the_compiler(heads, group, legal):
    v = PREFILL.variants["union"]
    config = replace(v.config, group=group)
    verdict = check(v, replace(QUERIES, heads=heads, topk=20), config, device=DEVICE)
    assert verdict.status == ("passed" if legal else "unsupported"), verdict.why
    assert legal or f"{group} * {heads} = {group * heads}" in verdict.why


def test_B12_a_hole_in_the_counted_lanes_is_named():
    (sentence,) = violations(torch.tensor([[5, -1, 9]]), 90, topk_length=torch.tensor([3]))
    assert "invalid lane" in sentence and "at lane 1: -1" in sentence


@attentions
def test_B18_counting_the_lanes_changes_no_bit(v):
    x = PREFILL.make_inputs(replace(QUERIES, rows=20, length="counted"), DEVICE)
    assert int(x.topk_length.max()) < x.indices.shape[1], "no lane is padded"
    assert same(v(x), v(x._replace(topk_length=None)))


def spread(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """`tensor` as every second entry along `dim` of one that is twice as long."""
    return tensor.repeat_interleave(2, dim)[:: 2 - dim, :: 1 + dim]


@pytest.mark.parametrize("name", ["kv", "indices"])
@attentions
def test_B27_strided_rows_are_read_and_strided_columns_refused(v, name):
    x = PREFILL.make_inputs(QUERIES, DEVICE)
    tensor = getattr(x, name)
    with pytest.raises(ValueError, match=f"{name} has a last stride of 2"):
        v(x._replace(**{name: spread(tensor, 1)}))
    views = spread(tensor, 0), torch.cat((tensor, tensor + 1), 1)[:, : tensor.shape[1]]
    for view in views:
        assert view.stride(0) == 2 * tensor.stride(0)
        assert same(v(x._replace(**{name: view})), v(x)), f"{name} with strides {view.stride()}"


def test_F01_a_tile_that_does_not_fit_is_stepped_down_in_order():
    tile = replace(PREFILL.variants["per_token"].config, block_k=64, num_stages=3)
    order = [(64, 2), (32, 3), (32, 2), (16, 3), (16, 2)]
    assert [(c.block_k, c.num_stages) for c in smaller(tile)] == order
    asked = []

    def shared(c) -> int:
        asked.append((c.block_k, c.num_stages))
        return 1000 * c.block_k * (1 + c.num_stages)

    assert fit(tile, shared, 256000) == (tile, None)
    config, note = fit(tile, shared, 101376)
    assert config == replace(tile, block_k=32, num_stages=2)
    assert "256000" in note and "101376" in note
    assert asked == [(64, 3)] * 2 + order[:3], "smaller tiles were asked for than the one that fits"
    with pytest.raises(ValueError, match=r"'block_k': 16, .*'num_stages': 2.* 48000 .* 47999"):
        fit(tile, shared, 47999)


COMPILE = """
import json
from dataclasses import replace
from workbench.compiled import compile_for, fit
from workbench.ops import OPS
op, tried = OPS["sparse_prefill"], []
x = op.make_inputs(op.Workload(tokens=4, topk=128, rows=256), "cpu")
kernels = [k for v in op.variants.values() if not v.archs for k in compile_for(v, x, arch=120)]

def shared(config):
    (kernel,) = compile_for(v, x, config, arch=120)
    tried.append([config.block_k, config.num_stages, kernel.shared_bytes])
    return kernel.shared_bytes

v = op.variants["per_token"]
config, note = fit(replace(v.config, block_k=128, num_stages=3), shared, 101376)
print(json.dumps({"tried": tried, "fits": [config.block_k, config.num_stages], "note": note,
                  "ptx": {k.name: k.ptx for k in kernels}}))
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict:
    """What a process that does not interpret makes of the kernels, for a part with 99 KiB."""
    environment = {k: x for k, x in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    done = subprocess.run([sys.executable, "-c", COMPILE], cwd=ROOT, env=environment,
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_F01_a_compiled_tile_is_stepped_down_until_it_fits(compiled):
    *too_large, (*found, needed) = compiled["tried"]
    assert too_large[0][:2] == [128, 3] and all(n > 101376 for *_, n in too_large)
    assert needed <= 101376 and compiled["fits"] == found
    assert f"{too_large[0][2]} bytes" in compiled["note"] and "101376" in compiled["note"]


def test_F03_no_product_is_rounded_to_tf32(compiled):
    products = {name: ptx.count("mma.sync") for name, ptx in compiled["ptx"].items()}
    assert sum(n > 0 for n in products.values()) >= 2, products
    assert not [name for name, ptx in compiled["ptx"].items() if "tf32" in ptx]


@triton.jit
def _three_quarters(out, WIDTH: tl.constexpr):
    tl.store(out + tl.arange(0, WIDTH), 0)


@pytest.mark.parametrize("width", [3, 48])
def test_F12_a_range_that_is_no_power_of_two_is_an_error_and_no_crash(width):
    op = replace(PLAN, variants={})

    def ranged(x, config):
        """Launch a kernel whose range no compiler takes."""
        _three_quarters[(1,)](x.indices.new_empty(64), width)

    verdict = check(op.variant()(ranged), PLAN.Workload(tokens=2, topk=4), device=DEVICE)
    assert verdict.status == "error" and "power of 2" in verdict.why, verdict


GONE = {"make_block_ptr", "advance", "autotune", "Autotuner", "heuristics"}


def test_F08_F09_F10_F14_no_kernel_tunes_itself_or_uses_block_pointers():
    for path in ROOT.glob("workbench/ops/*/kernels/*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        used = {getattr(n, "attr", getattr(n, "id", None)) for n in nodes}
        used |= {n.name for n in nodes if isinstance(n, ast.alias)}
        assert not used & GONE, f"{path.name} uses {used & GONE}"
