"""Paired quality: the table of who was right, its test and its interval, and what is refused."""

import json
import math

import pytest

from workbench.models.quality import from_counts, paired, read_outcomes


def table(both: int, only_a: int, only_b: int, neither: int):
    counts = {(1, 1): both, (1, 0): only_a, (0, 1): only_b, (0, 0): neither}
    pairs = [pair for pair, count in counts.items() for _ in range(count)]
    names = [f"q{i}" for i in range(len(pairs))]
    return [dict(zip(names, map(bool, side), strict=True)) for side in zip(*pairs, strict=True)]


def test_fourteen_against_fifteen_is_no_regression():
    """sglang#32320: candidate only 14, control only 15; p = 1.0, -0.910 to +0.758 points."""
    p = paired(*table(1234, 15, 14, 56))
    assert (p.both, p.only_a, p.only_b, p.neither, p.n) == (1234, 15, 14, 56, 1319)
    assert p.p == 1.0 and p.difference == -1 / 1319
    assert (p.low, p.high) == (-12 / 1319, 10 / 1319)
    back = paired(*table(1234, 14, 15, 56))
    assert (back.low, back.high) == (-10 / 1319, 12 / 1319) and back.p == 1.0


def test_mcnemar_is_exact_and_needs_disagreement():
    assert from_counts(10, 0, 6, 0).p == pytest.approx(2 / 2**6)
    assert from_counts(10, 6, 0, 0).p == pytest.approx(2 / 2**6)
    same = from_counts(90, 0, 0, 10)
    assert same.p == 1.0 and same.difference == 0
    assert same.high == -same.low == pytest.approx(1 - 0.025 ** (1 / 100))  # never seen in 100
    with pytest.raises(ValueError, match="0/0/0/0"):
        from_counts(0, 0, 0, 0)


def test_the_quality_interval_covers_a_true_gain():
    """Exactly, without drawing: B alone gains Poisson-many items; fixed disagreements give 55 %."""
    n, gain = 1000, 5
    weight = lambda k: math.comb(n, k) * (gain / n) ** k * (1 - gain / n) ** (n - k)  # noqa: E731
    tables = {k: from_counts(n - k, 0, k, 0) for k in range(25)}
    covered = sum(weight(k) for k, t in tables.items() if t.low <= gain / n <= t.high)
    assert covered > 0.94


def test_items_without_a_partner_are_refused():
    a = {f"q{i}": True for i in range(6)}
    with pytest.raises(ValueError, match=r"B lacks 5 items of the other run: q1, q2, q3$"):
        paired(a, {"q0": True})
    with pytest.raises(ValueError, match="A lacks 1 items of the other run: q9"):
        paired(a, {**a, "q9": False})
    with pytest.raises(ValueError, match=r"q0.*'false'"):
        paired({"q0": True}, {"q0": "false"})
    with pytest.raises(ValueError, match="neither run"):
        paired({}, {})


@pytest.mark.parametrize(
    "text",
    [
        "item,correct\nq1,true\nq2,0\n",
        "model,correct,item\nx,1,q1\nx,False,q2\n",
        "question,right\nq1,1\nq2,0\n",
        "q1,True\nq2,false\n",
        '{"item": "q1", "correct": true}\n\n{"item": "q2", "correct": 0}\n',
    ],
)
def test_outcomes_are_read(tmp_path, text):
    (tmp_path / "run").write_text(text)
    assert read_outcomes(tmp_path / "run") == {"q1": True, "q2": False}


@pytest.mark.parametrize(
    "text, message",
    [
        ("item,correct\nq1,true\nq2,maybe\n", "run:3: 'maybe'"),
        ("item,correct\nq1,true\nq1,true\n", "run:3: item 'q1' is given twice"),
        ("item,correct\nq1\n", r"run:2: \['q1'\]"),
        (json.dumps({"item": "q1", "correct": None}), "run:1: None"),
        (json.dumps({"item": "q1"}), "run:1: .*q1.* has no item and correct"),
        ('{"item": "q1", "correct": true}\n{"item"', "run:2: "),
        ("item,correct\n", "holds no items"),
        ("", "holds no items"),
    ],
)
def test_what_is_no_outcome_is_told_with_its_line(tmp_path, text, message):
    (tmp_path / "run").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_outcomes(tmp_path / "run")
