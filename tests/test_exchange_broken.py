"""Broken files of FlashInfer-Bench's form: told by name and place, and never half a result."""

import json
import shutil
from dataclasses import replace
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_exchange import NAME, OTHERS, TINY, call, lines
from test_exchange_traces import row

from workbench.exchange import Contract, export, named, survey, workloads
from workbench.exchange.definitions import contract

BLOB = f"blob/workloads/dsa_paged/{NAME}/{NAME}_seen.safetensors"
WORKLOADS = f"workloads/dsa_paged/{NAME}.jsonl"


@pytest.fixture
def others(tmp_path):
    """A copy of a folder of others, in which the captured selection alone is left."""
    folder = shutil.copytree(OTHERS, tmp_path / "others")
    (entry, *_) = lines(folder, "workloads")
    (folder / WORKLOADS).write_text(json.dumps(entry) + "\n")
    assert survey(folder).sound
    return folder


def rewritten(folder, change) -> None:
    """Store what `change` makes of the blob's indices."""
    held = load_file(folder / BLOB)
    save_file(change(held), folder / BLOB)


def entry_with(folder, **inputs) -> None:
    (entry,) = [e for e in lines(folder, "workloads") if e["definition"] == NAME]
    entry["workload"]["inputs"] |= inputs
    (folder / WORKLOADS).write_text(json.dumps(entry) + "\n")


def truncated(folder):
    whole = (folder / BLOB).read_bytes()
    (folder / BLOB).write_bytes(whole[: len(whole) // 2])


def no_safetensors(folder):
    (folder / BLOB).write_bytes(b"\xff" * 64)


def empty_file(folder):
    (folder / BLOB).write_bytes(b"")


def wide(folder):
    rewritten(folder, lambda held: {"sparse_indices": held["sparse_indices"].long()})


def short(folder):
    rewritten(folder, lambda held: {"sparse_indices": held["sparse_indices"][:1]})


def renamed(folder):
    rewritten(folder, lambda held: {"indices": held["sparse_indices"]})


def random(folder):
    entry_with(folder, sparse_indices={"type": "random"})


def outside(folder):
    entry_with(folder, sparse_indices={"type": "safetensors", "path": "../secret.safetensors",
                                       "tensor_key": "sparse_indices"})  # fmt: skip


def absolute(folder):
    entry_with(folder, sparse_indices={"type": "safetensors", "path": "/etc/hostname",
                                       "tensor_key": "sparse_indices"})  # fmt: skip


def one_more(folder):
    entry_with(folder, hats={"type": "random"})


def endless(folder):
    text = (folder / WORKLOADS).read_text()
    (folder / WORKLOADS).write_text(text.replace('"num_pages": 40', '"num_pages": 33554432'))


def scale_of_tensors(folder):
    entry_with(folder, sm_scale={"type": "random"})


BLOBS = {
    truncated: ["_seen.safetensors is no whole safetensors file"],
    no_safetensors: ["is no whole safetensors file"],
    empty_file: ["is no whole safetensors file"],
    wide: ["sparse_indices is torch.int64 (2, 2048), not torch.int32 (2, 2048)"],
    short: ["sparse_indices is torch.int32 (1, 2048), not torch.int32 (2, 2048)"],
    renamed: ["holds no 'sparse_indices', but indices"],
    random: ["sparse_indices are random numbers"],
    outside: ["'../secret.safetensors' leads out"],
    absolute: ["'/etc/hostname' leads out"],
    one_more: ["workload seen has the inputs", "hats"],
    endless: ["num_pages=33554432: an int32 names 2147483647 rows"],
    scale_of_tensors: ["sm_scale is random"],
}


@pytest.mark.parametrize("fault", BLOBS, ids=lambda f: f.__name__)
def test_tensors_that_are_not_as_defined_are_told_with_their_line(fault, others):
    fault(others)
    found = survey(others)
    (told,) = found.faults
    assert told.startswith(f"{WORKLOADS}:1: ") and all(piece in told for piece in BLOBS[fault])
    assert not found.workloads and len(found.runs) == 3, "the rest is read"
    done = call("exchange", "import", others)
    assert done.exit_code == 1 and done.stderr.strip() == f"workbench: {told}"
    (entry,) = [e for e in lines(others, "workloads") if e["definition"] == NAME]
    for reads in (workloads.read, workloads.read_selection):
        with pytest.raises(ValueError):
            reads(entry, named(NAME), others)


@pytest.mark.parametrize(
    "content", [None, b"version https://git-lfs.github.com/spec/v1\noid sha256"]
)
def test_a_blob_that_is_not_there_is_told_and_the_rest_is_read(content, others):
    (others / BLOB).unlink()
    if content:
        (others / BLOB).write_bytes(content)
    found = survey(others)
    (drawn,) = found.workloads
    assert drawn.missing.startswith("blob missing") and drawn.union_ratio is None and found.sound
    assert ("Git LFS" in drawn.missing) == bool(content)
    (entry, _) = lines(others, "workloads")
    with pytest.raises(FileNotFoundError, match="blob missing"):
        workloads.read(entry, named(NAME), others)


def test_rows_out_of_the_cache_are_refused_by_name(others):
    def far(held):
        held["sparse_indices"][0, 0] = 40 * 64
        return held

    rewritten(others, far)
    (drawn,) = survey(others).workloads
    assert drawn.refusals[0].startswith("out of range: 1 lanes name rows from 2560")
    (entry, _) = lines(others, "workloads")
    with pytest.raises(ValueError, match="out of range: sparse_indices name row 2560 of 2560"):
        workloads.read(entry, named(NAME), others)


BROKEN = {
    "not json": b"{'definition': 1}",
    "cut off": b'{"definition": "gemm", "workload": {"ax',
    "no object": b"[1, 2]",
    "no workload": b'{"definition": "gemm"}',
    "other bytes": b'{"definition": "\xff\xfe"}',
    "deep": b'{"definition": ' + b"[" * 100_000,
    "half a run": json.dumps(lines(OTHERS, "workloads")[0] | {"solution": "fused"}).encode(),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_line_that_is_no_trace_is_told_and_the_others_are_read(kind, others):
    with (others / WORKLOADS).open("ab") as file:
        file.write(BROKEN[kind] + b"\n")
    found = survey(others)
    (told,) = found.faults
    assert told.startswith(f"{WORKLOADS}:2: ") and len(told) < 300
    assert len(found.workloads) == 1 and len(found.runs) == 3 and not found.sound


def test_a_document_that_is_broken_is_told_and_its_lines_go_by_their_name(others):
    (others / f"definitions/dsa_paged/{NAME}.json").write_text('{"name": "x"}')
    found = survey(others)
    assert found.faults == (f"definitions/dsa_paged/{NAME}.json: definition has no op_type",)
    assert found.contracts[NAME] == named(NAME) and len(found.workloads) == 1


def test_a_pool_of_millions_of_rows_costs_what_its_named_rows_cost(others):
    def far(held):
        lanes = held["sparse_indices"]
        return {"sparse_indices": torch.where(lanes < 0, lanes, lanes + 2_000_000_000)}

    rewritten(others, far)
    text = (others / WORKLOADS).read_text().replace('"num_pages": 40', '"num_pages": 33554431')
    (others / WORKLOADS).write_text(text)
    (drawn,) = survey(others).workloads
    assert drawn.rows == 33554431 * 64 and drawn.union_ratio[2] == 1.05


def test_a_second_definition_of_a_name_is_told(others):
    shutil.copy(others / "definitions/gemm/gemm_n64_k32.json", others / "definitions/again.json")
    (told,) = survey(others).faults
    assert "second definition" in told and "gemm_n64_k32" in told


def test_lines_of_an_unknown_definition_are_counted_with_the_reason(others):
    text = (others / WORKLOADS).read_text().replace(NAME, "mla_of_next_year")
    (others / "workloads/dsa_paged/mla_of_next_year.jsonl").write_text(text)
    found = survey(others)
    assert found.others["mla_of_next_year"] == "no such definition here" and found.elsewhere == 2


NOT_OURS = {
    "is float16 ['num_pages', 'page_size', 'head_dim_ckv'], not bfloat16":
        lambda d: d["inputs"]["ckv_cache"].update(dtype="float16"),
    "has the inputs q_nope": lambda d: d["inputs"].pop("sm_scale"),
    "head_dim_ckv=256, not 512": lambda d: d["axes"]["head_dim_ckv"].update(value=256),
    "num_pages is constant": lambda d: d["axes"].update(num_pages={"type": "const", "value": 8}),
    "topk=None is no constant": lambda d: d["axes"].update(topk={"type": "var"}),
    "page_size=0 is no constant": lambda d: d["axes"]["page_size"].update(value=0),
    "is of op_type 'mla_paged'": lambda d: d.update(op_type="mla_paged"),
    "lse is float32 ['topk'], not": lambda d: d["outputs"]["lse"].update(shape=["topk"]),
}  # fmt: skip


@pytest.mark.parametrize("told", NOT_OURS)
def test_a_definition_that_means_something_else_is_not_taken_for_ours(told):
    definition = json.loads((OTHERS / f"definitions/dsa_paged/{NAME}.json").read_text())
    NOT_OURS[told](definition)
    with pytest.raises(ValueError) as error:
        contract(definition)
    assert told in str(error.value)


REFUSED = {
    "nothing to export: no records": [],
    "tokens=0": ["-w", "tokens=0"],
    "sink='random'": ["-w", "sink=random"],
    "unknown suite 'edge'": ["--workloads", "edge"],
    "inputs='some'": ["-w", "tokens=4", "--inputs", "some"],
    "no.jsonl": ["--records", "no.jsonl"],
    "nothing to export": ["--workloads", "recorded"],
    "unknown workload field 'hats'": ["-w", "hats=3"],
}


@pytest.mark.parametrize("told", REFUSED)
def test_an_export_that_is_refused_is_one_line_and_leaves_nothing(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("exchange", "export", "set", *REFUSED[told])
    assert done.exit_code == 2 and told in done.stderr, done.output
    assert len(done.stderr.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["no folder", "empty", "words.txt"])
def test_an_import_of_something_else_is_one_line(path, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "words.txt").write_text("words")
    done = call("exchange", "import", tmp_path / path)
    assert done.exit_code == 2 and path in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_folder_that_holds_something_is_not_written_into(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        export(tmp_path, [row()])
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert export(tmp_path / "empty", [row()]).traces == 1


def test_an_export_that_dies_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(import_module("workbench.exchange.export"), "_json", full)
    with pytest.raises(OSError, match="no space left"):
        export(tmp_path / "set", [row()], [TINY])
    assert not list(tmp_path.iterdir())


def test_the_pages_of_both_caches_must_agree(others):
    from workbench.exchange.paged import flat

    p = workloads.read(lines(others, "workloads")[0], named(NAME), others)
    with pytest.raises(ValueError, match=r"pages of \(40, 64\), kpe_cache of \(41, 64\)"):
        flat(p._replace(kpe_cache=torch.zeros(41, 64, 64, dtype=torch.bfloat16)))


def test_a_contract_of_no_rows_or_another_base_is_refused():
    from workbench.exchange import document

    with pytest.raises(ValueError, match="page_size=0 is below 1"):
        Contract(heads=8, topk=8, page_size=0)
    assert named(NAME.replace("ps64", "ps0")) is None and named("gemm_n64_k32") is None
    with pytest.raises(ValueError, match="lse_base='e'"):
        document(replace(named(NAME), lse_base="e"))
