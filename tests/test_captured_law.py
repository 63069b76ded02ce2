"""Kernels on captured rows: the law `captured` gives a workload the last tokens of a capture."""

import pytest
import torch

from workbench import selections
from workbench.gate import check
from workbench.ops import OPS
from workbench.selections import capture_files
from workbench.selections.captures import Header, capture

HEADER = Header(model="glm_moe_dsa", scope="request-local", provenance="synthetic",
                weights="random-weights", source="numbers")  # fmt: skip


@pytest.fixture
def law(tmp_path):
    """(a law that reads a file, the captured lanes): 40 tokens of a request after another one."""
    gen = torch.Generator().manual_seed(3)
    places = torch.cat([torch.arange(8), torch.arange(24, 64)])
    lanes = [torch.randperm(p + 1, generator=gen)[:8].tolist() for p in places.tolist()]
    lanes = torch.tensor([row + [-1] * (8 - len(row)) for row in lanes])
    lanes[20] = lanes[20].where(lanes[20] != lanes[20, 2], -1)  # a hole
    capture_files.write(tmp_path / "x.safetensors", HEADER,
                        [capture(HEADER, 4, 0, lanes, places, [0, 8])])  # fmt: skip
    return f"captured:file={tmp_path / 'x.safetensors'}:layer=4:request=1", lanes[8:]


def prefill(law, **fields):
    given = {"tokens": 40, "topk": 8, "rows": 64, "law": law} | fields
    return OPS["sparse_prefill"].Workload(**given)


@pytest.mark.parametrize("tokens, topk, rows", [(40, 8, 64), (7, 8, 64), (12, 11, 90), (0, 8, 64)])
def test_the_law_gives_the_last_tokens_of_a_capture(law, tokens, topk, rows):
    text, lanes = law
    x = OPS["sparse_prefill"].make_inputs(prefill(text, tokens=tokens, topk=topk, rows=rows), "cpu")
    last = lanes[len(lanes) - tokens :].tolist()
    rows_of = [[r for r in row if r >= 0] for row in last]
    assert x.indices.tolist() == [row + [-1] * (topk - len(row)) for row in rows_of]
    assert selections.violations(x.indices, rows, x.positions) == []


def test_all_requests_of_a_batch_read_the_captured_one(law):
    s = selections.selection(law[0], [(40, 64), (3, 64)], 8)
    assert torch.equal(s.indices[40:] - 64, s.indices[37:40])
    assert selections.violations(s.indices, s.rows, s.positions, None, s.requests) == []


@pytest.mark.parametrize("fields, told", [
    ({"tokens": 41, "rows": 99}, "tokens=41 of the 40"), ({"topk": 7}, "topk=7 is below the 8"),
    ({"rows": 63}, "rows=63 is below the 64"),
    ({"first_position": 20}, "up to 4 rows before"), ({"first_position": 20}, "first_position=24"),
])  # fmt: skip
def test_a_workload_that_a_capture_does_not_fit_is_refused(law, fields, told):
    w = prefill(law[0], **fields)
    with pytest.raises(ValueError) as refused:
        OPS["sparse_prefill"].make_inputs(w, "cpu")
    assert told in str(refused.value) and "x.safetensors" in str(refused.value)


@pytest.mark.parametrize("text, told", [
    ("captured", "needs file="), ("captured:layer=3", "needs file="),
    ("captured:file=x:layer=-1", "layer=-1"), ("captured:file=x:row=1", "row"),
])  # fmt: skip
def test_a_law_without_its_file_is_refused(text, told):
    with pytest.raises(ValueError) as refused:
        prefill(text)
    assert told in str(refused.value)


def test_the_law_refuses_dummies_and_what_is_not_there(law, tmp_path):
    zeros = torch.zeros(40, 8)
    capture_files.write(tmp_path / "zeros.safetensors", HEADER,
                        [capture(HEADER, 4, 0, zeros, torch.arange(24, 64), [0])])  # fmt: skip
    for text, told in ((law[0].replace("x.safe", "zeros.safe"), "all zero"),
                       (law[0].replace("request=1", "request=2"), "request=2 of the 2"),
                       (law[0].replace("layer=4", "layer=1"), "no layer 1")):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            OPS["sparse_prefill"].make_inputs(prefill(text), "cpu")
    with pytest.raises(FileNotFoundError):
        OPS["sparse_prefill"].make_inputs(prefill("captured:file=no.safetensors"), "cpu")


def test_the_law_is_written_as_it_is_read(law):
    name, parameters = selections.parsed(law[0])
    assert selections.written(name, parameters) == law[0]
    assert "captured" not in selections.LAWS, "a law that needs a file cannot be drawn by name"


@pytest.mark.parametrize("op, variant, fields", [
    ("union_plan", "eager", {"group": 4}), ("sparse_prefill", "eager", {"heads": 2}),
])  # fmt: skip
def test_a_kernel_runs_on_a_capture(law, op, variant, fields):
    w = OPS[op].Workload(tokens=40, topk=8, rows=64, law=law[0], **fields)
    verdict = check(OPS[op].variants[variant], w, device="cpu")
    assert verdict.passed, verdict.why
