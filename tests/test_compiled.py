"""Every variant compiles for Hopper and Blackwell workstations without a GPU, as a launch would."""

import json
import os
import subprocess
import sys

import pytest

SHAPES = {
    "page_split": ["-w", "pages=64"],
    "page_split_step": ["-w", "pages=64"],
    "paged_read": ["-w", "pages=64"],
    "union_plan": ["-w", "tokens=16", "-w", "rows=8192", "-w", "group=4"],
    "sparse_prefill": ["-w", "tokens=16", "-w", "rows=8192", "-c", "group=2,4"],
}


def compile_here(op: str, *words: str):
    # a process of its own: an interpreted kernel cannot be compiled
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-m", "workbench", "compile", op, *words, "--json"],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("op", SHAPES)
def test_defaults_compile_for_hopper_within_what_they_declare(op):
    done = compile_here(op, *SHAPES[op], "--arch", "sm_90")
    assert done.returncode == 0, done.stdout + done.stderr
    kernels = json.loads(done.stdout)
    assert all(k["registers"] <= 255 and k["fits"] for k in kernels)
    if op == "sparse_prefill":
        attention = [k for k in kernels if "per_token" in k["kernel"] or "_union" in k["kernel"]]
        assert len(attention) == 3 and all("HMMA.16816" in k["mma"] for k in attention)


def test_a_tile_that_does_not_fit_is_told():
    words = ["--variant", "per_token", "-w", "tokens=2", "-w", "rows=4096", "--arch", "sm_120"]
    done = compile_here("sparse_prefill", *words, "-c", "block_k=128")
    assert done.returncode == 1
    (kernel,) = json.loads(done.stdout)
    assert kernel["shared_bytes"] > 101376 and "sm_120" in done.stderr


def test_integers_are_specialised_as_a_launch_does():
    # an index row of whole tiles of 16 is known to be aligned: fewer registers than an odd one
    registers = []
    for topk in (2048, 2047):
        words = ["--variant", "union", "-w", "tokens=4", "-w", "rows=4096", "-w", f"topk={topk}"]
        done = compile_here("sparse_prefill", *words, "-c", "group=2")
        assert done.returncode == 0, done.stdout + done.stderr
        registers.append([k["registers"] for k in json.loads(done.stdout)])
    assert registers[0] != registers[1]
