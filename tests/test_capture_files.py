"""Files of captures: what is written is read, bits keep rows, faults are one line."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from test_captures import HEADER, LANES, PLACES, STARTS, same, taken
from typer.testing import CliRunner

from workbench import selections
from workbench.cli import app
from workbench.selections import capture_files
from workbench.selections.captures import capture


def shown(*words):
    return CliRunner().invoke(app, ["selections", "show", *map(str, words)])


def test_what_is_written_is_read(tmp_path):
    made = [taken(), taken(layer=2), taken(step=1, lanes=LANES.flip(0), places=PLACES.flip(0),
                                           starts=[0, 2])]  # fmt: skip
    capture_files.write(tmp_path / "new" / "x.safetensors", HEADER, made)
    header, found = capture_files.read(tmp_path / "new" / "x.safetensors")
    assert header == HEADER
    assert [(c.step, c.layer) for c in found] == [(0, 2), (0, 4), (1, 4)]
    assert all(same(a, b) for a, b in zip(found, (made[1], made[0], made[2]), strict=True))


def test_plain_safetensors_reads_it_as_documented(tmp_path):
    capture_files.write(tmp_path / "x.safetensors", HEADER, [taken(lanes=LANES.clone())])
    with safe_open(tmp_path / "x.safetensors", "pt") as held:
        told = json.loads(held.metadata()["workbench.capture"])
        tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    assert told["format"] == 1 and told["weights"] == "random-weights"
    assert told["captures"] == [{"layer": 4, "step": 0, "topk": 3, "rows": 6,
                                 "requests": [[0, 0, 4], [4, 4, 2]]}]  # fmt: skip
    assert torch.equal(tensors["layer.4.step.0.indices"], LANES.int())  # of the request, not 4 on
    assert torch.equal(tensors["layer.4.step.0.positions"], PLACES.int())
    assert {t.dtype for t in tensors.values()} == {torch.int32}


def test_equal_captures_give_equal_files(tmp_path):
    for name in ("a", "b"):
        capture_files.write(tmp_path / name, HEADER, [taken(layer=2), taken()])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("rows", [8, 100, 4096])
def test_bits_keep_the_rows_and_not_their_order(tmp_path, rows):
    lanes = torch.stack([torch.randperm(rows)[:8] for _ in range(20)])
    lanes[3, 2:6] = -1
    made = capture(HEADER, 4, 0, lanes, torch.full((20,), rows - 1), [0])
    sizes = []
    for ordered in (True, False):
        file = tmp_path / f"{ordered}.safetensors"
        capture_files.write(file, HEADER, [made], ordered=ordered)
        sizes.append(file.stat().st_size)
        (found,) = capture_files.read(file).captures
        if ordered or rows > 8 * 8 * 4:
            assert same(found, made)
        else:
            kept = [sorted(r for r in row if r >= 0) for row in lanes.tolist()]
            padded = [row + [-1] * (8 - len(row)) for row in kept]
            assert found.selection.indices.tolist() == padded
    assert sizes[1] <= sizes[0] and (rows == 4096 or sizes[1] < sizes[0])
    with safe_open(file, "pt") as held:
        if rows < 4096:  # as the format says: bit r % 8 of byte r // 8
            packed = held.get_tensor("layer.4.step.0.bits")
            assert packed.shape == (20, -(-rows // 8))
            named = [r for r in range(rows) if packed[0, r // 8] >> r % 8 & 1]
            assert named == sorted(lanes[0].tolist())


def test_bits_are_not_taken_where_they_would_lose_a_lane(tmp_path):
    wild = LANES.clone()
    wild[2], wild[5, 2] = torch.tensor([2, 2, 1]), 77
    made = taken(lanes=wild)
    capture_files.write(tmp_path / "x.safetensors", HEADER, [made], ordered=False)
    assert same(capture_files.read(tmp_path / "x.safetensors").captures[0], made)
    assert any(s.startswith("duplicates") for s in selections.refusals(made.selection))


def test_the_last_tokens_of_each_request_can_be_written_alone(tmp_path):
    lanes = LANES.clone()
    lanes[2, 2] = 3  # token 2 cannot see row 3: masked and counted, with that token
    capture_files.write(tmp_path / "x.safetensors", HEADER, [taken(lanes=lanes)],
                        tokens=slice(-2, None))  # fmt: skip
    (c,) = capture_files.read(tmp_path / "x.safetensors").captures
    assert c.places.tolist() == [2, 3, 0, 1] and c.masked.tolist() == [1, 0, 0, 0]
    assert c.selection.requests == ((0, 0, 4), (2, 4, 2)) and c.selection.rows == 6
    assert c.selection.indices[0].tolist() == [2, 0, -1]
    assert selections.refusals(c.selection) == []


def test_reading_returns_dummies_and_accepting_refuses_them(tmp_path):
    zeros = torch.zeros(9, 3, dtype=torch.int32)
    capture_files.write(tmp_path / "x.safetensors", HEADER,
                        [capture(HEADER, 4, 0, zeros, torch.arange(9), [0])])  # fmt: skip
    (c,) = capture_files.read(tmp_path / "x.safetensors").captures
    with pytest.raises(ValueError, match="no capture of a model: all zero"):
        selections.accepted(c.selection)
    done = shown(tmp_path / "x.safetensors")
    assert done.exit_code == 1 and "refused: layer 4, step 0: all zero" in done.stdout
    assert shown(tmp_path / "x.safetensors", "--layer", 4).exit_code == 1


def broken(tmp_path, change):
    """A good file, changed: (its path, what reading it says)."""
    path = tmp_path / "x.safetensors"
    capture_files.write(path, HEADER, [taken()])
    with safe_open(path, "pt") as held:
        told = json.loads(held.metadata()["workbench.capture"])
        tensors = {name: held.get_tensor(name) for name in held.keys()}  # noqa: SIM118
    if content := change(told, tensors, path.read_bytes()):
        path.write_bytes(content)
    else:
        save_file(tensors, path, {"workbench.capture": json.dumps(told)} if told else {})
    with pytest.raises(ValueError) as refused:
        capture_files.read(path)
    return path, str(refused.value)


POSITIONS, INDICES = "layer.4.step.0.positions", "layer.4.step.0.indices"
FAULTS = {
    "truncated": (lambda h, t, raw: raw[:-9], "no whole safetensors file"),
    "cut in its header": (lambda h, t, raw: raw[:40], "no whole safetensors file"),
    "text": (lambda h, t, raw: b"hello, captures", "no whole safetensors file"),
    "another format": (lambda h, t, raw: h.update(format=2), "format 1"),
    "no metadata": (lambda h, t, raw: h.clear(), "no workbench.capture"),
    "no captures": (lambda h, t, raw: h.pop("captures") and None, "has no captures"),
    "no positions": (lambda h, t, raw: t.pop(POSITIONS) is None, f"has no {POSITIONS}"),
    "no indices": (lambda h, t, raw: t.pop(INDICES) is None, f"has no {INDICES}"),
    "int64": (lambda h, t, raw: t.update({INDICES: LANES}), "torch.int64 [6, 3], not torch.int32"),
    "too wide": (lambda h, t, raw: t.update({INDICES: LANES.int().repeat(1, 2).contiguous()}),
                 "[6, 6], not torch.int32 [6, 3]"),
    "scope": (lambda h, t, raw: h.update(scope="row"), "scope='row'"),
    "no scope": (lambda h, t, raw: h.pop("scope") and None, "scope"),
    "weights": (lambda h, t, raw: h.update(weights="good"), "weights='good'"),
    "page size": (lambda h, t, raw: h.update(page_size="64"), "page_size='64'"),
    "no topk": (lambda h, t, raw: h["captures"][0].pop("topk") and None, "has no topk"),
    "requests": (lambda h, t, raw: h["captures"][0].update(requests=[[0, 0, 4], [9, 4, 2]]),
                 "requests begin at [0, 9]"),
    "rows": (lambda h, t, raw: h["captures"][0].update(rows=99), "rows=99"),
    "bits": (lambda h, t, raw: t.update({"layer.4.step.0.bits": torch.full((6, 1), 255,
                                         dtype=torch.uint8)}), "hold 8 rows"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_file_is_told_in_one_line_with_its_name(fault, tmp_path):
    change, told = FAULTS[fault]
    path, said = broken(tmp_path, change)
    assert str(path) in said and told in said and "\n" not in said, said
    done = shown(path)
    assert done.exit_code == 2 and len(done.stderr.strip().splitlines()) == 1, done.output


def test_a_file_is_not_written_half(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    path.write_text("kept")
    for bad, told in (([], "nothing was captured"), ([taken(), taken()], "given twice")):
        with pytest.raises(ValueError, match=told):
            capture_files.write(path, HEADER, bad)

    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="no space"):
        capture_files.write(path, HEADER, [taken()])
    assert path.read_text() == "kept" and list(tmp_path.iterdir()) == [path]


def test_show_tells_a_file_in_words_and_in_json(tmp_path):
    file = tmp_path / "x.safetensors"
    capture_files.write(file, HEADER, [taken(), taken(layer=2)])
    done = shown(file)
    assert done.exit_code == 0, done.output
    for said in ("glm_moe_dsa, random-weights, synthetic", "input: numbers", "request-local",
                 "layer 5 reuses the choice of layer 4", "union of 16", "pages of 64"):  # fmt: skip
        assert said in done.stdout
    told = json.loads(shown(file, "--json").stdout)
    assert [c["layer"] for c in told["captures"]] == [2, 4] and told["scope"] == "request-local"
    ratio = selections.union_ratio(taken().selection.indices, 6, 2, STARTS)
    assert told["captures"][0]["union_ratio"]["2"] == pytest.approx(ratio)
    whole = json.loads(shown(file, "--layer", 5, "--json").stdout)
    assert whole["tokens"] == 6 and whole["union_ratio"]["3"] > 1 and whole["refusals"] == []
    for words, said in ((("--layer", 3), "no layer 3 of step 0: it has layers 2, 4, 5"),
                        (("--tokens", 9), "--tokens is of laws")):  # fmt: skip
        done = shown(file, *words)
        assert done.exit_code == 2 and said in done.stderr
