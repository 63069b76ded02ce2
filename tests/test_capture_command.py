"""`workbench selections capture`: a model with random weights reads a text, a file is written."""

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from workbench import selections
from workbench.capture.random_models import ARCHITECTURES, bytes_of, random_model
from workbench.cli import app
from workbench.selections import capture_files


def call(*words):
    return CliRunner().invoke(app, ["selections", *map(str, words)])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_command_captures_shows_and_feeds_a_workload(architecture, tmp_path):
    file, v4 = tmp_path / "x.safetensors", architecture == "deepseek_v4"
    # fmt: off
    done = call("capture", "--architecture", architecture, "--tokens", 160, "--chunk", 64,
                "--keep-tokens", 40, "--keep-layers", 2, "--to", file, "--device", "cpu")
    # fmt: on
    assert done.exit_code == 0, done.output
    assert f"{architecture}, random-weights, live" in done.stdout
    assert "the first 160 bytes of pydoc_data/topics.py" in done.stdout
    header, (c,) = capture_files.read(file)
    assert header.made_by["seed"] == "0" and c.layer == 2
    assert c.places.tolist() == list(range(120, 160)) and c.selection.rows == (40 if v4 else 160)
    shown = call("show", "--law", f"captured:file={file}:layer=2", "--tokens", 40, "--topk", 64,
                 "--context", 120, "--json")  # fmt: skip
    assert shown.exit_code == 0, shown.output
    union = selections.union_ratio(c.selection.indices, c.selection.rows, 4)
    assert json.loads(shown.stdout)["union_ratio"]["4"] == pytest.approx(union)


@pytest.mark.parametrize("words, told", [
    (["--architecture", "glm"], "'glm'"), (["--widths", "huge"], "'huge'"),
    (["--to", "x.json"], "NAME.safetensors"), (["--keep-layers", "9"], "layers [9]"),
    (["--keep-layers", "a"], "layer='a'"), (["--text", "short.txt"], "has 5 bytes"),
    (["--text", "no.txt"], "no.txt"),
])  # fmt: skip
def test_a_command_that_cannot_run_is_refused(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("short")
    given = {"--architecture": "glm_moe_dsa", "--to": "x.safetensors", "--layers": "1",
             "--tokens": "64", "--device": "cpu"} | dict([words])  # fmt: skip
    done = call("capture", *(word for pair in given.items() for word in pair))
    assert done.exit_code == 2 and told in done.stderr, done.output
    assert [p.name for p in tmp_path.iterdir()] == ["short.txt"]


def test_without_transformers_the_command_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = call("capture", "--architecture", "glm_moe_dsa", "--to", tmp_path / "x.safetensors")
    assert done.exit_code == 2 and "sparse-mla-workbench[capture]" in done.stderr


def test_a_text_is_its_bytes(tmp_path):
    (tmp_path / "mine.txt").write_bytes(bytes(range(200, 256)))
    tokens, said = bytes_of(tmp_path / "mine.txt", 20)
    assert tokens.tolist() == [list(range(200, 220))]
    assert said == "the first 20 bytes of mine.txt, a token each", "a path tells of a machine"


def test_a_seed_gives_the_same_weights():
    one, same, other = (random_model("glm_moe_dsa", layers=1, seed=s) for s in (3, 3, 4))
    before = torch.get_rng_state()
    random_model("glm_moe_dsa", layers=1, seed=5)
    assert torch.equal(before, torch.get_rng_state()), "the caller's random numbers changed"
    assert all(map(torch.equal, one.state_dict().values(), same.state_dict().values()))
    assert not torch.equal(one.embed_tokens.weight, other.embed_tokens.weight)


@pytest.mark.parametrize("architecture, heads, topk", [
    ("glm_moe_dsa", (64, 32), 2048), ("deepseek_v32", (128, 64), 2048),
    ("deepseek_v4", (64, 64), 512),
])  # fmt: skip
def test_real_widths_are_those_of_the_models(architecture, heads, topk):
    with torch.device("meta"):
        model = random_model(architecture, "real", layers=8)
    c = model.config
    assert (c.num_attention_heads, c.index_n_heads) == heads and c.index_head_dim == 128
    assert c.index_topk == topk
    assert sum(p.numel() for p in model.parameters()) < 2.1e9
