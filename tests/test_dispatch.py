"""A plan names the fastest of what was measured and serves a call, and says why."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_plans import Config, Workload, a_table, along, entry, told

from workbench.dispatch import Plan
from workbench.models.dispatch_table import Arm, Entry, identity


def test_the_fastest_at_the_place_is_named_and_how_surely():
    known = a_table(entry({"wide": 40.0, "tall": 50.0}, {"tall": (1.2, 1.3)}))
    assert told(known) == Plan("planted", "wide", Config(),
                               "measured at 32 tokens: 40.0 us, next tall 1.25x (1.20-1.30)")
    alone = told(a_table(entry({"wide 32": 40.0})))
    assert alone.config == Config(32) and "nothing else that serves was measured" in alone.why


def test_the_seed_tells_no_place():
    assert told(a_table(entry({"tall": 1.0})), seed=7).variant == "tall"


def test_between_two_token_counts_times_are_read_off_a_line_in_log_log():
    known = along(wide={16: 10.0, 64: 40.0}, tall={16: 18.0, 64: 19.0})
    at = {t: told(known, tokens=t) for t in (16, 29, 30, 64)}
    assert [p.variant for p in at.values()] == ["wide", "wide", "tall", "tall"]
    assert at[29].why.startswith("measured at 16 and 64 tokens: 18.1 us, next tall 1.02x")


def test_an_interval_between_places_holds_both_of_theirs_or_is_not_told():
    sides = [entry({"wide": us, "tall": 1.3 * us}, {"tall": band}, tokens=t)
             for t, us, band in ((32, 10.0, (1.28, 1.31)), (48, 12.0, (1.27, 1.36)))]  # fmt: skip
    assert told(a_table(*sides), tokens=40).why == \
        "measured at 32 and 48 tokens: 11.1 us, next tall 1.30x (1.27-1.36)"  # fmt: skip
    turned = entry({"wide": 13.0, "tall": 12.5}, {"wide": (1.03, 1.05)}, tokens=48)
    assert told(a_table(sides[0], turned), tokens=40).why.endswith("next tall 1.10x")


def test_an_interval_that_leaves_out_the_ratio_told_is_not_told():
    known = a_table(entry({"wide": 40.0, "tall": 50.0}, {"tall": (0.86, 0.96)}))
    assert told(known).why.endswith("next tall 1.25x")


def test_the_next_config_of_the_same_variant_is_told_by_what_differs():
    known = a_table(entry({"wide 32": 10.0, "wide": 20.0, "tall 64": 30.0}))
    assert told(known).why.endswith("10.0 us, next wide block=16 2.00x")
    assert told(known, variant="wide").why.endswith("next wide block=16 2.00x")
    assert told(a_table(entry({"wide": 10.0, "tall 64": 30.0}))).why.endswith("next tall 3.00x")


def test_beyond_the_ends_the_nearest_end_says_who_is_fastest():
    known = along(wide={4: 10.0, 64: 30.0}, tall={4: 12.0, 64: 20.0})
    below, above = told(known, tokens=1), told(known, tokens=128)
    assert (below.variant, above.variant) == ("wide", "tall")
    assert below.why.startswith("measured from 4 tokens on: 10.0 us there")
    assert above.why.startswith("measured up to 64 tokens: 40.0 us in proportion")
    assert told(known, tokens=0).variant == "wide"
    # how long an arm takes for no tokens says nothing of one
    assert told(along(tall={0: 1.0, 4: 12.0}, wide={4: 10.0}), tokens=1) == replace(
        below, why="measured from 4 tokens on: 10.0 us there, next tall 1.20x")  # fmt: skip


def test_an_arm_does_not_win_by_having_been_left_out_further_up():
    known = along(wide={4: 10.0, 64: 50.0}, tall={4: 20.0, 64: 55.0, 256: 80.0})
    assert told(known, tokens=256).variant == "tall"


def test_what_does_not_serve_is_passed_over_and_told():
    known = a_table(entry({"narrow": 10.0, "wide": 20.0, "tall": 30.0},
                          {"wide": (1.9, 2.1), "tall": (2.9, 3.1)}, heads=64))  # fmt: skip
    made = told(known, heads=64)
    assert made.variant == "wide"
    assert "next tall 1.50x;" in made.why, "intervals are of ratios to what does not serve"
    assert "narrow does not serve: heads=64 exceeds 16 columns" in made.why


@pytest.mark.parametrize("name, said", [
    ("stranger", "not a variant here"), ("eager", "a reference"),
    ("host", "no CUDA graph"), ("hopper", "written for sm_90, this is sm_120"),
])  # fmt: skip
def test_what_nobody_named_may_not_be_chosen(name, said):
    made = told(a_table(entry({name: 1.0, "wide": 2.0}), arch="sm_120"))
    assert made.variant == "wide" and f"{name} does not serve: " in made.why and said in made.why


def test_a_config_of_another_version_is_no_arm():
    fast = Arm("tall", {"stages": 3}, 1.0, 5, ())
    slow = Arm("wide", {}, 2.0, 5, (), 2.0)
    made = told(a_table(Entry(identity(Workload()), (fast, slow))))
    assert made.variant == "wide" and "'stages'" in made.why


def test_a_doubtful_time_is_called_one():
    arm = Arm("wide", {}, 1.0, 5, ("throttled: by power",))
    assert told(a_table(Entry(identity(Workload()), (arm,)))).why.endswith("flagged: throttled")


def test_a_table_of_another_op_is_refused():
    with pytest.raises(ValueError, match="a table of other, not of planted"):
        told(replace(a_table(), op="other"))


# --- whatever was measured

NAMES = ("wide", "tall", "narrow", "hopper", "wide 32")
TOKENS = st.sampled_from([1, 2, 3, 8, 32, 48, 65, 128])
TIMES = st.floats(0.5, 1e4)
CURVES = st.dictionaries(st.sampled_from(NAMES), st.dictionaries(TOKENS, TIMES, min_size=1),
                         min_size=1)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(CURVES, st.integers(1, 200), st.randoms())
def test_the_order_of_a_table_decides_nothing(curves, tokens, random):
    known = along(**curves)
    shuffled = list(known.entries)
    random.shuffle(shuffled)
    assert told(known, tokens=tokens) == told(a_table(*shuffled), tokens=tokens)


@settings(max_examples=60, deadline=None)
@given(CURVES, st.floats(1.01, 10.0), st.integers(1, 200))
def test_one_more_arm_that_is_slower_changes_no_pick(curves, times, tokens):
    known = along(**curves)
    before = told(known, tokens=tokens)
    name = f"{before.variant} {before.config.block}".removesuffix(" 16")
    slower = {t: us * times for t, us in curves[name].items()}
    after = told(along(**curves, **{"tall 64": slower}), tokens=tokens)
    assert (after.variant, after.config) == (before.variant, before.config)
