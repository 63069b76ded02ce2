"""A variant that faults, hangs, prints or dies is a record; it stops neither its study nor others.

The variants come from a module file, as a user's own do, and run in the child process alone: here
they are only names, so nothing of them enters the registry.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from workbench import record, study
from workbench.op import Variant
from workbench.ops import OPS
from workbench.study import Arm

SPLIT = OPS["page_split"]
LIMIT_S = 3
REPEATS = 6
MODULE = '''
import ctypes, os, subprocess, sys, time
import torch
from workbench.ops.page_split.definition import all_pages, page_split

right = page_split.variants["eager_full"].run
calls = 0

def variant(run):
    run.__doc__ = "A way to go wrong."
    return page_split.variant(widens=all_pages, capturable=False)(run)

@variant
def fine(x, config):
    return right(x, config)

@variant
def raises(x, config):
    raise RuntimeError("no such tile")

@variant
def returns_a_number(x, config):
    return 1

@variant
def reads_address_0(x, config):
    ctypes.string_at(0)

@variant
def hangs(x, config):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", __file__])
    time.sleep(600)

@variant
def dies_at_the_fifth_call(x, config):
    global calls
    calls += 1
    if calls > 4:
        os._exit(3)
    return right(x, config)

@variant
def prints(x, config):
    print('{"samples": {}}\\n' + 'noise ' * 200_000, flush=True)
    os.write(1, b'{"verdict": {"status": "incorrect"}}\\n' + bytes(100_000))
    return right(x, config)

def copied(x, offset):
    """Sub-pages one by one; `offset` is the type in which the offset of a page is computed."""
    units = x.source.stride(0) // 576  # a page is 260 units of 576 bytes
    starts = torch.arange(len(x.source), dtype=offset) * units
    whole = x.source.flatten().unflatten(0, (-1, 576))
    for page, start in enumerate(starts.tolist()):
        moved = whole[start : start + units].reshape(1, -1) if start >= 0 else x.source[:1]
        right(x._replace(source=moved, destination=x.destination[4 * page : 4 * page + 4]), None)
    return page_split.Output(x.destination)

@variant
def offsets_of_64_bits(x, config):
    return copied(x, torch.int64)

@variant
def offsets_of_16_bits(x, config):
    return copied(x, torch.int16)
'''


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("module") / "ways_to_go_wrong.py"
    file.write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # on a busy machine threads wait for each other
        yield file


def arm(name: str) -> Arm:
    return Arm(Variant(name, SPLIT, None, None, "runs in the child process alone"))


def left_over(module: Path) -> list[str]:
    """Command lines of the processes that were started for `module` and still run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said = file.read_bytes()
        except OSError:  # ended since it was listed
            continue
        if str(module).encode() in said:
            found.append(said.replace(b"\0", b" ").decode())
    return found


EXPECTED = {  # a wrong one behind each right one: what comes after a death is still run
    "fine": ("passed", ""),
    "raises": ("error", "RuntimeError: no such tile ("),  # and where: file and line
    "prints": ("passed", ""),
    "reads_address_0": ("error", "its process died (SIGSEGV)"),
    "dies_at_the_fifth_call": ("error", "while it was timed: its process died (exit code 3)"),
    "hangs": ("timeout", f"killed after {LIMIT_S} s"),
    "returns_a_number": ("incorrect", "returned int, not Output"),
}


@pytest.fixture(scope="module")
def study_of_all(module):
    """(records, the file they were written to) of all the variants above in one study."""
    to = module.with_name("records") / "all.jsonl"
    records = list(study.run(
        [arm(name) for name in EXPECTED], [SPLIT.Workload(pages=2, batch=2)],
        clocks=["wall_clock"], device="cpu", repeats=REPEATS, limit_s=LIMIT_S,
        modules=(str(module),), to=to,
    ))  # fmt: skip
    return records, to


def test_every_arm_has_one_record(study_of_all):
    records, _ = study_of_all
    assert [m.variant for m in records] == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_status(study_of_all, name):
    (found,) = (m for m in study_of_all[0] if m.variant == name)
    status, why = EXPECTED[name]
    assert found.verdict.status == status and why in found.verdict.why, found.verdict
    assert len(found.samples_us) == (REPEATS if status == "passed" else 0)
    assert all(us > 0 for us in found.samples_us)


def test_the_file_holds_every_record(study_of_all):
    records, to = study_of_all
    assert record.read(to) == [json.loads(json.dumps(record.as_row(m))) for m in records]


def test_nothing_is_left_running(study_of_all, module):
    assert left_over(module) == []


def test_narrow_offsets_and_a_study_that_is_left_early(module):
    """A pool past the reach of its offset type: 130 pages of 260 units in 16 bits, scaled down."""
    arms = [arm(name) for name in ("offsets_of_16_bits", "offsets_of_64_bits", "hangs")]
    w = SPLIT.Workload(pages=130, touch="all")
    found = study.check(arms, [w], device="cpu", limit_s=60, modules=(str(module),))
    (_, wrong), (_, right) = next(found), next(found)
    assert wrong.verdict.status == "incorrect", wrong
    assert "page 508 (touched) differs at data byte 0" in wrong.verdict.why  # 127 * 260 > 2**15
    assert right.verdict.passed, right
    assert left_over(module), "the process that will be ended is not seen while it runs"
    found.close()
    assert left_over(module) == []


def refused(error, match, module, to, clocks) -> None:
    said = []
    records = study.run([arm("fine")], [SPLIT.Workload()], clocks=clocks, device="cpu",
                        modules=(str(module),), to=to, report=said.append)  # fmt: skip
    with pytest.raises(error, match=match):
        list(records)
    assert not said, f"{said} ran before the refusal"


def test_a_clock_that_needs_a_gpu_is_refused_before_anything_runs(module, tmp_path):
    to = tmp_path / "records.jsonl"
    why = "graph_cold.*device is 'cpu'.*wall_clock"
    refused(ValueError, why, module, to, ["wall_clock", "graph_cold"])
    assert not to.exists()


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(module, tmp_path):
    file = tmp_path / "a_file"
    file.write_text("not a folder")
    refused(OSError, "a_file", module, file / "records.jsonl", ["wall_clock"])
    assert file.read_text() == "not a folder"
