"""A study of two process blocks: who is timed, what is known again, what a failure leaves behind.

The variants of the study stand in a module file, as a user's own do; what they do may depend on how
many processes have imported it before.
"""

import json
import os
from collections import Counter
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
import triton
from conftest import DEVICE

from workbench import record, study, worker
from workbench.arms import Arm, arms_of
from workbench.gate import check
from workbench.op import Variant
from workbench.ops import OPS
from workbench.worker import _Server, own_kernels

PREFILL, SPLIT = OPS["sparse_prefill"], OPS["page_split"]
REPEATS = 6
MODULE = '''
import os, traceback
from pathlib import Path
from workbench.ops.page_split.definition import all_pages, page_split

right = page_split.variants["eager_full"].run
home = Path(__file__)
with home.with_suffix(".pids").open("a") as file:
    file.write(f"{os.getpid()}\\n")
processes = len(home.with_suffix(".pids").read_text().split())

def counted(name):
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
    if "measure" in [frame.name for frame in traceback.extract_stack()]:
        os._exit(3)
    return right(x, config)

@variant
def last(x, config):
    counted("last")
    return right(x, config)
'''
# what the gate stops comes last: the process that follows belongs to the same block
ARMS = ["first", "right_in_one_process", "dies_when_timed", "last", "wrong"]


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
        assert (m.floor_us is not None) == timed and (m.twin_us != m.samples_us or not timed)
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


def served() -> _Server:
    return _Server(DEVICE, OPS, lambda message: None)


def checked(server, op, variant, w, **more) -> dict:
    task = {"do": "check", "op": op.name, "workload": asdict(w), "variant": variant, "config": {}}
    return server.answer(task | more)


TINY = PREFILL.Workload(tokens=3, heads=4, topk=20, rows=40, churn=0.3)


def test_an_answer_that_is_known_is_looked_at_and_another_goes_through_the_gate(monkeypatch):
    gates = []
    monkeypatch.setattr(worker, "check", lambda *a, **k: gates.append(1) or check(*a, **k))
    server = served()
    first = checked(server, PREFILL, "eager", TINY)
    assert first["verdict"]["status"] == "passed" and len(gates) == 1 and first["ledger"]
    again = checked(served(), PREFILL, "eager", TINY, digest=first["digest"])
    assert again["verdict"]["status"] == "passed" and len(gates) == 1
    other = checked(server, PREFILL, "eager", TINY, digest="0" * 16)
    assert other["digest"] == first["digest"] and len(gates) == 2


def test_an_answer_without_repeatable_bits_has_no_digest(monkeypatch):
    v = replace(PREFILL.variants["eager"], repeatable=False)
    monkeypatch.setitem(PREFILL.variants, "eager", v)
    assert "digest" not in checked(served(), PREFILL, "eager", TINY)


def test_blocks_below_one_are_refused():
    with pytest.raises(ValueError, match="blocks=0"):
        list(study.run(arms_of(SPLIT), [SPLIT.Workload()], clocks=["wall_clock"], device="cpu",
                       blocks=0))  # fmt: skip


def test_arms_of_two_ops_are_no_study():
    arms = [*arms_of(SPLIT, ["full"]), *arms_of(PREFILL, ["union"])]
    with pytest.raises(ValueError, match=r"2: \['page_split', 'sparse_prefill'\]"):
        list(study.check(arms, []))


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


@pytest.mark.skipif(DEVICE != "cpu", reason="a GPU runs it")
def test_what_no_interpreter_runs_is_unsupported_on_a_cpu():
    v = replace(PREFILL.variants["eager"], interpretable=False)
    verdict = check(v, TINY, device="cpu")
    assert verdict.status == "unsupported" and "needs a GPU" in verdict.why


def test_an_edited_module_is_another_build(tmp_path):
    from workbench.machine import source_digest

    path = tmp_path / "mine.py"
    path.write_text("# one")
    one = source_digest((str(path),))
    source_digest.cache_clear()
    path.write_text("# two")
    assert len({one, source_digest((str(path),)), source_digest()}) == 3
    source_digest.cache_clear()
