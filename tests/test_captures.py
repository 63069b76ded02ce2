"""What a capture means: what an index counts, what a query sees, what is masked and counted.

B22 and B23 are rows of the field reports: positions are an input, and the convention of an index is
part of the data.
"""

from dataclasses import replace

import pytest
import torch

from workbench import selections
from workbench.selections import capture_files, captures
from workbench.selections.captures import Header, capture

HEADER = Header(model="glm_moe_dsa", scope="request-local", provenance="synthetic",
                weights="random-weights", source="numbers", made_by={"torch": "2"},
                config={"index_topk": 3}, page_size=64, shared={5: 4})  # fmt: skip
LANES = torch.tensor([[0, -1, -1], [1, 0, -1], [2, 0, 1], [3, 1, 0], [0, -1, -1], [1, 0, -1]])
PLACES = torch.tensor([0, 1, 2, 3, 0, 1])
STARTS = [0, 4]


def taken(header=HEADER, layer=4, step=0, lanes=LANES, places=PLACES, starts=STARTS, **rest):
    return capture(header, layer, step, lanes, places, starts, **rest)


def same(a, b) -> bool:
    tensors = [(a.places, b.places), (a.masked, b.masked),
               (a.selection.indices, b.selection.indices),
               (a.selection.positions, b.selection.positions)]  # fmt: skip
    return (all(torch.equal(x, y) for x, y in tensors) and (a.layer, a.step) == (b.layer, b.step)
            and a.selection.rows == b.selection.rows
            and a.selection.requests == b.selection.requests)  # fmt: skip


def test_rows_a_query_cannot_see_are_masked_and_counted():
    lanes = torch.tensor([[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0], [9, 2, -7, 0]])
    c = capture(HEADER, 0, 0, lanes, torch.arange(4), [0])
    late = [sum(p < r < 4 for r in row) for p, row in enumerate(lanes.tolist())]
    assert c.masked.tolist() == late == [3, 2, 1, 0]
    assert c.selection.indices.tolist()[:2] == [[0, -1, -1, -1], [-1, 1, 0, -1]]
    assert c.selection.indices.tolist()[3] == [9, 2, -7, 0]  # numbers of no row stay, to be named
    assert selections.refusals(c.selection) == [
        "out of range: 2 lanes name rows from -7 to 9, the cache has 4"
    ]


def test_B22_positions_are_read_and_not_counted(tmp_path):
    """A context-parallel rank holds tokens r, r + cp, ...: its rows are checked against those."""
    places = torch.arange(3, 32, 4)
    lanes = torch.stack([places, places - 1, places - 3], 1)
    made = capture(HEADER, 0, 0, lanes, places, [0])
    capture_files.write(tmp_path / "x.safetensors", HEADER, [made])
    (c,) = capture_files.read(tmp_path / "x.safetensors").captures
    assert c.selection.positions.tolist() == places.tolist() and not c.masked.any()
    assert c.selection.rows == 32 and selections.refusals(c.selection) == []
    counted = capture(HEADER, 0, 0, lanes, torch.arange(8), [0], rows=[32])
    assert int(counted.masked.sum()) == 8 * 3 - 1, "positions 0, 1, 2, ... see fewer rows"


def test_B23_what_an_index_counts_is_part_of_the_data(tmp_path):
    """The same numbers, told as rows of a request, slots of a pool, or pages of a request."""
    lanes = torch.tensor([[0, 1], [2, 0], [0, 1], [2, 0]])
    places, starts = torch.tensor([190, 191, 190, 191]), [0, 2]
    found = {}
    for scope, rows in (("request-local", None), ("flat", 500), ("page", None)):
        header = replace(HEADER, scope=scope)
        made = capture(header, 0, 0, lanes, places, starts, rows)
        capture_files.write(tmp_path / "x.safetensors", header, [made])
        (c,) = capture_files.read(tmp_path / "x.safetensors").captures
        assert same(c, made) and torch.equal(captures.local(c.selection), lanes.int())
        found[scope] = c.selection
    assert found["request-local"].indices[2].tolist() == [192, 193]  # behind the first request's
    assert found["request-local"].rows == 2 * 192
    assert found["flat"].indices[2].tolist() == [0, 1] and found["flat"].rows == 500
    assert found["flat"].positions.tolist() == [499] * 4, "a slot says nothing of its time"
    assert found["page"].positions.tolist() == [2, 2, 2, 2] and found["page"].rows == 2 * 3
    across = {scope: selections.union_ratio(s.indices, s.rows, 4) for scope, s in found.items()}
    assert across["request-local"] == across["page"] == 2 * across["flat"]
    assert all(selections.refusals(s) == [] for s in found.values())


def test_a_row_of_four_tokens_is_seen_once_its_last_token_is_there():
    header = replace(HEADER, compress_ratio=4)
    lanes = torch.tensor([[0, 1, 2]]).expand(12, 3)
    c = capture(header, 2, 0, lanes, torch.arange(12), [0])
    assert c.selection.positions.tolist() == [-1] * 3 + [0] * 4 + [1] * 4 + [2]
    assert c.selection.rows == 3 and c.masked.tolist() == [3] * 3 + [2] * 4 + [1] * 4 + [0]
    assert selections.refusals(c.selection) == []


@pytest.mark.parametrize("change, told", [
    ({"scope": "rows"}, "scope='rows'"), ({"provenance": "dreamt"}, "provenance='dreamt'"),
    ({"weights": "some"}, "weights='some'"), ({"page_size": -1}, "page_size=-1"),
    ({"compress_ratio": 0}, "compress_ratio=0"), ({"scope": "page", "page_size": 0}, "page_size"),
])  # fmt: skip
def test_a_header_that_makes_no_sense_is_refused(change, told):
    with pytest.raises(ValueError) as refused:
        replace(HEADER, **change)
    assert told in str(refused.value)


@pytest.mark.parametrize("change, told", [
    ({"rows": [2, 2]}, "rows=2 of a request whose queries see 4"),
    ({"rows": [4]}, "rows of 1 requests for 2"), ({"starts": [0, 7]}, "requests begin at [0, 7]"),
    ({"places": PLACES[:4]}, "[4]"), ({"header": replace(HEADER, scope="flat")}, "rows=None"),
])  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(change, told):
    with pytest.raises(ValueError) as refused:
        taken(**change)
    assert told in str(refused.value)
