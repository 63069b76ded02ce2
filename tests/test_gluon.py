"""Every variant in Gluon compiles for its GPUs with the Triton that is installed, without spills.

Names of Gluon change between releases: `make test-triton39` runs this file with another one.
"""

import json
import os
import subprocess
import sys

import pytest

from workbench.ops import OPS

GLUON = {name: [v for v in op.variants.values() if not v.interpretable]
         for name, op in OPS.items()}  # fmt: skip


@pytest.mark.parametrize("op", [name for name, variants in GLUON.items() if variants])
def test_one_source_compiles(op, tmp_path):
    asked = [a for v in GLUON[op] for a in ("--variant", v.name)]
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "compile", op, *asked, "--json", "--cache", tmp_path],
        env=env, capture_output=True, text=True,
    )  # fmt: skip
    assert not done.returncode, done.stderr[-2000:]
    compiled = {row["variant"] for row in json.loads(done.stdout) if "kernel" in row}
    assert compiled == {v.name for v in GLUON[op]}, done.stderr[-2000:]
