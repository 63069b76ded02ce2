"""The dispatch table: what records say of each place; a file that is one, or is as if absent."""

import json
import math
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_records import ENVIRONMENT, made

from workbench import record
from workbench.dispatch import planned, save
from workbench.evidence import derived, newest
from workbench.models import dispatch_table as t
from workbench.models.dispatch_records import table as of_records
from workbench.models.makespan import Constants, Fit
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


# --- out of records

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


# --- as a file

MODEL = t.Model(132, {"inline_656": Fit(Constants(5e-13, 1.5e-10, 6e-6), 0.07)})


def a_table(us: float = 10.0, places: int = 3) -> t.Table:
    found = table(*(one(variant, us * (1 + slower), workload={"tokens": 1 + tokens})
                    for tokens in range(places)
                    for slower, variant in enumerate(("split_k", "single_pass"))))  # fmt: skip
    return replace(found, model=MODEL)


KNOWN = a_table()
TEXT = t.text(KNOWN)


def test_a_file_holds_all_of_a_table(tmp_path):
    save(KNOWN, tmp_path / "deep" / "t.json")
    found = t.Table.load(tmp_path / "deep" / "t.json", op=OP.name, device="a GPU", triton="3.6.0")
    assert vars(found) == vars(KNOWN) and (tmp_path / "deep" / "t.json").read_text() == TEXT
    assert json.loads(TEXT)["model"]["layouts"]["inline_656"]["relative_rms"] == 0.07
    assert json.loads(t.text(replace(KNOWN, model=None)))["model"] is None


def refused(path, **asked) -> str:
    """The one line of warning with which a table is taken as absent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert t.Table.load(path, **asked) is None
    (told,) = caught
    assert str(path) in str(told.message) and "\n" not in str(told.message)
    assert Path(told.filename) == Path(__file__), "the warning is not the caller's"
    return str(told.message)


def changed(**fields) -> str:
    return json.dumps(json.loads(TEXT) | fields)


ARMS = json.loads(TEXT)["entries"][0]["arms"]


def with_arm(**fields) -> str:
    return changed(entries=[{"workload": {"tokens": 1}, "arms": [ARMS[0] | fields]}])


BROKEN = {
    "nothing": ("", "no JSON"), "garbage": (b"\x00\xff\xfe garbage", "no JSON"),
    "cut off": (TEXT[: len(TEXT) // 2], "no JSON"), "deep": ("[" * 100_000, "recursion"),
    "a list": ("[1]", "schema is None"), "an older schema": (changed(schema=0), "schema is 0"),
    "no entries": (json.dumps({"schema": 1}), "'entries' is missing"),
    "entries as text": (changed(entries="all"), "entries is 'all'"),
    "an entry as number": (changed(entries=[1]), "'workload' is missing in 1"),
    "no arms": (changed(entries=[{"workload": {}, "arms": []}]), r"none, or not the fastest"),
    "a place twice": (changed(entries=[{"workload": {}, "arms": ARMS}] * 2), "two entries of one"),
    "another order": (changed(entries=[{"workload": {}, "arms": ARMS[::-1]}]), "fastest first"),
    "no time": (with_arm(us=None), "us is None"), "a time below 0": (with_arm(us=-1), "took -1 us"),
    "a time as text": (with_arm(us="10"), "us is '10'"), "no blocks": (with_arm(blocks=0), "in 0"),
    "an endless time": (with_arm(us=math.inf), "us is inf"),
    "a time that is none": (with_arm(us=math.nan), "us is nan"),
    "a time beyond floats": (with_arm(us=10**400), "us is 1000"),
    "true as a count": (with_arm(blocks=True), "blocks is True"),
    "a config of lists": (with_arm(config={"a": [1]}), r"its a is \[1\]"),
    "a word of its own": (with_arm(verdict="BEST"), "verdict is 'BEST'"),
    "flags of numbers": (with_arm(flags=[1]), r"flags are \[1\]"),
    "tokens as text": (changed(entries=[{"workload": {"tokens": "8"}, "arms": ARMS}]), "tokens is"),
    "a model of nothing": (changed(model={}), "'layouts' is missing"),
    "a device as number": (changed(device=3), "device is 3"),
}  # fmt: skip


@pytest.mark.parametrize("content, said", BROKEN.values(), ids=BROKEN)
def test_what_is_no_table_is_absent_with_one_warning(tmp_path, content, said):
    path = tmp_path / "t.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    found = refused(path)
    assert said.replace("\\", "") in found, found


def test_a_file_that_is_absent_or_none_is_told_too(tmp_path):
    assert "No such file" in refused(tmp_path / "none.json")
    assert "no regular file" in refused(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refused(tmp_path / "pipe")


@pytest.mark.parametrize("asked, said", [
    ({"device": "another"}, "its device is 'a GPU', not 'another'"),
    ({"triton": "3.9.0"}, "its triton is '3.6.0', not '3.9.0'"),
    ({"op": "sparse_prefill"}, "its op is 'sparse_decode'"), ({"device": ""}, "not ''"),
])  # fmt: skip
def test_a_foreign_table_is_absent_with_one_warning(tmp_path, asked, said):
    save(KNOWN, tmp_path / "t.json")
    assert said in refused(tmp_path / "t.json", **asked)


ANY = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                   lambda inner: st.lists(inner, max_size=2)
                   | st.dictionaries(st.sampled_from(["tokens", "us", "a"]), inner, max_size=2),
                   max_leaves=4)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_whatever_stands_anywhere_in_a_table_is_read_or_refused(tmp_path_factory, data):
    told = json.loads(TEXT)
    at, where = told, []
    while isinstance(at, dict | list) and at and (not where or data.draw(st.booleans())):
        keys = sorted(at) if isinstance(at, dict) else range(len(at))
        where.append((at, data.draw(st.sampled_from(keys))))
        at = at[where[-1][1]]
    holder, key = where[-1]
    holder[key] = data.draw(ANY)
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(told))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = t.Table.load(path)
    assert len(caught) == (found is None)
    if found is not None:
        path.write_text(t.text(found))
        assert vars(t.read(path)) == vars(found)
        if found.op == OP.name:
            assert planned(OP, OP.Workload(tokens=2), found, arch="sm_90").variant in OP.variants
