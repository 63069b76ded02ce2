"""What a choice loses over a mix, against what was measured at each very place and nothing else."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.models.dispatch_estimates import estimates
from workbench.models.dispatch_table import Arm, Entry, Table, identity
from workbench.ops import OPS
from workbench.regret import Call, family_of, read_mix, regret

OP = OPS["sparse_decode"]


def w(**fields):
    return OP.Workload(**{"rows": 65536, "tokens": 1} | fields)


@pytest.fixture(autouse=True)
def more_variants(monkeypatch):
    """A kernel of prefill and a dense one among the variants of decode."""
    more = {name: replace(OP.variants["single_pass"], name=name)
            for name in ("prefill_planted", "dense_planted")}  # fmt: skip
    monkeypatch.setattr(OP, "variants", OP.variants | more)


def entry(times: dict, **fields) -> Entry:
    first = min(times.values())
    arms = [Arm(name, {}, us, 3, (), *((us / first,) if us > first else ()))
            for name, us in sorted(times.items(), key=lambda item: item[1])]  # fmt: skip
    return Entry(identity(w(**fields)), tuple(arms))


def a_table(*entries) -> Table:
    return Table(OP.name, "a GPU", "", "3", "2", "graph_rotating", entries)


def mix(**weights) -> list[Call]:
    """Calls by tokens: mix(t8=3) is three calls of 8 tokens."""
    return [Call(w(tokens=int(name[1:])), weight) for name, weight in weights.items()]


CURVES = a_table(entry({"split_k": 10.0, "single_pass": 30.0, "prefill_planted": 50.0}, tokens=8),
                 entry({"split_k": 30.0, "single_pass": 31.0, "prefill_planted": 40.0}, tokens=32),
                 entry({"prefill_planted": 50.0, "single_pass": 60.0, "split_k": 80.0}, tokens=64),
                 entry({"prefill_planted": 60.0, "single_pass": 90.0, "split_k": 160.0},
                       tokens=128))  # fmt: skip


def lines(*args, **more) -> dict:
    return {line.name.split(":")[0]: line for line in regret(OP, *args, **more).lines}


def test_a_table_that_holds_the_oracle_loses_nothing():
    found = regret(OP, CURVES, CURVES, mix(t8=3, t64=1))
    own, *_ = found.lines
    assert own.lost == 0 and own.us == found.oracle_us == (3 * 10 + 50) / 4
    assert found.unmeasured == () and [c.variant for c in own.choices] == ["split_k",
                                                                            "prefill_planted"]


def test_a_wrong_choice_costs_what_was_measured_of_it():
    wrong = a_table(entry({"single_pass": 1.0, "split_k": 2.0}, tokens=8))
    own = lines(wrong, CURVES, mix(t8=2, t64=1))["this table"]
    assert [(c.variant, c.us, c.lost) for c in own.choices] == [
        ("single_pass", 30.0, 2.0), ("single_pass", 60.0, 60 / 50 - 1)]  # fmt: skip
    assert own.us == (2 * 30 + 60) / 3 and own.lost == pytest.approx((60 + 60) / (20 + 50) - 1)


def test_held_out_chooses_from_the_neighbours():
    held = lines(CURVES, CURVES, mix(t32=1), held_out=True)["this table, each place held out"]
    (choice,) = held.choices
    assert choice.why.startswith("measured at 8 and 64 tokens: 40.0 us")  # ten times two thrice
    assert (choice.variant, choice.us, held.lost) == ("split_k", 30.0, 0)
    bent = a_table(*CURVES.entries[:1], *CURVES.entries[2:],
                   entry({"single_pass": 5.0, "split_k": 30.0}, tokens=32))  # fmt: skip
    own, = regret(OP, bent, bent, mix(t32=1), held_out=True).lines[:1]
    assert own.choices[0].variant == "split_k" and own.lost == 5.0


def test_what_no_record_measures_is_named_and_not_guessed():
    found = regret(OP, CURVES, CURVES, mix(t8=1, t9=100))
    assert [c.workload.tokens for c in found.unmeasured] == [9] and found.lines[0].us == 10.0
    elsewhere = a_table(entry({"single_pass": 1.0}, tokens=8))
    measured = a_table(entry({"split_k": 10.0}, tokens=8))
    own = lines(elsewhere, measured, mix(t8=1))["this table"]
    assert own.choices[0].variant == "single_pass" and own.choices[0].us is None
    assert own.us is None and own.lost is None
    with pytest.raises(ValueError, match="no record measures a call of the mix: tokens=9"):
        regret(OP, CURVES, CURVES, mix(t9=1))


def test_the_fixed_rule_of_tokens_takes_the_best_of_its_family():
    rule = lines(CURVES, CURVES, mix(t8=1, t64=1, t128=1))["tokens <= 64"]
    assert [(c.variant, c.us) for c in rule.choices] == [
        ("split_k", 10.0), ("single_pass", 60.0), ("prefill_planted", 60.0)]  # fmt: skip
    assert rule.lost == pytest.approx(130 / 120 - 1)


def test_a_rule_says_nothing_of_families_that_are_not_measured():
    decode = a_table(entry({"split_k": 10.0}, tokens=8), entry({"split_k": 80.0}, tokens=128))
    found = lines(decode, decode, mix(t8=1, t128=1))
    assert found["tokens <= 64"].choices == () and found["context <= 2048"].us is None
    some = a_table(*decode.entries[:1], entry({"split_k": 80.0}, tokens=128),
                   entry({"split_k": 70.0, "prefill_planted": 60.0}, tokens=65))  # fmt: skip
    rule = lines(some, some, mix(t8=1, t65=1, t128=1))["tokens <= 64"]
    assert [c.us for c in rule.choices] == [10.0, 60.0, None] and len(rule.known) == 2
    assert rule.us == 35.0 and rule.lost == 0


def test_the_fixed_rule_of_contexts_goes_by_the_rows_of_a_request():
    both = {"split_k": 10.0, "dense_planted": 20.0}
    known = a_table(entry(both, tokens=4, rows=8192), entry(both, tokens=4, rows=8196))
    calls = [Call(w(tokens=4, rows=rows), 1.0) for rows in (8192, 8196)]
    rule = lines(known, known, calls)["context <= 2048"]
    assert [(c.variant, c.lost) for c in rule.choices] == [("dense_planted", 1.0), ("split_k", 0.0)]


@pytest.mark.parametrize("name, family", [
    ("split_k", "decode"), ("single_pass", "decode"), ("prefill_alone", "prefill"),
    ("dense_mha", "dense"),
])  # fmt: skip
def test_a_variant_is_of_the_family_in_its_name(name, family):
    assert family_of(name) == family


TIMES = st.fixed_dictionaries({name: st.floats(1, 100) for name in (
    "split_k", "single_pass", "prefill_planted")})  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=4), st.lists(TIMES, min_size=4, max_size=4),
       st.booleans())  # fmt: skip
def test_nobody_beats_the_oracle(known, measured, held_out):
    table, truth = (a_table(*(entry(times, tokens=2**i) for i, times in enumerate(each)))
                    for each in (known, measured))  # fmt: skip
    calls = [Call(w(tokens=2**i), 1.0 + i) for i in range(4)]
    found = regret(OP, table, truth, calls, held_out)
    assert all(line.lost > -1e-12 for line in found.lines if line.known)
    assert regret(OP, truth, truth, calls).lines[0].lost == 0


# --- files of a mix

BASE = OP.Workload(padding="mixed")


def test_a_mix_is_csv_or_json(tmp_path):
    (tmp_path / "m.csv").write_text("tokens,heads,layout,weight\n1,64,,2\n8,,inline_656,0.5\n")
    rows = [{"tokens": 1, "heads": 64, "weight": 2}, {"tokens": 8, "weight": 0.5}]
    (tmp_path / "m.json").write_text(json.dumps(rows))
    calls = [read_mix(tmp_path / name, BASE) for name in ("m.csv", "m.json")]
    assert calls[0] == calls[1] == [Call(replace(BASE, tokens=1, heads=64), 2.0),
                                    Call(replace(BASE, tokens=8), 0.5)]


def test_the_mark_and_the_spaces_of_a_spreadsheet_are_no_names(tmp_path):
    (tmp_path / "m.csv").write_text("\ufefftokens, weight\n8, 2\n")
    assert read_mix(tmp_path / "m.csv", BASE) == [Call(replace(BASE, tokens=8), 2.0)]


def test_equal_calls_are_priced_once(monkeypatch):
    calls, asked = mix(t8=3, t64=1), []
    monkeypatch.setattr("workbench.regret.estimates",
                        lambda *given: asked.append(given[1]) or estimates(*given))  # fmt: skip
    many = regret(OP, CURVES, CURVES, calls * 100 + mix(t9=1) * 2)
    assert asked == [w(tokens=8), w(tokens=64), w(tokens=9)]
    assert [c.weight for c in many.lines[0].choices] == [300, 100]
    assert many.oracle_us == 20.0 and many.unmeasured == (Call(w(tokens=9), 2),)


@pytest.mark.parametrize("name, text, said", [
    ("m.csv", "tokens\n1\n", "row 1: no weight"), ("m.csv", "tokens,weight\n", "holds no calls"),
    ("m.csv", "tokens,weight\n1,1\n2\n", "row 2: no weight"),
    ("m.csv", "tokens,weight\n1,0\n", "row 1: weight='0' is no positive number"),
    ("m.csv", "tokens,weight\n1,nan\n", "weight='nan'"),
    ("m.csv", "tokens,weight\n1,1e12\n", "weight='1e12' is no positive number between 1e-12 and"),
    ("m.csv", "tokens,weight\n1,5e-324\n", "weight='5e-324'"),
    ("m.json", f'[{{"weight": {10**400}}}]', "is not of type float"),
    ("m.csv", "tokens,tokens,weight\n1,2,1\n", "'tokens' is given twice"),
    ("m.csv", "weight, weight\n1,2\n", "'weight' is given twice"),
    ("m.json", '[{"tokens": 1, "tokens": 2, "weight": 1}]', "'tokens' is given twice"),
    ("m.csv", "tokens;weight\n1;1\n", "no weight: the columns are 'tokens;weight'"),
    ("m.csv", "", "holds no calls"), ("m.csv", "T,weight\n1,1\n", "'T'"),
    ("m.csv", "tokens,weight\n1,1,5\n", "row 1: 5 has no column"),
    ("m.csv", "tokens,weight\nmany,1\n", "row 1: tokens='many'"),
    ("m.json", '[{"heads": 200, "weight": 1}]', "row 1: heads=200 exceeds 128"),
    ("m.csv", "tokens,weight\n" + "1" * 200_000 + ",1\n", "m.csv is no CSV"),
    ("m.json", "{}", "no list of objects"), ("m.json", "[1]", "no list of objects"),
    ("m.json", "tokens", "neither .csv nor JSON"),
    ("m.json", '[{"weight": [1]}]', "row 1: no weight"),
])  # fmt: skip
def test_a_row_that_is_none_is_named(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name) as refused:
        read_mix(tmp_path / name, BASE)
    assert said in str(refused.value), refused.value
