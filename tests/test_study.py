"""A study of two process blocks, and the parts it is made of: arms, sets, flags, digest, readings.

The variants of the study stand in a module file, as a user's own do; what they do may depend on how
many processes have imported it before.
"""

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace

import pytest
import torch
import triton
from conftest import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import flags, monitor, record, selections, study, worker
from workbench.arms import Arm, arm_named, arms_of, workloads_of
from workbench.digest import answer_digest, digest
from workbench.gate import check
from workbench.machine import environment
from workbench.op import Variant, Verdict
from workbench.ops import OPS
from workbench.worker import MAX_SETS, TURNOVER, _Server, index_sets, own_kernels

PREFILL, SPLIT = OPS["sparse_prefill"], OPS["page_split"]
REPEATS = 6
MODULE = '''
import os, time
from pathlib import Path
from workbench.ops.page_split.definition import all_pages, page_split

right = page_split.variants["eager_full"].run
home = Path(__file__)
with home.with_suffix(".pids").open("a") as file:
    file.write(f"{os.getpid()}\\n")
processes = len(home.with_suffix(".pids").read_text().split())
calls = {}

def counted(name):
    calls[name] = calls.get(name, 0) + 1
    with home.with_suffix(".calls").open("a") as file:
        file.write(f"{name} {processes}\\n")

def variant(run):
    run.__doc__ = "A way to differ."
    return page_split.variant(widens=all_pages, capturable=False)(run)

@variant
def first(x, config):
    counted("first")
    return right(x, config)

@variant
def wrong(x, config):
    counted("wrong")
    return page_split.Output(x.destination)

@variant
def right_in_one_process(x, config):
    counted("right_in_one_process")
    answer = right(x, config)
    if processes > 1:
        x.destination[0, 0] += 1
    return answer

@variant
def dies_when_timed(x, config):
    counted("dies_when_timed")
    if calls["dies_when_timed"] > (3 if processes == 1 else 1):  # gate and digest
        os._exit(3)
    return right(x, config)

@variant
def last(x, config):
    counted("last")
    return right(x, config)
'''
ARMS = ["first", "wrong", "right_in_one_process", "dies_when_timed", "last"]


@pytest.fixture(scope="module")
def two_blocks(tmp_path_factory):
    """What a study of the module's variants gave: records, their file, who ran in which process."""
    module = tmp_path_factory.mktemp("module") / "ways_to_differ.py"
    module.write_text(MODULE)
    arms = [Arm(Variant(name, SPLIT, None, None, "runs in the child alone")) for name in ARMS]
    to = module.with_name("records") / "two_blocks.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        records = list(study.run(
            arms, [SPLIT.Workload(pages=2, batch=2)], clocks=["wall_clock"], device="cpu",
            blocks=2, repeats=REPEATS, limit_s=20, modules=(str(module),), to=to,
        ))  # fmt: skip
    calls = Counter(module.with_suffix(".calls").read_text().splitlines())
    pids = module.with_suffix(".pids").read_text().split()
    return SimpleNamespace(records=records, to=to, calls=calls, pids=pids)


def of(two_blocks, name: str) -> list:
    return [m for m in two_blocks.records if m.variant == name]


def test_a_study_has_one_id_and_numbers_its_blocks(two_blocks):
    assert len({m.study for m in two_blocks.records}) == 1 and two_blocks.records[0].study
    assert [m.block for m in of(two_blocks, "first")] == [0, 1]
    assert [m.block for m in of(two_blocks, "last")] == [0, 1]
    assert record.read(two_blocks.to) == [
        json.loads(json.dumps(record.as_row(m))) for m in two_blocks.records
    ]


def test_a_block_is_a_fresh_process(two_blocks):
    assert len(set(two_blocks.pids)) == len(two_blocks.pids) >= 2
    assert str(os.getpid()) not in two_blocks.pids


def test_the_first_arm_alone_has_a_twin_and_every_timed_one_a_floor(two_blocks):
    for m in two_blocks.records:
        timed = m.verdict.passed
        assert len(m.samples_us) == (REPEATS if timed else 0), m.variant
        assert len(m.twin_us) == (REPEATS if m.variant == "first" else 0), m.variant
        assert (m.floor_us is not None) == timed and m.twin_us != m.samples_us or not timed
        assert m.index_sets == (1 if timed else 0) and m.reuse_bytes is None
    first = of(two_blocks, "first")[0]
    assert 0 < first.floor_us < min(first.samples_us), "an empty call takes less than a copy"


@pytest.mark.parametrize("name, block, status, why", [
    ("wrong", 0, "incorrect", "differs at data byte 0"),
    ("right_in_one_process", 1, "incorrect", "differs at data byte 0"),
    ("dies_when_timed", 0, "error", "while it was timed: its process died (exit code 3)"),
])  # fmt: skip
def test_a_failure_is_told_once_by_the_block_that_meets_it(two_blocks, name, block, status, why):
    failed = [m for m in of(two_blocks, name) if not m.verdict.passed]
    assert [(m.block, m.verdict.status) for m in failed] == [(block, status)]
    assert why in failed[0].verdict.why
    passed = [m.block for m in of(two_blocks, name) if m.verdict.passed]
    assert passed == ([0] if name == "right_in_one_process" else [])


def test_what_failed_the_gate_is_not_tried_again(two_blocks):
    assert two_blocks.calls["wrong 1"] == 1
    assert not [said for said in two_blocks.calls if said.startswith("wrong") and said[-1] != "1"]


def served(op=PREFILL, **workload) -> tuple[_Server, list]:
    sent = []
    return _Server(DEVICE, OPS, sent.append), sent


def checked(server, op, variant, w, **more) -> dict:
    task = {"do": "check", "op": op.name, "workload": asdict(w), "variant": variant, "config": {}}
    return server.answer(task | more)


TINY = PREFILL.Workload(tokens=3, heads=4, topk=20, rows=40, churn=0.3)


def test_an_answer_that_is_known_is_looked_at_and_another_goes_through_the_gate(monkeypatch):
    gates = []
    monkeypatch.setattr(worker, "check", lambda *a, **k: gates.append(1) or check(*a, **k))
    server, _ = served()
    first = checked(server, PREFILL, "eager", TINY)
    assert first["verdict"]["status"] == "passed" and len(gates) == 1 and first["ledger"]
    again = checked(_Server(DEVICE, OPS, None), PREFILL, "eager", TINY, digest=first["digest"])
    assert again["verdict"]["status"] == "passed" and len(gates) == 1
    other = checked(server, PREFILL, "eager", TINY, digest="0" * 16)
    assert other["digest"] == first["digest"] and len(gates) == 2


def test_an_answer_without_repeatable_bits_has_no_digest(monkeypatch):
    v = replace(PREFILL.variants["eager"], repeatable=False)
    monkeypatch.setitem(PREFILL.variants, "eager", v)
    assert "digest" not in checked(served()[0], PREFILL, "eager", TINY)


def test_blocks_below_one_are_refused():
    with pytest.raises(ValueError, match="blocks=0"):
        list(study.run(arms_of(SPLIT), [SPLIT.Workload()], clocks=["wall_clock"], device="cpu",
                       blocks=0))  # fmt: skip


def test_arms_of_two_ops_are_no_study():
    arms = [*arms_of(SPLIT, ["full"]), *arms_of(PREFILL, ["union"])]
    with pytest.raises(ValueError, match=r"2: \['page_split', 'sparse_prefill'\]"):
        list(study.check(arms, []))


# --- digest

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


# --- sets of inputs

@given(st.integers(1, 1 << 34), st.integers(0, 1 << 28))
def test_sets_read_twice_the_l2_before_one_comes_again(set_bytes, l2):
    n = index_sets(set_bytes, l2)
    assert 2 <= n <= MAX_SETS
    assert n == MAX_SETS or (n - 1) * set_bytes >= TURNOVER * l2
    assert n == 2 or (n - 2) * set_bytes < TURNOVER * l2, "more than are needed"


def test_sets_of_nothing_are_two():
    assert index_sets(0, 50 << 20) == 2


@pytest.fixture
def small_l2(monkeypatch):
    """A server on a device whose L2 holds half a set of `TINY`: five sets are needed."""
    x = PREFILL.make_inputs(TINY, DEVICE)
    here = replace(environment(DEVICE), l2_bytes=2 * PREFILL.cost(x).bytes)
    monkeypatch.setattr(worker, "environment", lambda device: here)
    return _Server(DEVICE, OPS, lambda message: None)


def test_sets_are_other_selections_on_one_cache(small_l2):
    sets = small_l2.sets(PREFILL, TINY)
    assert len(sets) == 5
    assert len({x.kv.data_ptr() for x in sets}) == 1, "a server has one cache"
    assert len({x.q.data_ptr() for x in sets}) == 5
    assert len({tuple(x.indices.flatten().tolist()) for x in sets}) == 5
    assert small_l2.sets(PREFILL, TINY) is sets, "made once for all arms"


def test_further_sets_leave_the_first_ones_answer_as_it_was(small_l2):
    v = PREFILL.variants["eager"]
    before = answer_digest(v, small_l2.inputs(PREFILL, TINY), None)
    sets = small_l2.sets(PREFILL, TINY)
    answers = [answer_digest(v, x, None) for x in sets]
    assert answers[0] == before and len(set(answers)) == len(sets)
    for x in sets:
        lane = PREFILL.reference(x)
        assert lane.out.isfinite().all() and not lane.lse.isnan().any()


@pytest.mark.parametrize("op, name, w", [
    (PREFILL, "eager", TINY), (PREFILL, "union", replace(TINY, heads=8)),
    (PREFILL, "per_token", replace(TINY, padding="mixed", holes=0.4, wild=True)),
    (SPLIT, "masked", SPLIT.Workload(pages=6, batch=2, window=70)),
    (SPLIT, "eager_full", SPLIT.Workload(pages=6, batch=2, window=70)),
    (OPS["union_plan"], "sort_search", OPS["union_plan"].Workload(tokens=5, topk=12)),
], ids=lambda v: getattr(v, "name", v) if not hasattr(v, "seed") else "")  # fmt: skip
def test_every_set_is_right_by_the_gate(op, name, w):
    server = _Server(DEVICE, OPS, None)
    said = server.rotate(op.variants[name], w, {})["verdict"]
    assert said["status"] == "passed", said
    assert len(server.sets(op, w)) >= 2


def test_a_variant_that_knows_one_set_alone_is_refused_by_the_others(monkeypatch):
    server, right = _Server(DEVICE, OPS, None), PREFILL.variants["eager"]
    first = server.inputs(PREFILL, TINY).indices.data_ptr()

    def run(x, config):
        out, lse = right.run(x, config)
        return PREFILL.Output(out if x.indices.data_ptr() == first else -out, lse)

    said = server.rotate(replace(right, run=run), TINY, {})["verdict"]
    assert said["status"] == "incorrect" and said["why"].startswith("set 1: out is off")


def measured(op, w, names, sent=None, clock="wall_clock", **plan) -> dict:
    sent = [] if sent is None else sent
    server = _Server(DEVICE, OPS, sent.append)
    arms = {str(i): {"variant": name, "config": {}} for i, name in enumerate(names)}
    return server.answer({"do": "measure", "op": op.name, "workload": asdict(w), "clock": clock,
                          "plan": {"repeats": 4} | plan, "profile": True, "arms": arms})  # fmt: skip


@pytest.mark.skipif(DEVICE != "cpu", reason="a fake device is read")
def test_the_device_is_read_before_during_and_after(monkeypatch):
    readings = iter(range(100))
    fake = lambda: monitor.Reading(sm_mhz=next(readings))  # noqa: E731
    monkeypatch.setattr(monitor, "reader", lambda device: fake)
    sent = []
    reply = measured(SPLIT, SPLIT.Workload(pages=2, batch=1), ["eager_full"], sent)
    state = reply["state"]
    assert state["before"]["sm_mhz"] == 0 and len(state["during"]) == 4
    seen = [r["sm_mhz"] for r in (*state["during"], state["after"])]
    assert seen == [1, 2, 3, 4, 5]
    assert [m["turn"] for m in sent[:3]] == ["0", "twin", "floor"]
    assert list(reply["samples"]) == ["0", "twin", "floor"] and reply["profiles"] == {}


# --- what stands in a variant's file

@triton.runtime.jit.JITFunction
def _own_kernel(x):
    pass


@triton.runtime.jit.JITFunction
def _step(x):
    pass


def test_own_kernels_are_those_of_the_variants_file():
    here = Variant("v", SPLIT, lambda x, config: None, None, "a test")
    assert own_kernels(here) == ["_own_kernel"]
    assert own_kernels(SPLIT.variants["eager_full"]) == []


# --- arms and workloads

@pytest.mark.parametrize("text, label, group", [
    ("union group=4", "union group=4", 4), ("union", "union", 4),
    ("union group=2, block_k=32", "union group=2, block_k=32", 2),
    ("union  group=2 block_k=32", "union group=2, block_k=32", 2),
])  # fmt: skip
def test_an_arm_is_named_as_a_table_labels_it(text, label, group):
    arm = arm_named(PREFILL, text)
    assert arm.label == label and arm.asked["group"] == group
    assert arm_named(PREFILL, arm.label) == arm


@pytest.mark.parametrize("text, told", [
    ("unoin", r"unknown variant of sparse_prefill 'unoin'; did you mean 'union'"),
    ("union grup=4", r"unknown config field of union 'grup'; did you mean 'group'"),
    ("union group=4.5", r"group='4.5' is not of type int"),
    ("union group", r"'group' is not of the form NAME=VALUE"),
    ("union group=2,4", r"'4' is not of the form"), ("union group=2 group=4", "given twice"),
    ("eager group=2", r"unknown config field of eager 'group' \(known: none\)"),
    ("", "unknown variant"),
])  # fmt: skip
def test_what_is_no_arm_is_told(text, told):
    with pytest.raises(ValueError, match=told):
        arm_named(PREFILL, text)


def test_a_list_of_values_is_one_arm_each_and_a_variant_without_the_field_is_one():
    labels = [a.label for a in arms_of(PREFILL, ["eager", "union"], {"group": "2,4"})]
    assert labels == ["eager", "union group=2", "union group=4"]
    with pytest.raises(ValueError, match="unknown config field 'grup'"):
        arms_of(PREFILL, ["union"], {"grup": "2"})


def test_workloads_are_a_grid_without_repeats():
    found = workloads_of(PREFILL, None, {"tokens": "64,65,64", "heads": [8, 16]})
    assert [(w.tokens, w.heads) for w in found] == [(64, 8), (64, 16), (65, 8), (65, 16)]
    with pytest.raises(ValueError, match="unknown suite 'edgs'; did you mean 'edges'"):
        workloads_of(PREFILL, "edgs")


# --- flags

def reading(**more) -> dict:
    return asdict(monitor.Reading(**more))


def state(before=None, during=(), after=None) -> dict:
    return {"before": before or reading(), "during": list(during), "after": after or reading()}


@pytest.mark.parametrize("seen, said", [
    (None, []), (state(), []), (state(reading(others=0)), []),
    (state(during=[reading(throttles=("power cap",))]), ["throttled: power cap"]),
    (state(reading(throttles=("power cap",)), [], reading(throttles=("power brake", "power cap"))),
     ["throttled: power brake, power cap"]),
    (state(after=reading(others=2)), ["busy: 2 other processes on the GPU"]),
])  # fmt: skip
def test_flags_of_a_state(seen, said):
    assert flags.of_state(json.loads(json.dumps(seen))) == said


def test_flags_of_samples_name_each_kernel_once():
    assert flags.of_samples({"compiled": []}) == []
    assert flags.of_samples({"compiled": ["b", "a", "b"]}) == ["compiled in the window: a, b"]


def profile_flags(clock_us, span_us, own=(), kernels=("_own_kernel",), floor=None) -> list[str]:
    floor = {"us": 1.0, "span_us": 1.0} if floor is None else floor
    seen = {"span_us": span_us, "kernels": {name: [1, 1.0] for name in kernels}}
    return flags.of_profile({"samples_us": [clock_us]}, seen, own, floor)


@pytest.mark.parametrize("clock_us, span_us, floor, agrees", [
    (103.0, 100.0, None, True), (103.1, 100.0, None, False), (96.9, 100.0, None, False),
    (10.9, 10.0, None, True), (11.1, 10.0, None, False),  # 3 % of 10 us is below 1 us
    (105.0, 100.0, {"us": 4.0, "span_us": 1.0}, True),  # the clock adds 3 us to any kernel
    (102.9, 100.0, {"us": 1.0, "span_us": 4.0}, True),  # nothing is ever added to it
    (200.0, 100.0, {"us": 4.0, "span_us": None}, True),  # without a floor nothing is said
    (200.0, None, None, True),  # an eager call has no span
])  # fmt: skip
def test_the_profiler_may_differ_by_3_percent_or_a_microsecond(clock_us, span_us, floor, agrees):
    found = profile_flags(clock_us, span_us, floor=floor)
    assert [f.partition(":")[0] for f in found] == [] if agrees else ["profiler disagrees"]


def test_another_kernel_is_flagged_where_a_variant_has_its_own():
    (said,) = profile_flags(1.0, 1.0, own=["_own_kernel"], kernels=("gemm", "copy"))
    assert said == "another kernel ran: none of _own_kernel, but copy, gemm"
    assert profile_flags(1.0, 1.0, own=["_own_kernel", "_other"]) == []
    assert profile_flags(1.0, 1.0, own=[], kernels=("gemm",)) == []
    assert flags.of_profile({"samples_us": [1.0]}, None, ["_own_kernel"], {}) == []


def test_flags_are_summed_by_kind():
    found = ["unstable: a", "busy: b", "unstable: c", "unstable: d"]
    assert flags.summed(found) == ["unstable: a (and 2 more)", "busy: b"]
    assert flags.summed([]) == []


# --- readings of a device

@pytest.mark.parametrize("bits, names", [
    (0, ()), (0x01, ()), (0x02, ()),  # idle, and a user's own limit
    (0x04, ("power cap",)), (0x60, ("software thermal slowdown", "hardware thermal slowdown")),
    (0x1FF, tuple(monitor.THROTTLES.values())),
])  # fmt: skip
def test_throttle_reasons_have_names(bits, names):
    assert monitor.throttles(bits) == names


def test_other_processes_are_those_beside_this_one():
    own = os.getpid()
    assert [monitor.others(p) for p in ([], [own], [own, own + 1], [own + 1, own + 2])] == [
        0, 0, 1, 1,  # in a container one of the host's numbers is this process
    ]  # fmt: skip


def looked(times: int, monkeypatch) -> dict | None:
    numbers = iter(range(9))
    monkeypatch.setattr(monitor, "reader",
                        lambda device: lambda: monitor.Reading(power_w=float(next(numbers))))
    watch = monitor.Monitor("cuda")
    for _ in range(times):
        watch.look()
    return watch.state()


@pytest.mark.parametrize("times, powers", [
    (1, (0, [], 0)), (2, (0, [], 1)), (4, (0, [1, 2], 3)),
])  # fmt: skip
def test_a_state_has_the_first_the_middle_and_the_last_reading(times, powers, monkeypatch):
    found = looked(times, monkeypatch)
    during = [r["power_w"] for r in found["during"]]
    assert (found["before"]["power_w"], during, found["after"]["power_w"]) == powers


def test_a_device_that_cannot_be_read_has_no_state(monkeypatch):
    assert looked(0, monkeypatch) is None
    assert monitor.reader("cpu") is None


# --- gate and selections

@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU runs it")
def test_what_no_interpreter_runs_is_unsupported_on_a_cpu():
    v = replace(PREFILL.variants["eager"], interpretable=False)
    verdict = check(v, TINY, device="cpu")
    assert verdict.status == "unsupported" and "needs a GPU" in verdict.why


@pytest.mark.parametrize("indices, length, said", [
    ([[3, 3], [3, 3]], None, ["dummies: every valid lane names row 3",
                              "2 tokens name a row twice"]),
    ([[3, -1], [3, -1]], None, ["dummies: every valid lane names row 3"]),
    ([[0, 1, 0], [4, 2, 1]], None, ["1 tokens name a row twice"]),
    ([[0, 1, 0], [4, 2, 1]], [2, 3], []),  # the repeat is past the length
    ([[-1, 9], [-7, 8]], None, ["no lane is valid"]), ([[1, 2]], [0], ["no lane is valid"]),
    ([[-1, -1, 2], [1, 5, 6]], None, []), ([[5]], None, []), ([[]], None, []),
])  # fmt: skip
def test_doubts_about_a_selection(indices, length, said):
    indices = torch.tensor(indices, dtype=torch.int32)
    length = None if length is None else torch.tensor(length)
    assert selections.doubts(indices, 8, length) == said


@pytest.mark.parametrize("op", ["sparse_prefill", "page_split", "union_plan"])
def test_the_inputs_of_a_plain_workload_raise_no_doubt(op):
    w = OPS[op].Workload(pages=8) if op == "page_split" else OPS[op].Workload(tokens=6, topk=16)
    assert OPS[op].doubts(OPS[op].make_inputs(w, DEVICE)) == []
