"""Ceilings: what their ops ask is what a hand would compute, and records become rates.

The variants themselves go through the gate on every edge in test_kernels.
"""

from dataclasses import replace

import pytest
import torch

from workbench import record
from workbench.models.ceilings import Ceilings, as_rows, ceilings
from workbench.ops import OPS
from workbench.ops.matrix_product.definition import bell

COPY, GATHER, SHARED, PRODUCT = (
    OPS[name] for name in ("device_copy", "row_gather", "shared_read", "matrix_product")
)
MIB = 1 << 20
L2 = 60 * MIB


@pytest.mark.parametrize("op, changes", [
    (COPY, {"bytes": 12}), (COPY, {"bytes": -8}), (GATHER, {"row_bytes": 580}),
    (GATHER, {"row_bytes": 0}), (GATHER, {"rows": 0}), (GATHER, {"rows": 2**31}),
    (SHARED, {"words": 1000}), (SHARED, {"buffers": 3}), (PRODUCT, {"dtype": "fp4"}),
    (PRODUCT, {"n": -1}),
])  # fmt: skip
def test_a_workload_refuses_what_it_cannot_mean(op, changes):
    with pytest.raises(ValueError, match=f"{next(iter(changes.values()))}"):
        op.Workload(**changes)


def test_a_gathered_row_becomes_the_wrapping_sum_of_its_words():
    pool = torch.tensor([[1, 2], [2**63 - 1, 2**63 - 1], [-5, 5]], dtype=torch.int64)
    x = GATHER.make_inputs(GATHER.Workload(row_bytes=16, rows=3, count=4), "cpu")
    x = x._replace(pool=pool.view(torch.uint8), indices=torch.tensor([1, 0, 2, 1]).int())
    GATHER.validate(x)
    assert GATHER.reference(x).sums.tolist() == [-2, 3, 0, -2]
    assert GATHER.cost(x).bytes == 3 * 16 + 4 * (4 + 8)
    assert GATHER.statistics(x) == {"gathered_bytes": 64, "pool_bytes": 48}
    x = x._replace(indices=x.indices[:1])
    assert GATHER.cost(x).bytes == 16 + 12, "a row that nobody names need not be read"


def test_indices_are_uniform_over_the_pool():
    x = GATHER.make_inputs(GATHER.Workload(row_bytes=8, rows=10, count=20000), "cpu")
    counts = x.indices.bincount(minlength=10)
    assert len(counts) == 10 and (counts - 2000).abs().max() < 250  # nearly 6 deviations


def test_the_ceilings_gather_two_gib_from_pools_inside_and_far_outside_the_l2():
    suite = GATHER.suites["ceilings"]
    assert [w.row_bytes for w in suite] == 2 * [1152, 656, 584]
    assert all(abs(w.count * w.row_bytes - 2048 * MIB) < w.row_bytes for w in suite)
    assert [w.pool_bytes // MIB for w in suite] == 3 * [15] + 3 * [4095]


def test_a_shared_read_adds_each_buffer_as_often_as_its_turn_comes():
    x = SHARED.make_inputs(SHARED.Workload(programs=2, buffers=4, words=1, loops=6), "cpu")
    x = x._replace(ring=torch.tensor([[1, 10, 100, 1000], [2**31 - 1, 0, 0, 0]]).int()[..., None])
    # buffers 0 3 2 1 0 3; the last sum wraps: 2 * (2**31 - 1) = 2**32 - 2
    assert SHARED.reference(x).sums.tolist() == [[2112], [-2]]
    assert SHARED.statistics(x) == {"shared_bytes": 2 * 6 * 4}


def test_a_product_is_of_rows_with_rows_and_costs_two_operations_a_product():
    x = PRODUCT.make_inputs(PRODUCT.Workload(n=2), "cpu")
    a, b = torch.tensor([[1.0, 2], [3, 4]]), torch.tensor([[5.0, 6], [7, 8]])
    x = x._replace(a=a.bfloat16(), b=b.bfloat16())
    assert PRODUCT.reference(x).c.tolist() == [[17, 23], [39, 53]]
    assert PRODUCT.cost(x) == (2 * 4 * 2 + 2 * 4, 16)


def test_operands_are_random_and_nearly_normal():
    drawn = bell(256, 0, torch.float32, "cpu")
    assert drawn.mean().abs() < 0.02 and (drawn.std() - 1).abs() < 0.02
    assert 2.8 < drawn.abs().max() < 3.5 and drawn.unique().numel() > 800


def test_a_product_that_drops_a_step_is_wrong():
    x = PRODUCT.make_inputs(PRODUCT.Workload(n=256, dtype="fp8"), "cpu")
    expected = PRODUCT.reference(x)
    short = x.a[:, :-32].double() @ x.b[:, :-32].double().T
    right = type(expected)(expected.c.bfloat16())
    assert PRODUCT.compare(x, right, expected).passed
    assert not PRODUCT.compare(x, type(expected)(short.bfloat16()), expected).passed


def row(op, us, *, workload=None, device="a GPU", **more) -> dict:
    """A record as it stands in a file, with what derivation reads."""
    return {"op": op.name, "variant": "v", "config_asked": {}, "workload": workload or {},
            "environment": {"device": device, "l2_bytes": L2}, "samples_us": [us] if us else [],
            **more}  # fmt: skip


def gathered(width: int, pool: int, us: float, **more) -> dict:
    return row(GATHER, us, workload={"row_bytes": width, "rows": pool // width},
               statistics={"gathered_bytes": 1_000_000}, **more)  # fmt: skip


def derived(*rows, device="a GPU") -> Ceilings:
    return ceilings(record.table(list(rows)), device)


def test_the_best_rate_of_each_kind_is_the_ceiling():
    found = derived(
        row(COPY, 2e3, cost={"bytes": 8 * 10**9, "flops": 0}),
        row(COPY, 4e3, cost={"bytes": 18 * 10**9, "flops": 0}),
        row(COPY, 2.0, cost={"bytes": 16 * 10**6, "flops": 0}),  # stays in the L2
        row(SHARED, 1.0, statistics={"shared_bytes": 30_000_000}),
        row(PRODUCT, 10.0, workload={"dtype": "bf16"}, cost={"bytes": 1, "flops": 7 * 10**9}),
        row(PRODUCT, 5.0, workload={"dtype": "fp8"}, cost={"bytes": 1, "flops": 7 * 10**9}),
        gathered(656, 16 * MIB, 0.2),
        gathered(656, 16 * MIB, 0.25),
        gathered(1152, 16 * MIB, 0.16),
        gathered(656, 4096 * MIB, 0.4),
    )
    assert found == Ceilings(
        "a GPU",
        copy_gb_per_s=pytest.approx(4500.0),
        gather_l2_gb_per_s={1152: pytest.approx(6250.0), 656: pytest.approx(5000.0)},
        gather_memory_gb_per_s={656: pytest.approx(2500.0)},
        shared_gb_per_s=pytest.approx(30000.0),
        bf16_tflop_per_s=pytest.approx(700.0),
        fp8_tflop_per_s=pytest.approx(1400.0),
    )


def test_absent_is_absent():
    nothing = Ceilings("a GPU")
    copied = row(COPY, 2e3, cost={"bytes": 8 * 10**9, "flops": 0})
    assert derived(copied) == replace(nothing, copy_gb_per_s=pytest.approx(4000.0))
    assert derived(copied | {"samples_us": []}) == nothing
    assert derived(copied, device="another GPU") == Ceilings("another GPU")
    assert derived(row(GATHER, 1.0, workload={"row_bytes": 8, "rows": 9})) == nothing
    assert as_rows(nothing) == []


def test_a_pool_between_the_l2_and_memory_tells_neither_ceiling():
    assert derived(gathered(656, 64 * MIB, 0.2)) == Ceilings("a GPU")
    unknown = {"environment": {"device": "a GPU", "l2_bytes": 0}}
    assert derived(gathered(656, 16 * MIB, 0.2) | unknown) == Ceilings("a GPU")


def test_rows_for_printing_name_rate_and_unit():
    c = Ceilings("a GPU", 4250.0, {1152: 5500.0, 656: 5000.0}, None, None, 790.0, None)
    assert as_rows(c) == [
        ("copy", 4250.0, "GB/s"),
        ("gather l2, rows of 1152 bytes", 5500.0, "GB/s"),
        ("gather l2, rows of 656 bytes", 5000.0, "GB/s"),
        ("bf16", 790.0, "TFLOP/s"),
    ]
