"""Every variant compiles for Hopper without a GPU, as a launch would, within what it declares."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench import figures
from workbench.compiled import changes, table
from workbench.ops import OPS

ROOT = Path(__file__).parents[1]
VARIANTS = [v for op in OPS.values() for v in op.variants.values()]
LONG = {v.name for v in OPS["fp8_prefill"].variants.values()  # a minute of compiling
        if v.run.__module__.rpartition(".")[2] in ("heads_on_warps", "mg", "swapab")}
# (what test_orientation.py says of them for SM120 is no slow test)
OTHERS = [name for name in OPS["fp8_prefill"].variants if name not in LONG]


def environment(**more) -> dict:
    # an interpreted kernel cannot be compiled, nor traced for a compiler
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return kept | {k: str(v) for k, v in more.items()}


def workbench(*words: str, root: Path = ROOT, **more):
    return subprocess.run(
        [sys.executable, "-m", "workbench", "compile", *words], cwd=root,
        env=environment(PYTHONPATH=root, **more), capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """One for all processes of a run: what one compiled the others find."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "compiled"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.fixture(scope="module")
def rows(cache) -> list[dict]:
    ops = [name for name in OPS if name != "fp8_prefill"]
    found = table(*ops, arch="sm_90", cache_folder=cache)
    return found + table("fp8_prefill", variants=OTHERS, arch="sm_90", cache_folder=cache)


@pytest.fixture(scope="module")
def long_rows(cache) -> list[dict]:
    return table("fp8_prefill", variants=sorted(LONG), arch="sm_90", cache_folder=cache)


def kernels_of(rows: list[dict], v) -> list[dict]:
    mine = (row for row in rows if (row["op"], row["variant"]) == (v.op.name, v.name))
    return [row for row in mine if "kernel" in row]


@pytest.mark.parametrize("v", [
    pytest.param(v, marks=[pytest.mark.slow] * (v.name in LONG), id=f"{v.op.name}-{v.name}")
    for v in VARIANTS
])  # fmt: skip
def test_a_default_config_compiles_and_spills_only_where_it_says(v, request):
    rows = request.getfixturevalue("long_rows" if v.name in LONG else "rows")
    kernels = kernels_of(rows, v)
    if any(name.endswith("_kernel") for name in vars(sys.modules[v.run.__module__])):
        assert kernels, [row for row in rows if row["variant"] == v.name]
    for row in kernels:
        assert row["fits"], row["why"]
        assert row["registers"] <= 255 and row["blocks_per_sm"] > 0 and row["launches"] > 0
        if not v.stack_bytes:
            assert not {"LDL", "STL"} & set(row["looped"])
            assert row["spill_store_bytes"] == row["spill_load_bytes"] == 0
    assert not [row for row in rows if row["variant"] == v.name and row["fits"] is False]


def test_an_attention_kernel_multiplies_on_the_tensor_core(rows):
    for name in ("per_token", "union"):
        mine = (r for r in rows if (r["op"], r["variant"]) == ("sparse_prefill", name))
        (row,) = (r for r in mine if r.get("kernel") == f"_{name}_kernel")
        assert row["mma"] == {"HMMA.16816": row["hot_loop"]["HMMA"]}
        assert row["hot_loop"]["LDGSTS"] > 0 and row["hot_loop"]["LDSM"] > 0


def test_a_spill_that_is_declared_is_seen_all_the_same(rows):
    (row,) = (r for r in rows if r.get("kernel") == "_union_kernel")
    assert row["looped"]["LDL"] > 0 and 0 < row["stack_bytes"] <= row["stack_declared"]


def test_the_command_shows_the_same_from_the_cache(rows, cache):
    asked = ["sparse_prefill", "--arch", "sm_90", "--cache", str(cache)]
    mine = [row | {"cached": True} for row in rows if row["op"] == "sparse_prefill"]
    done = workbench(*asked, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == mine
    done = workbench(*asked, "--instructions")
    lines = done.stdout.splitlines()
    (row,) = (r for r in mine if r.get("kernel") == "_per_token_kernel")
    (line,) = (text for text in lines if "_per_token_kernel" in text)
    assert f"{row['registers']}      0      0/0   {row['shared_bytes']:,}  232,448" in line
    assert f"  {row['instructions']['HMMA']} ({row['hot_loop']['HMMA']})  " in line
    assert "eager_union, sm_90: not traced" in done.stderr


def test_a_figure_is_a_function_of_its_rows(rows, tmp_path):
    rows = [row for row in rows if row["op"] in ("sparse_prefill", "matrix_product")]
    one = figures.save(figures.compiled(rows), "one", tmp_path).read_text()
    two = figures.save(figures.compiled(rows), "two", tmp_path).read_text()
    assert one == two
    for told in ("union: _union_kernel", "tensor core", "112.2 of 227", "no loop"):
        assert told in one, told
    with pytest.raises(ValueError, match="no kernel"):
        figures.compiled([row for row in rows if "kernel" not in row])


def test_a_tile_that_does_not_fit_is_stepped_down_and_told(tmp_path):
    words = ["--variant", "per_token", "--arch", "sm_120", "-c", "block_k=128"]
    figure = tmp_path / "tile.svg"
    done = workbench("sparse_prefill", *words, "--json", "--figure", str(figure))
    assert done.returncode == 0, done.stderr
    (kernel,) = json.loads(done.stdout)
    assert kernel["fits"] and kernel["shared_bytes"] <= 101376
    assert (kernel["config"]["block_k"], kernel["config"]["num_stages"]) == (64, 2)
    assert "per_token block_k=128, sm_120: stepped down: " in done.stderr
    assert "per_token block_k=128" in figure.read_text()


@pytest.mark.slow
def test_integers_are_specialised_as_a_launch_does(cache):
    # an index row of whole tiles of 16 is known to be aligned: fewer registers than an odd one
    rows = table("sparse_prefill", variants=["union"], workload={"topk": "2048,2047"},
                 config={"group": "2"}, cache_folder=cache)  # fmt: skip
    plans = [row for row in rows if row["kernel"] == "_plan_kernel"]
    assert [row["workload"]["topk"] for row in plans] == [2048, 2047]
    assert plans[0]["registers"] != plans[1]["registers"] and all(row["fits"] for row in rows)


TRACED = """
import torch
from workbench.compiled import keys
from workbench.compiled.launches import Recorder, recorded_launches, specialised
from workbench.ops import OPS
SMALL = {"page_split": {"pages": 64}, "page_split_step": {"pages": 64}, "paged_read": {"pages": 64},
         "decode_split_step": {"layers": 2, "pages": 64, "extra_pages": 64, "extra_topk": 64},
         "union_plan": {"tokens": 16, "rows": 8192}, "sparse_prefill": {"tokens": 16, "rows": 4096},
         "fp8_prefill": {"tokens": 16, "rows": 4096}, "merge_splits": {"tokens": 16},
         "sparse_decode": {"tokens": 16, "rows": 4096, "topk": 256},
         "device_copy": {"bytes": 1 << 20}, "row_gather": {"count": 4096},
         "shared_read": {"programs": 2}, "matrix_product": {"n": 256}}
recorder, seen, held = Recorder(), 0, {}
for v in (v for op in OPS.values() for v in op.variants.values()):
    w = v.op.Workload(**SMALL[v.op.name])
    if v.requires(w, v.config) or v.name in ("eager_masked", "eager_union"):
        continue
    x = recorder.inputs(v.op, w)
    assert all(t.device.type == "cpu" and type(t).__name__ == "FakeTensor" for t in x
               if isinstance(t, torch.Tensor)), v
    traced = [keys.key(s) for s in recorder.sources(recorder.launches(v, x), 90)]
    with recorded_launches() as made:
        v(v.op.make_inputs(w, "cpu"))
    assert traced == [keys.key(specialised(launch, 90)) for launch in made], v
    seen += len(made)
    held |= {launch.kernel: keys.text(launch.kernel) for launch in made}
assert seen > 30
assert len(set(held.values())) == len(held)
for kernel, text in held.items():  # also after Triton was asked for its own keys, in any order
    kernel.cache_key
    assert keys.text(kernel) == text
"""


@pytest.mark.slow
def test_without_memory_the_same_is_launched():
    done = subprocess.run([sys.executable, "-c", TRACED], cwd=ROOT, text=True, capture_output=True,
                          env=environment(PYTHONPATH=ROOT))  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture
def clone(tmp_path) -> Path:
    """A repository with this package and one commit."""
    root = tmp_path / "clone"
    shutil.copytree(ROOT / "workbench", root / "workbench",
                    ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    return root


@pytest.mark.slow
def test_what_changed_since_a_revision(clone, tmp_path):
    file = clone / "workbench/ops/device_copy/kernels/triton_copy.py"
    text = file.read_text().replace("num_warps: int = 4", "num_warps: int = 8")
    text = text.replace("@device_copy.variant", "@device_copy.variant(config=Config())\n"
                        "def later(x: Inputs, config: Config) -> Output:\n"
                        '    """Another."""\n    return triton_copy(x, config)\n\n\n'
                        "@device_copy.variant", 1)  # fmt: skip
    file.write_text(text)
    words = ["--variant", "triton_copy", "--variant", "later", "--cache", str(tmp_path / "cache")]
    done = workbench("device_copy", *words, "--diff", "HEAD", root=clone)
    assert done.returncode == 0, done.stderr
    changed, added = (line for line in done.stdout.splitlines() if "_copy_kernel" in line)
    changed, added = sorted((changed, added), key=lambda line: "later" in line)
    assert "triton_copy" in changed and "warps 4 → 8" in changed and "registers" in changed
    assert "LDG 8 → 4" in changed and "STG 8 → 4" in changed
    assert "later" in added and "kernel none → _copy_kernel" in added
    assert not subprocess.run(["git", "worktree", "list"], cwd=clone, capture_output=True,
                              text=True).stdout.strip().count("\n")  # fmt: skip
    done = workbench("device_copy", "--diff", "nothing", root=clone)
    assert done.returncode == 2 and "'nothing' is no git revision" in done.stderr


def test_changes_are_told_number_by_number():
    row = {"op": "o", "variant": "v", "arch": "sm_90", "workload": {}, "kernel": "k", "why": "",
           "registers": 96, "instructions": {"FADD": 3}, "looped": {}, "hot_loop": {}}  # fmt: skip
    assert changes([row], [dict(row, cached=True)]) == []
    worse = row | {"registers": 104, "instructions": {"FADD": 3, "LDL": 12}, "looped": {"LDL": 2},
                   "why": "spills"}  # fmt: skip
    (found,) = changes([row], [worse])
    assert found["changes"] == {
        "registers": [96, 104], "all": [3, 15], "LDL": [0, 12], "all in loops": [0, 2],
        "LDL in loops": [0, 2], "verdict": ["fits", "spills"],
    }  # fmt: skip
    (gone,) = changes([row], [])
    assert gone["kernel"] == "k" and gone["changes"] == {"kernel": ["k", None]}
