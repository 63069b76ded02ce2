"""What the gate keeps of a workload for its next variant, and what it must not keep."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from workbench import gate
from workbench.answers import KEPT, Answers
from workbench.gate import check
from workbench.op import Variant
from workbench.ops import OPS
from workbench.selections import redrawn

PLAN, PREFILL = OPS["union_plan"], OPS["sparse_prefill"]
SMALL = PLAN.Workload(tokens=9, topk=24, rows=64, churn=0.25)
CAPTURE = Path(__file__).parents[1] / "traces/selections/glm_moe_dsa.safetensors"
right = PLAN.variants["eager"]


def variant(run) -> Variant:
    return replace(right, name=run.__name__, run=run)


def test_a_reference_is_computed_once_a_seed_for_all_variants(monkeypatch):
    made, asked = [], []
    op = replace(PLAN, make_inputs=lambda w, d: made.append(w.seed) or PLAN.make_inputs(w, d),
                 reference=lambda x: asked.append(1) or PLAN.reference(x))  # fmt: skip
    answers = Answers()
    for _ in range(3):
        inputs = PLAN.make_inputs(SMALL, "cpu")
        v = replace(right, op=op)
        assert check(v, SMALL, device="cpu", inputs=inputs, answers=answers).passed
    assert len(asked) == 3 and sorted(made) == [1, 2], "a first call, a second and a replay"


def test_a_wrong_variant_is_refused_behind_a_right_one():
    def shifted(x, config):
        found = right.run(x, config)
        return found._replace(union_rows=found.union_rows + 1)

    answers = Answers()
    for v, passes in ((right, True), (variant(shifted), False), (right, True)):
        assert check(v, SMALL, device="cpu", answers=answers).passed == passes


def test_answers_of_other_workloads_go_first_and_states_are_not_kept():
    answers = Answers()
    for seed in range(10):
        answers.inputs(PLAN, replace(SMALL, seed=seed), "cpu")
    assert [key[-1].seed for key in answers.held] == list(range(10 - KEPT, 10))
    split = OPS["page_split"]
    w = split.Workload(pages=2, batch=1)
    assert answers.inputs(split, w, "cpu") is not answers.inputs(split, w, "cpu")
    assert len(answers.held) == KEPT


def test_what_remembers_its_first_answer_is_refused_on_a_capture():
    """A capture has no seed: the later calls draw a walk, or one plan would do for all."""
    w = PLAN.Workload(tokens=8, topk=2048, rows=8192, law=f"captured:file={CAPTURE}:layer=0")
    known = {}

    def remembers(x, config):
        if x.indices.shape not in known:
            known[x.indices.shape] = right.run(x, config)
        return known[x.indices.shape]

    assert check(right, w, device="cpu").passed
    verdict = check(variant(remembers), w, device="cpu")
    assert verdict.status == "incorrect" and verdict.why.startswith("second call"), verdict


def test_other_numbers_of_a_workload_are_another_seed():
    assert redrawn(SMALL, 2) == replace(SMALL, seed=2)
    fp8 = OPS["fp8_prefill"].Workload(
        layout="footer_584", scale_format="ue8m0", extra_topk=8, extra_rows=16,
        extra_law=f"captured:file={CAPTURE}:layer=0")  # fmt: skip
    assert redrawn(fp8, 1) == replace(fp8, seed=1, extra_law="walk")


@pytest.mark.parametrize("here, told", [((12, 0), "written for sm_90, this GPU is sm_120"),
                                        ((9, 0), None)])  # fmt: skip
def test_a_variant_for_another_gpu_is_unsupported_with_both_named(monkeypatch, here, told):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: here)
    assert gate._elsewhere(PREFILL.variants["overlapped"], "cuda") == told
    assert gate._elsewhere(PREFILL.variants["union"], "cuda") is None
