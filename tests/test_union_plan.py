"""The union plan beyond its edges: where its map lies, and what its memory is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.ops import OPS

MAPS = {
    "one range": {"tokens": 16, "group": 8, "rows": 8192, "topk": 256},
    "many ranges": {"tokens": 16, "group": 16, "rows": 1 << 20, "topk": 256},
    "a small cache": {"tokens": 16, "group": 2, "rows": 100, "topk": 64, "length": "counted"},
}
STATED = [(v.op.name, v.name, {"tokens": tokens, "topk": 96, "rows": 200})
          for op in OPS.values() for v in op.variants.values() if v.workspace_bytes is not None
          for tokens in (8, 37)]  # fmt: skip
STATED += [("sparse_decode", v.name, {"tokens": 8, "topk": 96, "rows": 200, "gap": 3})
           for v in OPS["sparse_decode"].variants.values() if v.workspace_bytes is not None]


@pytest.fixture(scope="module")
def facts():
    asked = json.dumps({"maps": list(MAPS.values()), "workspaces": STATED})
    script = Path(__file__).with_name("compiled_facts.py")
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = str(script.parents[1])
    done = subprocess.run([sys.executable, str(script), asked], env=env, capture_output=True,
                          text=True, cwd=script.parents[1])  # fmt: skip
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("i", range(len(MAPS)), ids=list(MAPS))
def test_the_map_begins_where_shared_memory_does(facts, i):
    """`shared_map` scatters by address: the compiler must lay its first buffer at the beginning."""
    found = facts["maps"][i]
    assert found["scatters"] and found["beside"] >= found["map_bytes"], found


@pytest.mark.parametrize("i", range(len(STATED)), ids=lambda i: "-".join(STATED[i][:2]) + f"-{i}")
def test_workspace_is_what_is_stated(facts, i):
    found = facts["workspaces"][i]
    assert found["made"] == found["stated"]
