"""A recorder in a server's forward: copies alone, so that a CUDA graph can hold them."""

import pytest
import torch

from workbench import selections
from workbench.capture import Recorder
from workbench.selections import capture_files
from workbench.selections.captures import Header

HEADER = Header(model="glm_moe_dsa", scope="request-local", provenance="live", weights="trained",
                source="two chats, decoding")  # fmt: skip
LAYERS, TOPK = (3, 7), 4


def lanes(positions: list[int], seed: int) -> torch.Tensor:
    """Indices that a top-k could return: rows up to each position, -1 where there are no more."""
    gen = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(p + 1, generator=gen)[:TOPK].tolist() for p in positions]
    return torch.tensor([row + [-1] * (TOPK - len(row)) for row in rows], dtype=torch.int32)


def recorder(device="cpu", **given):
    return Recorder(**({"layers": LAYERS, "tokens": 4, "topk": TOPK, "steps": 3} | given),
                    device=device)  # fmt: skip


def decode(r: Recorder, step: int, explicit: bool = False) -> None:
    """One step of two requests, at positions 9 + step and 2 + step."""
    number = step if explicit else None
    at = [9 + step, 2 + step]
    r.begin(number, torch.tensor(at))
    for layer in (*LAYERS, 11):  # a layer that is not recorded is passed by
        r.record(layer, number, lanes(at, 10 * step + layer))


@pytest.mark.parametrize("explicit", [True, False])
def test_steps_are_told_apart_and_written(explicit, tmp_path):
    r = recorder()
    for step in ((2, 0, 1) if explicit else range(3)):
        decode(r, step, explicit)
    if explicit:  # a step that is named is written, whichever has begun last
        r.record(7, 2, lanes([11, 4], 27))
    r.write(tmp_path / "x.safetensors", HEADER, starts=range(2))
    header, found = capture_files.read(tmp_path / "x.safetensors")
    assert header == HEADER
    assert [(c.step, c.layer) for c in found] == [(s, n) for s in range(3) for n in LAYERS]
    for c in found:
        first, second = 10 + c.step, 3 + c.step  # rows that each request sees
        assert c.selection.requests == ((0, 0, first), (1, first, second))
        given = lanes([9 + c.step, 2 + c.step], 10 * c.step + c.layer)
        expected = torch.where(given >= 0, given + torch.tensor([[0], [first]]), -1)
        assert torch.equal(c.selection.indices, expected.int())
        assert selections.refusals(c.selection) == [] and not c.masked.any()


def test_nothing_of_a_wider_step_is_left_behind_a_narrower_one(tmp_path):
    """... and steps past the last one replace it: nothing is written outside of the buffers."""
    r = recorder(steps=2)
    for tokens in (4, 3, 1, 2):
        r.begin(None, torch.arange(5, 5 + tokens))
        for layer in LAYERS:
            width = TOPK if tokens == 1 else 3
            r.record(layer, None, torch.full((tokens, width), tokens, dtype=torch.int64))
    r.write(tmp_path / "x.safetensors", HEADER, starts=[0])
    first, last = capture_files.read(tmp_path / "x.safetensors").captures[::2]
    assert first.selection.indices.tolist() == [[4, 4, 4, -1]] * 4
    assert last.selection.indices.tolist() == [[2, 2, 2, -1]] * 2 and last.step == 1


def test_a_record_waits_for_nothing_and_makes_no_storage():
    r = recorder()
    before = [t.data_ptr() for t in (r.indices, r.positions, r.at)]
    held = dict(vars(r))
    decode(r, 0)
    assert [t.data_ptr() for t in (r.indices, r.positions, r.at)] == before
    assert all(vars(r)[name] is value for name, value in held.items()), "the host counts"


def test_A02_a_recorder_of_inference_mode_is_written_outside_of_it():
    with torch.inference_mode():
        r = recorder()
        decode(r, 0)
    decode(r, 1)
    assert r.positions[:, :2].tolist() == [[9, 2], [10, 3], [-1, -1]]


def test_a_graphs_padding_behind_the_tokens_is_left_out(tmp_path):
    r = recorder()
    r.begin(None, torch.tensor([9, 2, 0, 0]))
    r.record(3, None, torch.cat([lanes([9, 2], 0), torch.zeros(2, TOPK, dtype=torch.int32)]))
    r.write(tmp_path / "x.safetensors", HEADER, starts=range(2), tokens=2)
    c = capture_files.read(tmp_path / "x.safetensors").captures[0]
    assert c.places.tolist() == [9, 2] and selections.refusals(c.selection) == []


def test_a_warm_up_is_written_and_refused(tmp_path):
    r = recorder()
    r.begin(None, torch.tensor([9, 2]))
    for layer in LAYERS:
        r.record(layer, None, torch.zeros(2, TOPK, dtype=torch.int32))
    r.write(tmp_path / "x.safetensors", HEADER, starts=range(2))
    for c in capture_files.read(tmp_path / "x.safetensors").captures:
        with pytest.raises(ValueError, match="duplicates"):
            selections.accepted(c.selection)


def test_a_reset_forgets_the_steps_of_a_warm_up(tmp_path):
    r = recorder()
    for step in range(3):
        r.begin(None, torch.full((2,), 9))
        for layer in LAYERS:
            r.record(layer, None, lanes([9, 9], step))
    buffers = [t.data_ptr() for t in (r.positions, r.indices, r.at)]
    r.reset()
    assert buffers == [t.data_ptr() for t in (r.positions, r.indices, r.at)]
    r.begin(None, torch.tensor([9, 2]))
    for layer in LAYERS:
        r.record(layer, None, lanes([9, 2], layer))
    r.write(tmp_path / "x.safetensors", HEADER, starts=range(2))
    assert {c.step for c in capture_files.read(tmp_path / "x.safetensors").captures} == {0}


def test_more_positions_than_there_is_room_for_are_refused():
    with pytest.raises(ValueError, match="5 positions for a recorder of 4 tokens"):
        recorder().begin(None, torch.arange(5))


def test_nothing_recorded_is_no_file(tmp_path):
    with pytest.raises(ValueError, match="nothing was captured"):
        recorder().write(tmp_path / "x.safetensors", HEADER, starts=[0])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(5, TOPK), (4, TOPK + 1)])
def test_more_than_there_is_room_for_is_refused(shape):
    r = recorder()
    r.begin(None, torch.arange(4))
    with pytest.raises(ValueError, match=rf"indices of shape \[{shape[0]}, {shape[1]}\]"):
        r.record(3, None, torch.zeros(shape, dtype=torch.int32))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")
def test_a_replayed_graph_writes_another_step_each_time(tmp_path):
    r = recorder("cuda")
    places = torch.zeros(2, dtype=torch.int64, device="cuda")
    rows = {layer: torch.zeros(2, TOPK, dtype=torch.int32, device="cuda") for layer in LAYERS}

    def forward() -> None:
        r.begin(None, places)
        for layer in LAYERS:
            r.record(layer, None, rows[layer])

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        forward()  # a warm-up, as servers do it
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward()
    r.reset()
    for step in range(3):
        at = [9 + step, 2 + step]
        places.copy_(torch.tensor(at))
        for layer in LAYERS:
            rows[layer].copy_(lanes(at, 10 * step + layer))
        graph.replay()
    torch.cuda.synchronize()
    on_cpu = recorder()
    for step in range(3):
        decode(on_cpu, step)
    for name, each in (("graph", r), ("cpu", on_cpu)):
        each.write(tmp_path / name, HEADER, starts=range(2))
    assert (tmp_path / "graph").read_bytes() == (tmp_path / "cpu").read_bytes()
