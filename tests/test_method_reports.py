"""Faults of method that others met, one test a kind; ids name the report's row.

Areas F (timing) and K (benchmark method), and hangs of area D while an arm is timed. Told
elsewhere: graphs (test_graph_reports), a first call that differs from the second (F08: test_gate),
counts beside a geometric mean (K08: test_statistics), the exact paired test (K11: test_quality),
two clocks in one figure (F06: test_figures), tiles and block pointers (F01 to F14:
test_field_reports).
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_comparison import one, pair, table
from test_evidence import gpu

from workbench import monitor
from workbench.arms import arms_of
from workbench.bench import Bench, Checked
from workbench.comparison import compare_arms, compare_files
from workbench.evidence import load
from workbench.isolate import Died
from workbench.op import Verdict
from workbench.ops import OPS
from workbench.timing import Clock, Plan, measure, wall_clock
from workbench.timing.samples import Prepared

SPLIT = OPS["page_split"]
RECORDS = Path(__file__).parents[1] / "traces/records"


# --- a worker that answers as it is told

def samples(*names: str, us: float = 100.0, **more) -> dict:
    taken = {"calls": 1, "samples_us": [us] * 6, "sets": 1, "reuse_bytes": None, "compiled": []}
    return {"samples": dict.fromkeys((*names, "twin", "floor"), taken), "state": None,
            "profiles": {}} | more  # fmt: skip


class Scripted:
    """A worker process whose replies are these, in order; a Died among them is raised."""

    def __init__(self, *replies):
        self.replies, self.tasks = list(replies), []

    def call(self, task, limit_s):
        self.tasks.append(task)
        reply = self.replies.pop(0)
        if isinstance(reply, Died):
            raise reply
        return reply

    def stop(self):
        pass


NAMES = ("eager_full", "eager_masked")


def bench(*replies) -> tuple[Bench, list[Checked]]:
    plan = {"repeats": 6, "budget_s": 1.0, "precision": 0.0}
    checked = [Checked(arm, Verdict("passed"), {}) for arm in arms_of(SPLIT, NAMES)]
    said = Bench(Scripted(*replies), SPLIT, [wall_clock], plan, 3.0, lambda what: None)
    return said, checked


def records(*replies) -> list[dict]:
    """What a block of two arms that passed the gate records."""
    b, checked = bench(*replies)
    w = SPLIT.Workload(pages=2)
    b.worker.replies.insert(0, {"verdict": {"status": "passed"}, "digest": "d"})
    b.worker.replies.insert(0, {"verdict": {"status": "passed"}, "digest": "d"})
    described = {"statistics": {}, "doubts": []}
    return list(b.measure([c.arm for c in checked], w, {w: (described, checked)}, {}, 0))


@pytest.mark.parametrize("timeout, status", [(True, "timeout"), (False, "error")])
def test_D03_D04_a_launch_that_hangs_now_and_then_is_a_record_and_the_others_go_on(timeout, status):
    found = records(Died("killed after 3 s", timeout, "1"), samples("0"))
    assert [(m["variant"], m["verdict"].status) for m in found] == [
        ("eager_full", "passed"), ("eager_masked", status),
    ]  # fmt: skip
    assert "while it was timed: killed after 3 s" in found[1]["verdict"].why
    assert len(found[0]["samples_us"]) == 6 and found[1]["samples_us"] == []


def test_D04_the_twin_of_an_arm_hangs_for_that_arm():
    found = records(Died("killed", True, "twin"), samples("1"))
    assert [m["verdict"].status for m in found] == ["timeout", "passed"]
    assert found[1]["twin_us"], "the first arm that is left has the twin"


def test_D04_a_clock_that_hangs_is_told_of_every_arm():
    found = records(Died("killed", True, None))
    assert [m["verdict"].status for m in found] == ["timeout", "timeout"]


def test_K05_every_shipped_time_says_its_working_set_over_the_l2():
    rows = load(RECORDS / "nvidia_h200")
    timed = rows[rows["median_us"].notna() & (rows["cost.bytes"] > 0)]
    assert len(timed) > 100 and (timed["l2_ratio"] > 0).all()
    assert {"cold", "hot"} <= set(timed["cache"]), "and what the L2 held before"


# --- what a record says of the machine and the warm-up

def drifting(per_sample: float) -> Clock:
    """A clock of a machine that gets slower by this much with each sample, whoever is timed."""
    taken = iter(range(10_000))
    sample = lambda: 100.0 * (1 + per_sample * next(taken))  # noqa: E731
    return Clock("drift", lambda device: lambda call: Prepared(sample), "", False, 100)


def test_K06_K10_turns_take_out_what_drifts():
    out = measure(drifting(0.007 / 100), dict.fromkeys("abc", list), Plan(50), "cpu")
    medians = [float(np.median(s.samples_us)) for s in out.values()]
    assert max(medians) / min(medians) - 1 < 0.0003, "one after the other they differ by 0.35 %"
    firsts = [s.samples_us[0] for s in out.values()]
    assert len(set(firsts)) == 3 and max(firsts) - min(firsts) < 0.1


def test_K06_clocks_are_recorded_and_throttling_is_flagged():
    reading = vars(monitor.Reading(sm_mhz=1980, power_w=700.0, temperature_c=60, others=0))
    slow = reading | {"sm_mhz": 1200, "throttles": ["power cap"]}
    state = {"before": reading, "during": [slow], "after": reading}
    found = records(samples("0", "1", state=state))
    for m in found:
        assert m["state"]["during"][0]["sm_mhz"] == 1200
        assert m["flags"] == ["throttled: power cap"]


def test_K09_the_first_call_of_a_shape_is_in_no_sample():
    """It compiles: 285 against 213."""
    shapes = {"a": iter([285.0, *[213.0] * 20]), "b": iter([400.0, *[213.0] * 20])}
    clock = Clock("shapes", lambda device: lambda call: Prepared(call), "", False, 100)
    out = measure(clock, {n: lambda t=t: next(t) for n, t in shapes.items()}, Plan(6), "cpu")
    assert all(s.samples_us == [213.0] * 6 for s in out.values())


def test_F04_a_warm_up_that_was_too_short_shows_as_unstable():
    warming = np.linspace(11.23, 8.79, 40).tolist()
    (said,) = table(replace(one("union", 1.0), samples_us=warming))["flags"]
    assert any(flag.startswith("unstable: the second half of the samples is -") for flag in said)


# --- what is compared with what

def test_F06_two_clocks_or_cache_states_make_no_ratio():
    hot = one("per_token", 50.0, clock="graph_hot", cache="hot")
    cold = one("union", 150.0, clock="graph_cold", cache="cold")
    with pytest.raises(ValueError, match="no case of these records has times of both"):
        compare_arms(table(hot, cold), "per_token", "union")


@pytest.mark.parametrize("changes", [
    {"workload": {"dtype": "fp8"}}, {"clock": "events"}, {"cache": "hot"},
], ids=["F09 dtype", "F10 clock", "F10 cache"])  # fmt: skip
def test_a_time_is_not_taken_for_that_of_another_setup(changes):
    fixed = {"op": "matrix_product", "workload": {"dtype": "bf16"}, "cache": "cold"}
    base, new = (table(gpu(variant="torch_matmul", **fixed | more)) for more in ({}, changes))
    with pytest.raises(ValueError, match="no case is in both"):
        compare_files(base, new)


def test_K07_a_speed_up_is_over_the_named_arm_on_the_same_case():
    """At 4 heads the baseline was not measured: nothing stands in for it."""
    rows = [*pair([0.8, 0.8], workload={"heads": 12}),
            *(one("union", 10.0, i, workload={"heads": 4}) for i in range(2)),
            *(one("eager", 900.0, i, workload={"heads": 4}) for i in range(2))]  # fmt: skip
    (c,) = compare_arms(table(*rows), "per_token", "union")
    assert (c.place, c.a, c.b) == ("heads=12", "per_token", "union")
    (c,) = compare_arms(table(*rows), "eager", "union")
    assert (c.place, c.a) == ("heads=4", "eager")
    with pytest.raises(ValueError, match="'union' is both arms"):
        compare_arms(table(*rows), "union", "union")


def test_K10_seven_permille_within_the_noise_are_not_claimed():
    ratios = [0.9929, 0.9930, 0.9931]
    for twin, verdict in ((1.0001, "FASTER"), (1.008, "AMBIGUOUS")):
        (c,) = compare_arms(table(*pair(ratios, twin=twin)), "per_token", "union")
        assert c.verdict == verdict, c
