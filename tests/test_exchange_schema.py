"""Our description of FlashInfer-Bench's schema against faults, and against its own models.

With the package at hand (0.1.2: `pip install --no-deps flashinfer-bench docstring-parser`) every
rule here is compared with its models, and what we write is loaded by its own loader.
"""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_exchange import NAME, OTHERS, TINY, lines
from test_exchange_traces import failed, row

from workbench.exchange import export, schema

KINDS = ("definition", "trace", "solution")


def documents(root: Path) -> dict[str, list[dict]]:
    """kind -> what a folder holds of it."""
    found = {"trace": [*lines(root, "workloads"), *lines(root, "traces")]}
    for kind in ("definition", "solution"):
        files = sorted((root / f"{kind}s").rglob("*.json"))
        found[kind] = [json.loads(file.read_text()) for file in files]
    return found


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    root = tmp_path_factory.mktemp("exchange") / "set"
    rows = [row(), row(clock="graph_hot"), failed("incorrect", "out is off"),
            failed("incorrect", "out has shape (1,), not (2,)"), failed("error", "ValueError: no"),
            failed("timeout", "120 s")]  # fmt: skip
    export(root, rows, [TINY, replace(TINY, heads=16), replace(TINY, seed=1)], 64)
    return root


def test_what_is_written_is_valid(ours):
    found = documents(ours)
    assert {kind: len(found[kind]) for kind in KINDS} == {
        "definition": 2, "trace": 9, "solution": 2}  # fmt: skip
    for kind in KINDS:
        for value in found[kind]:
            assert getattr(schema, kind)(value) is None


def changed(value: dict, path: str, new) -> dict:
    """A copy in which the place `path` holds `new`; None takes it away."""
    value = copy.deepcopy(value)
    at, *names = value, *path.split(".")
    for name in names[:-1]:
        at = at[int(name)] if isinstance(at, list) else at[name]
    last = int(names[-1]) if isinstance(at, list) else names[-1]
    if new is None:
        del at[last]
    else:
        at[last] = new
    return value


FAULTS = [  # (kind, where, what stands there; None: nothing)
    *(("definition", name, None) for name in ("name", "op_type", "axes", "inputs", "outputs",
                                              "reference")),
    ("definition", "name", ""), ("definition", "op_type", 3), ("definition", "axes", []),
    ("definition", "axes.topk", {"type": "const"}),
    ("definition", "axes.topk", {"type": "const", "value": -1}),
    ("definition", "axes.topk", {"type": "const", "value": "many"}),
    ("definition", "axes.topk", {"type": "free"}), ("definition", "axes.topk", 2048),
    ("definition", "axes.topk", None), ("definition", "inputs.q_pe.dtype", "bf16"),
    ("definition", "inputs.q_pe.dtype", None), ("definition", "inputs.q_pe.shape", None),
    ("definition", "inputs.q_pe.shape", ["num_tokens", "hats"]),
    ("definition", "inputs.q_pe.shape", ["num_tokens", ""]),
    ("definition", "inputs.q_pe.shape", "num_tokens"), ("definition", "inputs.q_pe.shape", [1, 2]),
    ("definition", "inputs.output", {"shape": [], "dtype": "int8"}),
    ("definition", "outputs.lse", "float32"),
    ("definition", "reference", "def walk(q):\n    return q\n"),
    ("definition", "reference", "def run(q:\n"), ("definition", "reference", "x = 1"),
    ("definition", "reference", "class A:\n    def run(self): pass\n"),
    ("definition", "constraints", ["topk ="]), ("definition", "constraints", [3]),
    ("definition", "tags", "sparse"), ("definition", "tags", [""]),
    ("definition", "description", 3),
    ("trace", "definition", None), ("trace", "definition", ""), ("trace", "workload", None),
    ("trace", "workload.uuid", None), ("trace", "workload.uuid", ""),
    ("trace", "workload.axes", None), ("trace", "workload.axes", {"num_tokens": -1}),
    ("trace", "workload.axes", {"num_tokens": "many"}), ("trace", "workload.axes", [1]),
    ("trace", "workload.inputs", None), ("trace", "workload.inputs.q_pe", {"type": "zeros"}),
    ("trace", "workload.inputs.q_pe", {"type": "safetensors", "path": "x"}),
    ("trace", "workload.inputs.q_pe", {"type": "safetensors", "path": "", "tensor_key": "q"}),
    ("trace", "workload.inputs.q_pe", {"type": "scalar", "value": "x"}),
    ("trace", "workload.inputs.q_pe", {"type": "scalar"}), ("trace", "solution", 3),
    ("trace", "evaluation", []), ("trace", "evaluation.status", None),
    ("trace", "evaluation.status", "GOOD"), ("trace", "evaluation.environment", None),
    ("trace", "evaluation.environment.hardware", ""), ("trace", "evaluation.timestamp", None),
    ("trace", "evaluation.environment.libs", {"torch": 2}), ("trace", "evaluation.log", 3),
    ("trace", "evaluation.performance", None), ("trace", "evaluation.correctness", None),
    ("trace", "evaluation.performance.latency_ms", -1.0),
    ("trace", "evaluation.performance.latency_ms", "fast"),
    ("trace", "evaluation.correctness.max_relative_error", -0.1),
    ("trace", "evaluation.correctness.max_absolute_error", "small"),
    ("trace", "evaluation.correctness.extra", 3),
    ("trace", "evaluation.status", "RUNTIME_ERROR"),
    ("trace", "evaluation.status", "INCORRECT_NUMERICAL"),
    ("trace", "evaluation.status", "TIMEOUT"),
    *(("solution", name, None) for name in ("name", "definition", "author", "spec", "sources")),
    ("solution", "sources", []), ("solution", "sources.0.content", ""),
    ("solution", "sources.0.path", "other.py"), ("solution", "spec.entry_point", "main.py"),
    ("solution", "spec.target_hardware", []), ("solution", "spec.language", None),
    ("solution", "spec.destination_passing_style", "perhaps"),
]  # fmt: skip


def example(root: Path, kind: str) -> dict:
    """One that has all parts: a passed trace, or the first of its kind."""
    found = documents(root)[kind]
    passed = [v for v in found if (v.get("evaluation") or {}).get("status") == "PASSED"]
    return (passed or found)[0]


@pytest.mark.parametrize(("kind", "where", "new"), FAULTS,
                         ids=[f"{k}.{w}={n!r:.30}" for k, w, n in FAULTS])  # fmt: skip
def test_a_fault_is_told_with_its_place(kind, where, new, ours):
    told = getattr(schema, kind)(changed(example(ours, kind), where, new))
    assert told and told.startswith(kind)


VALID = [  # what must not be refused
    ("definition", "tags", None), ("definition", "description", None),
    ("definition", "constraints", None), ("definition", "inputs.q_pe.description", None),
    ("definition", "added_next_year", 3), ("definition", "inputs.q_pe.shape", []),
    ("trace", "evaluation.log", None), ("trace", "evaluation.environment.libs", None),
    ("trace", "evaluation.correctness.max_relative_error", "Infinity"),
    ("trace", "evaluation.correctness", {}), ("trace", "evaluation.performance", {}),
    ("trace", "workload.inputs", {}), ("trace", "workload.inputs.q_pe", {"type": "random"}),
    ("trace", "workload.inputs.q_pe", {"type": "scalar", "value": True}),
    ("trace", "workload.axes", {"num_tokens": 0}),
    ("solution", "spec.dependencies", None), ("solution", "description", None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "where", "new"), VALID,
                         ids=[f"{k}.{w}={n!r:.30}" for k, w, n in VALID])  # fmt: skip
def test_what_the_schema_allows_is_allowed(kind, where, new, ours):
    assert getattr(schema, kind)(changed(example(ours, kind), where, new)) is None


@pytest.fixture(scope="module")
def models():
    """Its models by kind. Later versions want flashinfer-python and its compilers, too."""
    found = pytest.importorskip("flashinfer_bench.data", exc_type=ImportError)
    return {"definition": found.Definition, "trace": found.Trace, "solution": found.Solution,
            "set": found.TraceSet}  # fmt: skip


def test_its_models_judge_as_we_do(ours, models):
    """Of every fault above and everything that is allowed: one list of where they differ."""
    differing = []
    for told, cases in (("refuse", FAULTS), ("allow", VALID)):
        for kind, where, new in cases:
            text = json.dumps(changed(example(ours, kind), where, new))
            try:
                models[kind].model_validate_json(text)
                theirs = "allow"
            except ValueError:
                theirs = "refuse"
            differing += [(kind, where, new)] if theirs != told else []
    assert not differing


@pytest.mark.parametrize("folder", ["ours", "others"])
def test_its_own_loader_reads_a_folder(folder, ours, models):
    root = ours if folder == "ours" else OTHERS
    found = models["set"].from_path(str(root))
    loaded = [*found.workloads.values(), *found.traces.values()]
    assert sum(map(len, loaded)) == len(documents(root)["trace"])
    if folder == "ours":
        (traces,) = found.traces.values()
        assert all(found.get_solution(t.solution) for t in traces)
        assert sum(t.is_successful() for t in traces) == 2
    else:
        assert len(found.traces[NAME]) == 3


def test_its_own_loader_reads_our_tensors(ours, models):
    from flashinfer_bench.bench.utils import gen_inputs, load_safetensors

    from workbench.exchange import named, workloads

    found = models["set"].from_path(str(ours))
    for name, traces in found.workloads.items():
        for trace in traces:
            definition = found.definitions[name]
            tensors = load_safetensors(definition, trace.workload, ours)
            theirs = gen_inputs(definition, trace.workload, "cpu", tensors)
            line = {"definition": name, "workload": trace.workload.model_dump()}
            mine = workloads.read(line, named(name), ours)
            assert all((a == b).all() for a, b in zip(theirs[:5], mine[:5], strict=True))
            assert theirs[5] == mine[5]
