"""What records say of each place: every arm, its time over the fastest one's, and how surely."""

import json
import math
from dataclasses import replace

import pytest
from test_records import ENVIRONMENT, made

from workbench import record
from workbench.dispatch import planned
from workbench.evidence import derived, newest
from workbench.models import dispatch_table as t
from workbench.models.dispatch_records import table as of_records
from workbench.models.ratio import ratio
from workbench.op import Verdict
from workbench.ops import OPS

OP = OPS["sparse_decode"]
GPU = replace(ENVIRONMENT, device="a GPU", capability="9.0", triton="3.6.0")
PLACE = {"tokens": 8, "heads": 16}


def one(variant: str, us: float, block: int = 0, workload=None, **changes):
    """A record of a decode variant whose samples are all `us`."""
    asked = changes.pop("config", {"block_h": 16})
    fixed = {
        "op": OP.name, "variant": variant, "config": asked, "config_asked": asked, "block": block,
        "samples_us": [us] * 4, "workload": PLACE | (workload or {}), "environment": GPU,
        "clock": "graph_rotating", "cache": "rotating", "at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    return made(**fixed | changes)


def table(*measurements) -> t.Table:
    rows = record.table([record.as_row(m) for m in measurements])
    return of_records(newest(derived(rows)), OP)


def blocks(variant: str, times, **changes) -> list:
    return [one(variant, us, block, **changes) for block, us in enumerate(times)]


def test_a_place_has_every_arm_the_fastest_first_and_how_surely():
    slow, fast = [14.0, 15.0, 17.0], [10.0, 11.0, 12.0]
    found = table(*blocks("single_pass", slow), *blocks("split_k", fast),
                  *blocks("split_k", [20.0] * 3, config={"block_h": 32}))  # fmt: skip
    (entry,) = found.entries
    assert [(a.variant, a.config["block_h"]) for a in entry.arms] == [
        ("split_k", 16), ("single_pass", 16), ("split_k", 32)]  # fmt: skip
    first, second, _ = entry.arms
    assert first.us == pytest.approx(math.prod(fast) ** (1 / 3)) and first.blocks == 3
    assert (first.ratio, first.verdict) == (None, None)
    over = ratio(fast, slow, paired=True)
    assert (second.ratio, second.low, second.high) == pytest.approx(
        (over.value, over.low, over.high))  # fmt: skip
    assert second.verdict == "SLOWER"
    assert entry.workload == {k: v for k, v in vars(OP.Workload(**PLACE)).items() if k != "seed"}
    assert (found.op, found.device, found.arch, found.triton, found.torch, found.clock) == (
        OP.name, "a GPU", "sm_90", "3.6.0", "2", "graph_rotating")  # fmt: skip


def test_an_arm_that_missed_the_fast_blocks_is_not_slower_for_that():
    """The last two blocks are slow as a whole: in them single_pass is ahead by a tenth."""
    (entry,) = table(*blocks("split_k", [10.0, 10.0, 20.0, 20.2]), one("single_pass", 18.0, 2),
                     one("single_pass", 18.2, 3)).entries  # fmt: skip
    first, second = entry.arms
    assert (first.variant, first.blocks, second.blocks) == ("single_pass", 2, 4)
    assert second.us == pytest.approx(math.prod([10.0, 10.0, 20.0, 20.2]) ** 0.25)
    assert second.us / first.us == pytest.approx(second.ratio) and 1.10 < second.ratio < 1.12
    assert second.low <= second.ratio <= second.high
    whole = planned(OP, OP.Workload(**PLACE), t.Table(OP.name, "", "", "", "", "", (entry,)))
    assert "next split_k 1.11x (1.10-1.12)" in whole.why


def test_an_interval_without_a_bound_is_none_and_the_table_is_still_read():
    rows = blocks("split_k", [10.0, 10.0]) + blocks("single_pass", [10.0, 1e6])
    found = table(*rows)
    second = found.entries[0].arms[1]
    assert (second.low, second.high, second.verdict) == (None, None, "AMBIGUOUS")
    assert t.parsed(json.loads(t.text(found))).entries == found.entries


def test_one_block_has_no_interval_and_no_verdict_that_claims():
    (entry,) = table(one("split_k", 10.0), one("single_pass", 20.0)).entries
    assert (entry.arms[1].low, entry.arms[1].verdict) == (None, "AMBIGUOUS")


def test_a_difference_within_the_noise_of_the_twins_is_not_beyond_doubt():
    rows = blocks("split_k", [10.0, 10.0, 10.1]) + blocks("single_pass", [10.3, 10.3, 10.4])
    noisy = [replace(m, twin_us=[us * 1.06 for us in m.samples_us])
             if m.variant == "split_k" else m for m in rows]  # fmt: skip
    verdicts = [table(*found).entries[0].arms[1].verdict for found in (rows, noisy)]
    assert verdicts == ["SLOWER", "AMBIGUOUS"]


def test_places_stand_in_order_of_tokens_whatever_the_order_of_records():
    rows = [one("split_k", 10.0, workload={"tokens": tokens, "heads": heads, "seed": seed})
            for tokens in (64, 1, 8) for heads in (64, 8) for seed in (0, 1)]  # fmt: skip
    found = table(*rows)
    assert [(e.workload["heads"], e.workload["tokens"]) for e in found.entries] == [
        (8, 1), (8, 8), (8, 64), (64, 1), (64, 8), (64, 64)]  # fmt: skip
    assert t.text(found) == t.text(table(*rows[::-1]))


def test_an_arm_that_failed_is_no_arm():
    failed = one("split_k", 0, 1, samples_us=[], verdict=Verdict("incorrect", 0.1, 0.003))
    rows = [one("split_k", 1.0), failed, one("single_pass", 20.0), one("single_pass", 20.0, 1)]
    assert [a.variant for a in table(*rows).entries[0].arms] == ["single_pass"]


def test_the_newest_build_speaks():
    old = one("split_k", 1.0, environment=replace(GPU, source="old"))
    new = one("split_k", 9.0, at="2026-02-01T00:00:00+00:00")
    assert table(old, new).entries[0].arms[0].us == pytest.approx(9.0)


def test_numbers_are_as_the_config_has_them_beside_a_variant_without_those():
    other = one("eager", 90.0, config={})
    found = table(one("split_k", 10.0, config={"block_h": 16, "chunks_per_block": 8}), other)
    config = found.entries[0].arms[0].config
    assert config == {"block_h": 16, "chunks_per_block": 8}
    assert all(type(v) is int for v in config.values()) and found.entries[0].arms[1].config == {}


@pytest.mark.parametrize("other, said", [
    ({"environment": replace(GPU, device="another")}, "device: a GPU, another"),
    ({"environment": replace(GPU, triton="3.9.0")}, "triton: 3.6.0, 3.9.0"),
    ({"clock": "graph_hot"}, "clock: graph_hot, graph_rotating"),
])  # fmt: skip
def test_a_table_is_of_one_setup(other, said):
    with pytest.raises(ValueError, match=f"records of several of {said}"):
        table(one("split_k", 10.0), one("single_pass", 10.0, **other))


def test_records_without_a_time_make_no_table():
    with pytest.raises(ValueError, match="no time of sparse_decode"):
        table(one("split_k", 0, samples_us=[]), one("split_k", 1.0, op="page_split"))
