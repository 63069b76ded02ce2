"""A digest tells any two answers apart: another bit, word, place, shape or type is another text."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.digest import digest

TENSORS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40)


def words(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def test_equal_outputs_have_an_equal_digest_on_any_strides():
    x = torch.randn(6, 5)
    assert digest((x,)) == digest((x.clone(),)) == digest((x.t().contiguous().t(),))
    nan = torch.full((3,), torch.nan)
    assert digest((nan,)) == digest((nan.clone(),))


@settings(deadline=None)
@given(TENSORS, st.data())
def test_any_flipped_bit_changes_the_digest(values, data):
    at, bit = data.draw(st.integers(0, len(values) - 1)), data.draw(st.integers(0, 63))
    flipped = words(values)
    flipped[at] ^= 1 << bit if bit < 63 else -(1 << 63)
    assert digest((flipped,)) != digest((words(values),))


@settings(deadline=None)
@given(TENSORS, st.data())
def test_exchanged_words_change_the_digest(values, data):
    i, j = (data.draw(st.integers(0, len(values) - 1)) for _ in range(2))
    exchanged = list(values)
    exchanged[i], exchanged[j] = values[j], values[i]
    assert (digest((words(exchanged),)) == digest((words(values),))) == (exchanged == values)


@pytest.mark.parametrize("bit", [0, 31, 32, 55, 62, 63])
def test_words_that_differ_in_one_high_bit_cannot_be_exchanged(bit):
    one = torch.zeros(2 << 9, dtype=torch.int64)
    other = one.clone()
    one[0], other[512] = (-(1 << 63) if bit == 63 else 1 << bit for _ in range(2))
    assert digest((one,)) != digest((other,))


@pytest.mark.parametrize("change", [
    lambda x: x.view(3, 4), lambda x: x.view(2, 6).t(), lambda x: x[:-1], lambda x: x.view(1, 12),
    lambda x: torch.cat([x, x.new_zeros(1)]), lambda x: x.view(torch.int32), lambda x: -x,
], ids=["3 x 4", "6 x 2", "shorter", "1 x 12", "longer by 0", "dtype", "sign of zero"])  # fmt: skip
def test_another_shape_type_or_sign_changes_the_digest(change):
    x = torch.zeros(12)
    assert digest((change(x),)) != digest((x,))


def test_a_tensor_cannot_move_to_the_next_output():
    a, b, none = torch.ones(4), torch.zeros(4), torch.zeros(0)
    assert len({digest(t) for t in ((a, b), (b, a), (a, b, none), (none, a, b))}) == 4


def test_long_outputs_are_digested_in_steps(monkeypatch):
    monkeypatch.setattr("workbench.digest.STEP", 4)
    x = torch.arange(10)
    swapped = x[[4, 1, 2, 3, 0, 5, 6, 7, 8, 9]]  # first words of two steps
    assert digest((x,)) == digest((x.clone(),)) != digest((swapped,))


def test_words_whose_mixed_bits_are_opposite_are_told_apart():
    """A shift that copies the sign would lose it: the first word mixes to ~ of what 1 mixes to."""
    assert digest((words([7575587736534282102]),)) != digest((words([1]),))
