"""A plan names the fastest of what serves a call, says why, and never chooses in silence."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.dispatch import Plan, plan, planned
from workbench.models.dispatch_table import Arm, Entry, Table, identity
from workbench.op import Op
from workbench.ops import OPS


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 32
    heads: int = 16
    seed: int = 0


@dataclass(frozen=True)
class Config:
    block: int = 16


def few_heads(w, config) -> str | None:
    return f"heads={w.heads} exceeds {config.block} columns" if w.heads > config.block else None


def an_op(preference=("hopper", "narrow")) -> Op:
    op = Op("planted", Workload, None, {}, {}, *[None] * 6, preference=preference)
    declared = {"eager": {}, "host": {"capturable": False}, "wide": {}, "tall": {},
                "narrow": {"requires": few_heads}, "hopper": {"archs": ("sm_90",)}}  # fmt: skip
    for name, properties in declared.items():
        run = lambda x, config: None  # noqa: E731
        run.__name__, run.__doc__ = name, "An idea."
        op.variant(config=None if name == "eager" else Config(), **properties)(run)
    return op


OP = an_op()


def entry(times: dict, intervals: dict | None = None, **fields) -> Entry:
    """A place whose arms took `times`: "wide" or "wide 32" for a block of 32."""
    arms, fastest = [], min(times.values())
    for name, us in sorted(times.items(), key=lambda item: (item[1], item[0])):
        variant, _, block = name.partition(" ")
        low, high = (intervals or {}).get(name, (None, None))
        config = {"block": int(block)} if block else {}
        more = (us / fastest, low, high, "SLOWER" if low else "AMBIGUOUS") if arms else ()
        arms.append(Arm(variant, config, us, 5, (), *more))
    return Entry(identity(Workload(**fields)), tuple(arms))


def a_table(*entries: Entry, arch="sm_90") -> Table:
    return Table("planted", "a GPU", arch, "3", "2", "graph_hot", entries)


def along(**curves: dict) -> Table:
    """A table of curves: an arm's time by tokens."""
    tokens = sorted({t for curve in curves.values() for t in curve})
    return a_table(*(entry({name: curve[t] for name, curve in curves.items() if t in curve},
                           tokens=t) for t in tokens))  # fmt: skip


def told(table=None, op=OP, variant=None, config=None, arch=None, **fields) -> Plan:
    return planned(op, Workload(**fields), table, variant=variant, config=config, arch=arch)


# --- with a table

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


# --- without a measurement

def test_without_a_table_the_order_of_preference_decides():
    assert told(arch="sm_90").variant == "hopper"
    assert told().variant == "narrow"  # no GPU is named: what is written for some may not run
    made = told(heads=64)
    assert made.variant == "wide" and made.config == Config()  # in the order of the files
    assert "no measurement of this place" in made.why and "no table" in made.why


def test_another_place_is_no_measurement():
    made = told(a_table(entry({"tall": 1.0}, heads=32), arch=""), heads=64)
    assert made.variant == "wide"
    assert made.why == ("no measurement of this place (the nearest has heads=32): wide comes first "
                        "of what serves")  # fmt: skip
    none = told(a_table(entry({"narrow": 1.0}, heads=32), arch=""), heads=32)
    assert none.why.startswith("nothing that was measured at this place serves")


def test_where_nothing_serves_each_reason_is_told():
    op = an_op(())
    for name in ("wide", "tall"):
        del op.variants[name]
    with pytest.raises(ValueError, match="heads=64") as refused:
        told(op=op, heads=64)
    for said in ("eager: a reference", "host: ", "narrow: heads=64 exceeds 16 columns",
                 "hopper: written for sm_90, no GPU is named"):  # fmt: skip
        assert said in str(refused.value)


# --- a variant that is asked for

def test_who_asks_for_a_variant_gets_it_or_its_reason():
    known = a_table(entry({"wide": 1.0, "tall": 3.0, "tall 32": 2.0, "narrow 128": 1.5}, heads=64))
    made = told(known, variant="tall", heads=64)
    assert made.config == Config(32) and made.why.startswith("asked for; measured at 32 tokens: 2")
    assert told(known, variant="narrow", heads=64).config == Config(128)
    assert told(variant="eager") == Plan("planted", "eager", None, "asked for")
    assert told(variant="hopper").variant == "hopper"
    assert told(known, variant="tall", config=Config(64), heads=64).config == Config(64)


@pytest.mark.parametrize("asked, said", [
    ({"variant": "narrow", "heads": 64}, "narrow does not serve heads=64: heads=64 exceeds 16"),
    ({"variant": "narrow", "heads": 64, "config": Config(32)}, "exceeds 32 columns"),
    ({"variant": "hopper", "arch": "sm_120"}, "the default workload: written for sm_90"),
    ({"variant": "width"}, "did you mean 'wide'"), ({"config": Config()}, "without a variant"),
    ({"variant": "wide", "config": Workload()}, "is none of wide"),
])  # fmt: skip
def test_what_cannot_be_had_is_refused_with_the_reason(asked, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        told(**asked)


# --- remembering

def test_a_plan_is_made_once():
    known = a_table(entry({"wide": 1.0}))
    first = plan(OP, Workload(), known)
    assert plan(OP, Workload(), known) is first
    assert plan(OP, Workload(), a_table(entry({"tall": 1.0}))).variant == "tall"
    assert plan(OP, Workload(heads=17), known) is not first
    with pytest.raises(ValueError, match="exceeds"):
        plan(OP, Workload(heads=64), known, variant="narrow")


def test_a_variant_that_comes_later_is_seen():
    op = an_op(())
    with_stranger = a_table(entry({"late": 1.0, "wide": 2.0}))
    assert plan(op, Workload(), with_stranger).variant == "wide"

    @op.variant(config=Config())
    def late(x, config):
        """An idea."""

    assert plan(op, Workload(), with_stranger).variant == "late"


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


# --- the ops that are here

def test_an_order_of_preference_names_variants():
    assert OPS["sparse_decode"].preference
    for op in OPS.values():
        assert set(op.preference) <= set(op.variants), op.name


@pytest.mark.parametrize("arch", [None, "sm_90", "sm_120"])
def test_every_decode_step_has_a_plan_that_serves_it(arch):
    op = OPS["sparse_decode"]
    for w in {w for suite in op.suites.values() for w in suite}:
        made = plan(op, w, arch=arch)
        v = op.variants[made.variant]
        assert v.requires(w, made.config) is None and (not v.archs or arch in v.archs), w
