"""Two arms of a study, or two files: what is paired with what, and what is claimed of it."""

from dataclasses import replace

import numpy as np
import pytest
from test_records import ENVIRONMENT, made

from workbench import record
from workbench.comparison import arm_in, compare_arms, compare_files, noises
from workbench.evidence import derived
from workbench.op import Verdict

EARLY, LATER = (f"2026-01-0{day}T00:00:00+00:00" for day in (1, 2))
PLAN = {"tokens": 64}


def one(variant: str, us: float, block: int = 0, twin: float | None = None, **changes):
    """A record of `variant` whose samples are all `us`."""
    asked = changes.pop("asked", {})
    source = changes.pop("source", "old")
    fixed = {"workload": PLAN, "at": EARLY, "environment": replace(ENVIRONMENT, source=source)}
    return made(variant=variant, block=block, config=asked, config_asked=asked,
                samples_us=[us] * 4, twin_us=[twin] * 4 if twin else [],
                **fixed | changes)  # fmt: skip


def table(*measurements):
    return derived(record.table([record.as_row(m) for m in measurements]))


def pair(ratios, first_us=100.0, twin=1.0, **changes) -> list:
    """Blocks in which `per_token` takes `first_us` more each and `union` its ratio of that."""
    out = []
    for i, ratio in enumerate(ratios):
        us = first_us * (1 + i)  # what blocks share is removed by pairing
        out += [one("per_token", us, i, twin=us * twin, **changes),
                one("union", us * ratio, i, **changes)]  # fmt: skip
    return out


def compared(*measurements, a="per_token", b="union", **more):
    (found,) = compare_arms(table(*measurements), a, b, **more)
    return found


# --- two arms of one study

def test_arms_are_paired_by_block():
    c = compared(*pair([0.89, 0.90, 0.91]))
    assert c.ratio.value == pytest.approx((0.89 * 0.90 * 0.91) ** (1 / 3))
    assert (c.ratio.blocks, c.ratio.paired, c.verdict) == (3, True, "FASTER")
    assert c.logs == pytest.approx(np.log([0.89, 0.90, 0.91]))
    assert (c.a, c.b, c.place, c.clock) == ("per_token", "union", "tokens=64", "wall_clock")
    assert c.b_us / c.a_us == pytest.approx(c.ratio.value)
    back = compared(*pair([0.89, 0.90, 0.91]), a="union", b="per_token")
    assert back.ratio.value == pytest.approx(1 / c.ratio.value) and back.verdict == "SLOWER"


def test_the_order_of_records_in_a_file_decides_nothing():
    rows = pair([0.89, 0.90, 0.91])
    assert compared(*rows).ratio == compared(*rows[::-1]).ratio == compared(*rows[1::-1],
                                                                            *rows[2:]).ratio


@pytest.mark.parametrize("ratios, verdict", [
    ([0.999, 1.0, 1.001], "SAME"), ([0.8, 1.3, 1.0], "AMBIGUOUS"), ([0.5], "AMBIGUOUS"),
    ([1.10, 1.11, 1.12], "SLOWER"),
])  # fmt: skip
def test_a_verdict_takes_an_interval(ratios, verdict):
    assert compared(*pair(ratios)).verdict == verdict


def test_a_wider_band_says_same():
    rows = pair([0.985, 0.986, 0.987])
    assert compared(*rows).verdict == "FASTER" and compared(*rows, band=0.02).verdict == "SAME"


def test_a_difference_within_the_noise_of_the_twins_is_not_claimed():
    rows = pair([0.95, 0.951, 0.952], twin=1.06)
    c = compared(*rows)
    assert c.noise == pytest.approx(np.log(1.06)) and c.verdict == "AMBIGUOUS"
    assert compared(*pair([0.95, 0.951, 0.952], twin=1.01)).verdict == "FASTER"


def test_without_twins_the_noise_is_unknown():
    rows = [replace(m, twin_us=[]) for m in pair([0.95, 0.951, 0.952])]
    c = compared(*rows)
    assert np.isnan(c.noise) and c.verdict == "FASTER"
    assert noises(table(*rows)) == {}


def test_the_noise_is_that_of_the_studies_that_are_compared():
    quiet = pair([0.95, 0.951, 0.952], twin=1.001)
    loud = [one("per_token", 100.0, i, twin=150.0, study="alone", at=LATER, source="new")
            for i in range(3)]  # fmt: skip
    assert compared(*quiet, *loud).noise == pytest.approx(np.log(1.001))


def test_blocks_and_studies_without_both_arms_are_left_out():
    alone = [one("union", 1.0, 3), one("union", 1.0, 0, study="another"),
             one("per_token", 1.0, 1, study="another")]  # fmt: skip
    c = compared(*pair([0.89, 0.90, 0.91]), *alone)
    assert (c.ratio.blocks, len(c.logs)) == (3, 3) and c.verdict == "FASTER"


def test_a_block_in_which_one_arm_failed_is_left_out():
    rows = pair([0.89, 0.90, 0.91, 0.92])
    rows[-1] = replace(rows[-1], samples_us=[], verdict=Verdict("timeout", why="killed"))
    assert compared(*rows).ratio.blocks == 3


def test_studies_of_one_source_add_their_blocks():
    rows = [*pair([0.89, 0.90]), *pair([0.91, 0.92], study="another")]
    assert compared(*rows).ratio.blocks == 4


def test_the_newest_source_that_has_both_arms_wins():
    old, new = pair([0.89, 0.90, 0.91]), pair([1.2, 1.21], source="new", at=LATER, study="b")
    one_side = [one("union", 1.0, source="newest", at="2027-01-01T00:00:00+00:00", study="c")]
    assert compared(*new, *old, *one_side).ratio.value == pytest.approx((1.2 * 1.21) ** 0.5)


def test_every_case_is_its_own_and_setups_do_not_mix():
    other = replace(ENVIRONMENT, device="another", source="old")
    rows = [*pair([0.9, 0.9]), *pair([0.8, 0.8], workload={"tokens": 128}),
            *pair([0.7, 0.7], clock="graph_hot"), *pair([0.6, 0.6], environment=other),
            *pair([0.5, 0.5], cache="cold")]  # fmt: skip
    found = compare_arms(table(*rows), "per_token", "union")
    assert [c.ratio.value for c in found] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
    assert len({(c.device, c.clock, c.cache, c.place) for c in found}) == 5


def test_flags_of_either_side_are_told():
    rows = pair([0.9, 0.91])
    rows[0] = replace(rows[0], flags=["busy: 1"])
    rows[3] = replace(rows[3], flags=["throttled: power cap"])
    assert set(compared(*rows).flags) == {"busy: 1", "throttled: power cap"}


def test_an_arm_is_named_by_label_or_by_variant_where_that_is_enough():
    rows = table(one("per_token", 1.0), one("union", 1.0, asked={"group": 2}),
                 one("union", 1.0, asked={"group": 4}))  # fmt: skip
    assert arm_in(rows, "per_token") == "per_token"
    assert arm_in(rows, "union group=4") == "union group=4"
    with pytest.raises(ValueError, match=r"unknown arm 'union'.*union group=2, union group=4"):
        arm_in(rows, "union")
    two = table(*(one("union", 1.0, asked={"group": g, "block_k": 16 * g}) for g in (2, 4)))
    assert arm_in(two, "union group=2 block_k=32") == "union group=2, block_k=32"


def test_what_cannot_be_compared_is_told():
    apart = table(one("per_token", 1.0, 0), one("union", 1.0, 1))
    with pytest.raises(ValueError, match="times of both 'per_token' and 'union'"):
        compare_arms(apart, "per_token", "union")
    with pytest.raises(ValueError, match="unknown arm 'unoin'; did you mean 'union'"):
        compare_arms(apart, "per_token", "unoin")


# --- two files

def files(base_us, new_us, **sides):
    """Ratios of union in one file over another; `sides` are the study of base and of new."""
    base, new = (
        table(*(one("union", us, i, study=sides.get(side, side)) for i, us in enumerate(times)))
        for side, times in (("base", base_us), ("new", new_us))
    )
    (c,) = compare_files(base, new)
    return c


def test_two_studies_are_not_paired_and_need_not_have_equal_blocks():
    c = files([100.0, 200.0, 300.0], [90.0, 180.0])
    assert (c.ratio.paired, c.ratio.blocks, c.a, c.b) == (False, 2, "union", "union")
    assert c.verdict == "AMBIGUOUS" and c.logs == ()


def test_versions_that_took_turns_in_one_study_are_paired():
    c = files([100.0, 200.0, 300.0], [90.0, 180.1, 270.2], base="turns", new="turns")
    assert (c.ratio.paired, c.verdict) == (True, "FASTER")
    assert c.ratio.value == pytest.approx(0.9, abs=1e-3)


def test_blocks_that_are_not_the_same_are_not_paired():
    c = files([100.0, 200.0, 300.0], [90.0, 180.0], base="turns", new="turns")
    assert not c.ratio.paired


def test_records_without_a_study_are_not_paired():
    c = files([100.0, 200.0, 300.0], [90.0, 180.0, 270.0], base="", new="")
    assert not c.ratio.paired and c.verdict == "AMBIGUOUS"


def test_several_studies_on_a_side_are_paired_only_as_a_whole():
    turns = [one("union", us, i, study="turns") for i, us in enumerate([100.0, 200.0])]
    more = [one("union", us, i, study="more") for i, us in enumerate([100.0, 200.0])]
    other = [replace(m, study="other") for m in more]
    (c,) = compare_files(table(*turns, *more), table(*turns, *other))
    assert not c.ratio.paired
    (c,) = compare_files(table(*turns, *more), table(*more, *turns))
    assert c.ratio.paired and c.ratio.value == 1.0


@pytest.mark.parametrize("groups", [((2,), (8,)), ((2, 4), (8,)), ((2,), (4, 8))])
def test_an_arm_of_another_config_is_another_arm(groups):
    base, new = (table(*(one("union", 100.0, asked={"group": g}) for g in side))
                 for side in groups)  # fmt: skip
    with pytest.raises(ValueError, match="no case is in both"):
        compare_files(base, new)


def test_arms_are_matched_though_each_file_labels_them_its_own_way():
    """Labels hold what differs within a table: `union` here is `union group=2` there."""
    base = table(one("union", 100.0, asked={"group": 2}))
    new = table(*(one("union", us, asked={"group": g}) for g, us in ((2, 50.0), (8, 10.0))))
    (c,) = compare_files(base, new)
    assert (c.b, c.ratio.value) == ("union group=2", pytest.approx(0.5))
    (c,) = compare_files(new, base)
    assert (c.a, c.ratio.value) == ("union group=2", pytest.approx(2.0))


def test_a_config_field_that_the_older_version_lacks_does_not_part_the_arms():
    base = table(one("union", 100.0, asked={"group": 2}))
    new = table(one("union", 50.0, asked={"group": 2, "waves": 1}))
    assert [c.b for c in compare_files(base, new)] == ["union"]


def test_the_order_of_a_workloads_fields_parts_no_case():
    plans = {"churn": 0.25, "tokens": 64}, {"tokens": 64, "churn": 0.25}
    base, new = (table(one("union", 1.0, workload=w)) for w in plans)
    assert len(compare_files(base, new)) == 1


@pytest.mark.parametrize("changes", [
    {"clock": "graph_hot"}, {"cache": "cold"}, {"workload": {"tokens": 65}},
    {"environment": replace(ENVIRONMENT, device="another")},
], ids=["clock", "cache", "workload", "device"])  # fmt: skip
def test_nothing_is_compared_across_setups_and_workloads(changes):
    with pytest.raises(ValueError, match="no case is in both"):
        compare_files(table(one("union", 1.0)), table(one("union", 1.0, **changes)))


def test_the_larger_noise_of_two_files_counts():
    sides = ([one("union", 100.0, i, twin=100.0 * t, study=f"{t}") for i in range(3)]
             for t in (1.001, 1.05))  # fmt: skip
    (c,) = compare_files(*(table(*rows) for rows in sides))
    assert c.noise == pytest.approx(np.log(1.05))
