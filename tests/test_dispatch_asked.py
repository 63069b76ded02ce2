"""What runs without a measurement or by name is never chosen in silence; a plan is made once."""

from dataclasses import replace

import pytest
from planted_plans import OP, Config, Workload, a_table, an_op, entry, told

from workbench.dispatch import Plan, plan
from workbench.models.dispatch_table import Arm, Entry
from workbench.ops import OPS

# --- without a measurement

def test_without_a_table_the_order_of_preference_decides():
    assert told(arch="sm_90").variant == "hopper"
    assert told().variant == "narrow"  # no GPU is named: what is written for some may not run
    made = told(heads=64)
    assert made.variant == "wide" and made.config == Config()  # in the order of the files
    assert "no measurement of this place" in made.why and "no table" in made.why
    assert told(arch="sm_90").why.endswith("hopper comes first of what serves")


def test_another_place_is_no_measurement():
    made = told(a_table(entry({"tall": 1.0}, heads=32), arch=""), heads=64)
    assert made.variant == "wide"
    by_files = ("wide comes first of what serves, in the order of their files: no preference names "
                "it")  # fmt: skip
    assert made.why == f"no measurement of this place (the nearest has heads=32): {by_files}"
    none = told(a_table(entry({"narrow": 1.0}, heads=32), arch=""), heads=32)
    assert none.why == ("nothing that was measured at this place serves (narrow: heads=32 exceeds "
                        f"16 columns): {by_files}")  # fmt: skip


def test_the_nearest_is_told_by_the_fields_that_an_entry_leaves_out_too():
    bare = Entry({"tokens": 32}, (Arm("tall", {}, 1.0, 5, ()),))
    why = told(a_table(bare, entry({"tall": 1.0}, tokens=0, heads=32), arch=""), heads=64).why
    assert why.startswith("no measurement of this place (the nearest has heads=16): ")
    of_none = told(a_table(entry({"tall": 1.0}, tokens=0), arch="")).why
    assert of_none.startswith("no measurement of this place (the nearest has no tokens): ")
    assert told(a_table()).why.startswith("no measurement of this place: the table is empty: ")


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


def test_a_variant_that_was_replaced_does_not_answer():
    op = an_op(())
    known = a_table(entry({"wide": 1.0, "tall": 2.0}))
    assert plan(op, Workload(), known).variant == "wide"
    op.variants["wide"] = replace(op.variants["wide"], requires=lambda w, config: "replaced")
    assert plan(op, Workload(), known).variant == "tall"


def test_a_variant_that_comes_later_is_seen():
    op = an_op(())
    with_stranger = a_table(entry({"late": 1.0, "wide": 2.0}))
    assert plan(op, Workload(), with_stranger).variant == "wide"

    @op.variant(config=Config())
    def late(x, config):
        """An idea."""

    assert plan(op, Workload(), with_stranger).variant == "late"


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
