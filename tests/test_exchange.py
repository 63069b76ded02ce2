"""FlashInfer-Bench's files: what goes out comes back, means what ours means, and hides nothing.

`data/exchange` is a folder as others have one: a definition of pages of 64 rows, one of another
operation, a captured selection, an engine's warm-up, a workload whose tensors were not fetched, and
three runs. Our records are in test_exchange_traces.py, what is broken in test_exchange_broken.py.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from workbench import selections
from workbench.cli import app
from workbench.exchange import (
    Contract,
    contract,
    document,
    export,
    imported,
    named,
    survey,
    workloads,
)
from workbench.exchange.definitions import INPUTS
from workbench.exchange.paged import Paged, flat, paged
from workbench.ops import OPS
from workbench.ops.sparse_prefill.definition import Output, make_inputs

OTHERS = Path(__file__).parent / "data/exchange"
PREFILL = OPS["sparse_prefill"]
TINY = PREFILL.Workload(tokens=5, heads=8, topk=20, rows=90, churn=0.3)
NAME = "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64"
SHAPES = {
    "plain": TINY,
    "an empty token beside others": replace(TINY, tokens=9, topk=1, holes=0.5, law="uniform"),
    "nobody selects anything": replace(TINY, holes=1.0),
    "-1 in the middle": replace(TINY, holes=0.4, padding="mixed"),
    "other numbers than -1": replace(TINY, holes=0.4, padding="mixed", wild=True),
    "lanes past a length": replace(TINY, length="ragged", wild=True, holes=0.2),
    "fewer rows than topk": replace(TINY, rows=7),
}
shapes = pytest.mark.parametrize("shape", SHAPES)
pages = pytest.mark.parametrize("page_size", [1, 64])


def lines(root: Path, kind: str) -> list[dict]:
    files = sorted((root / kind).rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def call(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@shapes
@pages
def test_a_workload_comes_back_with_its_tensors_and_fields(shape, page_size, tmp_path):
    w = SHAPES[shape]
    export(tmp_path / "set", [], [w], page_size)
    (drawn,) = survey(tmp_path / "set").workloads
    (entry,) = lines(tmp_path / "set", "workloads")
    got = flat(workloads.read(entry, workloads.contract_of(w, page_size), tmp_path / "set"))
    x = make_inputs(w, "cpu")
    assert PREFILL.Workload(**drawn.ours) == w and drawn.tokens == w.tokens
    assert torch.equal(got.q, x.q) and got.sm_scale == x.sm_scale
    lanes = torch.where(selections.valid_lanes(x.indices, len(x.kv), x.topk_length), x.indices, -1)
    assert torch.equal(got.indices, lanes), (
        "lanes that do not count are -1, the others as they were"
    )
    rows = torch.nn.functional.pad(x.kv, (0, 0, 0, len(got.kv) - len(x.kv)), value=torch.nan)
    assert len(rows) % page_size == 0 and torch.equal(got.kv.isnan(), rows.isnan())
    assert torch.equal(got.kv.nan_to_num(), rows.nan_to_num())


@shapes
@pages
def test_the_exported_reference_stands_alone_and_answers_as_ours(shape, page_size):
    w = SHAPES[shape]
    x, scope = make_inputs(w, "cpu"), {}
    exec(document(workloads.contract_of(w, page_size))["reference"], scope)
    actual = Output(*scope["run"](*paged(x, page_size)))
    verdict = PREFILL.compare(x, actual, PREFILL.reference(x))
    assert verdict.passed, verdict.why
    assert actual.out.dtype == torch.bfloat16 and actual.lse.dtype == torch.float32


def test_a_definition_has_the_name_and_order_of_the_published_ones():
    for heads, topk, page_size in ((16, 2048, 64), (16, 2048, 1), (8, 256, 3)):
        c = Contract(heads=heads, topk=topk, page_size=page_size)
        assert c.name == f"dsa_sparse_attention_h{heads}_ckv512_kpe64_topk{topk}_ps{page_size}"
        assert contract(document(c)) == c == named(c.name)
    ours = document(named(NAME))
    theirs = json.loads((OTHERS / f"definitions/dsa_paged/{NAME}.json").read_text())
    for part in ("inputs", "outputs"):
        told = [(n, t["shape"], t["dtype"]) for n, t in ours[part].items()]
        assert told == [(n, t["shape"], t["dtype"]) for n, t in theirs[part].items()]
    sizes = [{n: (a["type"], a.get("value")) for n, a in d["axes"].items()} for d in (ours, theirs)]
    assert sizes[0] == sizes[1] and ours["op_type"] == theirs["op_type"] == "dsa_paged"
    assert Paged._fields == tuple(INPUTS)


def test_C05_a_definition_of_others_is_tagged_base_2_with_minus_one_as_padding():
    """The base is a tag, read from what a definition says; nothing of others is run."""
    found = survey(OTHERS).contracts[NAME]
    assert (found.lse_base, found.padding, found.empty_lse) == ("2", -1, -math.inf)
    theirs = json.loads((OTHERS / f"definitions/dsa_paged/{NAME}.json").read_text())
    for said, base in (("natural log-sum-exp", "e"), ("log-sum-exp, base e", "e"),
                       ("base-2 log-sum-exp", "2"), (None, "2")):  # fmt: skip
        theirs["outputs"]["lse"]["description"] = said
        assert contract(theirs).lse_base == base, said
    theirs["tags"] = ["lse_base:e"]
    assert contract(theirs).lse_base == "e"
    theirs["outputs"]["lse"]["description"] = "2-based log-sum-exp"
    with pytest.raises(ValueError, match="both base 2 and base e"):
        contract(theirs)


def test_C05_a_row_of_padding_is_empty_and_its_lse_is_minus_infinity():
    (entry, *_) = lines(OTHERS, "workloads")
    p = workloads.read(entry, named(NAME), OTHERS)
    p.sparse_indices[1] = -1
    out = PREFILL.reference(flat(p))
    assert out.lse[1].isneginf().all() and not out.out[1].any()
    latent, rotary = (c.flatten(0, 1)[:2000].double().T for c in (p.ckv_cache, p.kpe_cache))
    scores = (p.q_nope[0].double() @ latent + p.q_pe[0].double() @ rotary) * p.sm_scale
    assert torch.allclose(out.lse[0], scores.logsumexp(-1) / math.log(2))
    found = imported(p.sparse_indices, 2560)
    assert not found.refusals and found.notes == ("1 tokens name no row: their lse is -inf",)


def test_a_capture_of_others_is_read_with_what_can_be_said_of_it():
    found = survey(OTHERS)
    seen, warm, gone = found.workloads
    assert seen.valid_rows_per_token == 2000 and not seen.refusals and not seen.missing
    assert seen.union_ratio == {2: 1.05, 4: 1.05, 8: 1.05}, "2,100 rows of 2,000"
    assert "rows up to the query's position" in seen.unchecked
    assert warm.union_ratio is None and warm.refusals[0] == "all zero: every lane names row 0"
    assert gone.missing.startswith("blob missing: ") and gone.missing.endswith("_gone.safetensors")
    assert not found.faults and not found.sound
    assert found.others == {"gemm_n64_k32": "gemm_n64_k32 is of op_type 'gemm', not 'dsa_paged'"}
    assert found.elsewhere == 1


def test_runs_of_others_are_told_with_what_they_say():
    fused, split, wide = survey(OTHERS).runs
    assert (fused.status, fused.latency_us, fused.hardware) == ("PASSED", 31.0, "NVIDIA B200")
    assert (fused.author, fused.heads, fused.topk, fused.page_size) == ("somebody", 16, 2048, 64)
    assert fused.clock == fused.statistic == "", "they do not say what the time is"
    assert split.latency_us != split.latency_us and split.max_relative_error == math.inf
    assert wide.why == "RuntimeError: misaligned address"


def test_what_is_random_there_is_drawn_from_the_id_and_reads_as_a_workload():
    (entry, *_) = lines(OTHERS, "workloads")
    one, two = (workloads.read(entry, named(NAME), OTHERS) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one[:5], two[:5], strict=True))
    entry["workload"]["uuid"] = "another"
    assert not torch.equal(one.q_pe, workloads.read(entry, named(NAME), OTHERS).q_pe)
    assert one.q_nope.shape == (2, 16, 512) and one.ckv_cache.shape == (40, 64, 512)
    assert 0.99 < float(one.ckv_cache.float().std()) < 1.01


FAULTY = {
    "all zero": torch.zeros(3, 8),
    "constant": torch.full((3, 8), 5),
    "constant: all 9": torch.arange(8).expand(9, 8),
    "out of range": torch.tensor([[1, 2, 90]]),
    "out of range: 1 lanes name rows from -7": torch.tensor([[1, -7]]),
    "duplicates": torch.tensor([[4, 4, 1]]),
    "empty": torch.full((2, 4), -1),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_indices_that_no_model_selects_are_refused_by_name(fault):
    found = imported(FAULTY[fault].int(), 90)
    assert any(sentence.startswith(fault) for sentence in found.refusals), found.refusals


def test_a_selection_without_positions_is_not_called_causal_or_not():
    indices = torch.tensor([[80, 3, -1, 5], [7, 2, 9, -1]], dtype=torch.int32)
    found = imported(indices, 90)
    assert found.scope == "flat" and not found.refusals
    assert found.selection.positions.tolist() == [89, 89] and found.selection.requests == ()
    assert found.notes == ("1 tokens hold an invalid lane before its last valid one, first token 0 "
                           "at lane 2: -1",)  # fmt: skip
    assert not set(found.checked) & set(found.unchecked)


def test_import_says_what_is_there_as_a_table_and_as_json():
    shown = call("exchange", "import", OTHERS)
    assert shown.exit_code == 1, "a warm-up is no capture"
    for piece in ("all zero", "blob missing", "1.050", "misaligned", "not told", "1 other"):
        assert piece in shown.stdout
    told = json.loads(call("exchange", "import", OTHERS, "--json").stdout)
    assert told["contracts"][NAME]["lse_base"] == "2" and len(told["runs"]) == 3
    assert told["workloads"][0]["union_ratio"] == {"2": 1.05, "4": 1.05, "8": 1.05}


@pytest.mark.parametrize("folder", ["workloads/dsa_paged", "traces/somebody/dsa_paged"])
def test_one_file_of_a_folder_is_read_with_the_blobs_and_definitions_beside_it(folder):
    found = survey(OTHERS / folder / f"{NAME}.jsonl")
    assert len(found.workloads) + len(found.runs) == 3 and not found.faults
    assert list(found.others) == ["gemm_n64_k32"], "the definitions beside it"
    assert all(w.missing.endswith("_gone.safetensors") for w in found.workloads if w.missing)
