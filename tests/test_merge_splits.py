"""Merging parts of a softmax, by worked examples: bases, empty parts, one part. Area C."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import DEVICE, each

from workbench import record, study
from workbench.arms import arms_of
from workbench.compare import LSE_TOLERANCE, same_bits
from workbench.ops import OPS
from workbench.ops.merge_splits.definition import Inputs, base_2, reference
from workbench.ops.merge_splits.kernels.merge import merged

OP = OPS["merge_splits"]
torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
variants = each(OP.variants.values())
SMALL = OP.Workload(tokens=4, heads=3, splits=5, width=64, empty=0.3)


def of_one_head(lse, outputs, sink=None) -> Inputs:
    """Parts of one token's one head, of one column each."""
    lse = torch.tensor(lse, dtype=torch.float32)[None, None]
    partial = torch.tensor(outputs, dtype=torch.float32)[None, None, :, None]
    sink = None if sink is None else torch.tensor([sink], dtype=torch.float32)
    return Inputs(*(t if t is None else t.to(DEVICE) for t in (partial, lse, sink)))


@variants
def test_two_parts_by_hand_in_base_2(v):
    """lse 2 and 8 are weights of 4 and 256: (4 * 10 + 256 * 20) / 260, log2 260."""
    out, lse = v(of_one_head([2, 8], [10, 20]))
    assert out.float().item() == pytest.approx(5160 / 260, rel=2**-8)
    assert lse.item() == pytest.approx(math.log2(260), rel=LSE_TOLERANCE)


@variants
def test_two_parts_by_hand_in_base_e(v):
    """A caller's natural logarithms are converted once: weights of e**2 and e**8."""
    x = of_one_head([2, 8], [10, 20])
    out, lse = v(x._replace(lse=base_2(x.lse)))
    assert out.float().item() == pytest.approx(20 - 10 / (1 + math.exp(6)), rel=2**-8)
    assert lse.item() * math.log(2) == pytest.approx(8 + math.log1p(math.exp(-6)), rel=1e-5)


@variants
def test_C02_C04_parts_of_the_other_base_are_far_off(v):
    """A prefix of 4,096 tokens and one of 64: the wrong base is off by what no rounding gives."""
    natural = [math.log(4096) + 0.3, math.log(64) + 3.5]
    x = of_one_head(natural, [1.0, 2.0])
    right, wrong = v(x._replace(lse=base_2(x.lse))), v(x)
    weights = [math.exp(one) for one in natural]
    exact = (weights[0] + 2 * weights[1]) / sum(weights)
    assert right.out.float().item() == pytest.approx(exact, rel=2**-8)
    assert abs(wrong.out.float().item() - exact) > 0.05
    told = OP.compare(x, wrong, reference(x._replace(lse=base_2(x.lse))))
    assert told.status == "incorrect" and "lse is off" in told.why


def test_C03_the_two_bases_differ_by_a_factor_of_one_unit():
    assert (base_2(torch.tensor(7.012421)) / 7.012421).item() == pytest.approx(1.442695)


def test_C03_a_record_tells_the_base_of_its_lse():
    for op in OPS.values():
        assert op.lse_base == (2 if "lse" in op.dtypes else None), op.name
    made = study.run(arms_of(OP, ["eager"]), [SMALL], clocks=["wall_clock"], device="cpu",
                     repeats=2)  # fmt: skip
    assert [record.as_row(m)["lse_base"] for m in made] == [2]


@variants
def test_an_empty_part_contributes_nothing(v):
    """Whatever its memory holds, and wherever it stands."""
    plain = v(of_one_head([2, 8], [10, 20]))
    for where in range(3):
        lse, outputs = [2.0, 8.0], [10.0, 20.0]
        lse.insert(where, -math.inf), outputs.insert(where, math.nan)
        found = v(of_one_head(lse, outputs))
        assert all(same_bits(a, b) for a, b in zip(plain, found, strict=True))


@variants
def test_one_part_is_returned_bit_for_bit(v):
    x = OP.make_inputs(replace(SMALL, splits=1, empty=0.0, width=512), DEVICE)
    out, lse = v(x)
    assert same_bits(out, x.partial[:, :, 0].bfloat16())
    if v.name == "merge":  # the other one goes by way of base e
        assert same_bits(lse, x.lse[..., 0])
    torch.testing.assert_close(lse, x.lse[..., 0])


@pytest.mark.parametrize("sink", [None, 3.0, math.inf, -math.inf])
@variants
def test_without_any_part_zeros_and_minus_infinity(v, sink):
    out, lse = v(of_one_head([-math.inf] * 3, [math.nan] * 3, sink))
    assert not out.any() and lse.isneginf().all()


@variants
def test_a_sink_takes_weight_once_and_stays_out_of_lse(v):
    """Weights 4 and 12 beside a sink of 16 (natural log): half of the answer is left."""
    x = of_one_head([2, math.log2(12)], [10, 20], math.log(16))
    out, lse = v(x)
    assert out.float().item() == pytest.approx((4 * 10 + 12 * 20) / 32, rel=2**-8)
    assert lse.item() == pytest.approx(4, rel=LSE_TOLERANCE)


@variants
def test_parts_in_any_order_and_merged_in_two_steps(v):
    x = OP.make_inputs(SMALL, DEVICE)
    expected = reference(x)
    turned = x._replace(partial=x.partial.flip(2).contiguous(), lse=x.lse.flip(2).contiguous())
    assert OP.compare(x, v(turned), expected).passed
    first = reference(x._replace(partial=x.partial[:, :, :2], lse=x.lse[..., :2]))
    parts = torch.cat((first.out[:, :, None].float(), x.partial[:, :, 2:]), 2)
    lse = torch.cat((first.lse[..., None].float(), x.lse[..., 2:]), 2)
    assert OP.compare(x, v(Inputs(parts, lse, None)), expected).passed


def test_lse_is_written_into_the_rows_of_a_wider_tensor():
    x = OP.make_inputs(SMALL, DEVICE)
    wide = torch.full((4, 8), 7.0, device=DEVICE)
    out = torch.empty(4, 3, 64, dtype=torch.bfloat16, device=DEVICE)
    merged(x, out, wide[:, 2:5])
    assert OP.compare(x, OP.Output(out, wide[:, 2:5]), reference(x)).passed
    assert (wide[:, :2] == 7).all() and (wide[:, 5:] == 7).all()


@pytest.mark.parametrize("change, told", [
    (lambda x: {"partial": x.partial.half()}, "partial is torch.float16"),
    (lambda x: {"lse": x.lse[..., :2]}, "partial is torch.float32"),
    (lambda x: {"partial": x.partial[..., ::2]}, "partial has strides"),
    (lambda x: {"attn_sink": torch.zeros(4)}, "attn_sink is torch.float32"),
    (lambda x: {"partial": x.partial[:, :, :0], "lse": x.lse[..., :0]}, "splits of at least 1"),
])  # fmt: skip
def test_what_would_be_read_as_something_else_is_refused(change, told):
    x = OP.make_inputs(SMALL, "cpu")
    with pytest.raises(ValueError, match=told):
        OP.variants["merge"](x._replace(**change(x)))


@pytest.mark.parametrize("changes, told", [
    ({"splits": 0}, "splits=0"), ({"empty": 1.5}, "empty=1.5"), ({"sink": "inf"}, "sink='inf'"),
])  # fmt: skip
def test_a_workload_of_no_merge_is_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        OP.Workload(**changes)
