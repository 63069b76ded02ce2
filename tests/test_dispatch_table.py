"""The dispatch table as a file: one that holds all of it, or is as if absent, with a warning."""

import json
import math
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_dispatch_records import OP, one, table

from workbench.dispatch import planned, save
from workbench.models import dispatch_table as t
from workbench.models.makespan import Constants, Fit

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


def test_a_label_has_the_fields_that_differ():
    assert t.label("split_k", {"a": 1, "b": 2, "c": 0}, {"a": 1, "b": 3}) == "split_k b=2 c=0"
    assert t.label("eager", {}, {"a": 1}) == "eager"


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
    "a time of many powers": (with_arm(us=1e300), "us is 1e+300"),
    "a ratio of many powers": (with_arm(ratio=1e300), "ratio is 1e+300"),
    "an end of many powers": (with_arm(ratio=2.0, low=1.0, high=1e12), "high is 1000000000000.0"),
    "a ratio below 0": (with_arm(ratio=-2.0), "took -2.0 times"),
    "an end at 0": (with_arm(ratio=2.0, low=0.0, high=3.0), "(0.0 to 3.0)"),
    "half an interval": (with_arm(ratio=2.0, low=1.0), "interval from 1.0 to None"),
    "the other half": (with_arm(ratio=2.0, high=1.0), "interval from None to 1.0"),
    "an interval upside down": (with_arm(ratio=2.0, low=3.0, high=1.5), "from 3.0 to 1.5"),
    "an arm twice": (changed(entries=[{"workload": {}, "arms": ARMS[:1] * 2}]),
                     "two arms split_k block_h=16 of one place"),
    "a place twice, once by defaults": (changed(entries=[
        {"workload": {"tokens": OP.Workload().tokens}, "arms": ARMS},
        {"workload": {}, "arms": ARMS}]), "two entries of one"),
    "a key twice": (TEXT.replace('"op"', '"op": "x", "op"', 1), "'op' is given twice"),
    "tokens as truth": (changed(entries=[{"workload": {"tokens": True}, "arms": ARMS}]),
                        "tokens is True"),
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
