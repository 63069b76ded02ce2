"""What the ledger counts, against Python sets and by hand.

Counts are exact: rows gathered and distinct in a group, a wave and in all, lanes that tiles
execute, pages touched in whole or in part. What is unknown is left out.
"""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.models.ledger import LEDGERS, lane_ratio, ledger
from workbench.op import Tile
from workbench.ops import OPS
from workbench.ops.page_split import definition as page_split
from workbench.ops.sparse_prefill import definition as sparse_prefill
from workbench.ops.union_plan import definition as union_plan
from workbench.selections import overlap

many = settings(deadline=None, max_examples=80)
ROW = 1152  # bytes of a cache row of 576 bf16 numbers


def prefill(indices, rows=20, heads=8, length=None) -> sparse_prefill.Inputs:
    """Inputs of a selection; the numbers in q and kv decide no count."""
    indices = torch.as_tensor(indices, dtype=torch.int32)
    tokens = len(indices)
    return sparse_prefill.Inputs(
        torch.zeros(tokens, heads, 576, dtype=torch.bfloat16),
        torch.zeros(rows, 576, dtype=torch.bfloat16),
        indices,
        torch.zeros(tokens, dtype=torch.int32),
        None if length is None else torch.as_tensor(length, dtype=torch.int32),
        None,
        1.0,
    )


@st.composite
def selections(draw):
    """(indices, rows, topk_length): holes anywhere, rows past the cache, repeats, lengths off."""
    tokens, topk, rows = (draw(st.integers(0, most)) for most in (9, 7, 12))
    lanes = st.lists(st.integers(-3, rows + 3), min_size=topk, max_size=topk)
    indices = draw(st.lists(lanes, min_size=tokens, max_size=tokens))
    lengths = st.lists(st.integers(-1, topk + 2), min_size=tokens, max_size=tokens)
    return torch.tensor(indices).reshape(tokens, topk), rows, draw(st.none() | lengths)


def lists(indices, rows, length) -> list[list[int | None]]:
    """The lanes of each token, None where one does not count: the oracle's input."""
    found = []
    for t, lanes in enumerate(indices.tolist()):
        end = len(lanes) if length is None else length[t]
        found.append([r if 0 <= r < rows and k < end else None for k, r in enumerate(lanes)])
    return found


def distinct(tokens, size: int) -> list[int]:
    """Rows of each run of `size` tokens, each once."""
    runs = [tokens[i : i + size] for i in range(0, len(tokens), size)]
    return [len({r for token in run for r in token} - {None}) for run in runs]


def up(n: int, to: int) -> int:
    return -(-n // to) * to


@many
@given(selections(), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_prefill_counts_agree_with_python_sets(drawn, group, wave, block_k, small):
    """... also where the tables are so small that groups and tokens are taken in parts."""
    tokens, heads = lists(*drawn), 3
    lanes = sum(r is not None for token in tokens for r in token)
    unions = distinct(tokens, group)
    ends = [max((k + 1 for k, r in enumerate(t) if r is not None), default=0) for t in tokens]
    tile = Tile(16, group, block_k)
    with pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr(overlap, "TABLE_BYTES", 20)
            patch.setattr(overlap, "LANES", 5)
        found = ledger("sparse_prefill", prefill(drawn[0], drawn[1], heads, drawn[2]), tile, wave)
    gathered = lanes if group == 1 else sum(unions)
    expected = {
        "tokens": len(tokens),
        "valid_lanes": lanes,
        "gathered_rows": gathered,
        "unique_rows_group": sum(unions),
        "unique_rows_wave": sum(distinct(tokens, group * wave)),
        "unique_rows": sum(distinct(tokens, max(len(tokens), 1))),
        "useful_lanes": heads * lanes,
        "executed_lanes": 16 * sum(up(n, block_k) for n in (ends if group == 1 else unions)),
        "shared_read_bytes": gathered * (576 + 512) * 2,
    }
    assert {name: found[name] for name in expected} == expected
    for kind in ("useful", "executed"):
        assert found[f"{kind}_flops"] == 2 * found[f"{kind}_lanes"] * 1088
    for name in ("gathered_{}", "unique_{}", "unique_{}_group", "unique_{}_wave"):
        assert found[name.format("bytes")] == ROW * found[name.format("rows")], name


def test_prefill_by_hand():
    """Five tokens of two heads in groups of two, the last one short; two groups a wave."""
    x = prefill([[0, 1, 2, -1], [1, 2, 3, 99], [0, 1, -1, -1], [4, 5, 6, 7], [7, 8, 0, 0]],
                heads=2, length=[4, 4, 4, 4, 2])  # fmt: skip
    assert ledger("sparse_prefill", x, Tile(16, 2, 4), 2) == {
        "tokens": 5,
        "valid_lanes": 3 + 3 + 2 + 4 + 2,
        "row_bytes": ROW,
        "gathered_rows": 4 + 6 + 2,
        "gathered_bytes": 12 * ROW,
        "unique_rows_group": 12,
        "unique_bytes_group": 12 * ROW,
        "unique_rows_wave": 8 + 2,
        "unique_bytes_wave": 10 * ROW,
        "unique_rows": 9,
        "unique_bytes": 9 * ROW,
        "least_bytes": 9 * ROW + 5 * 2 * (576 * 2 + 512 * 2 + 4) + 20 * 4,
        "useful_lanes": 28,
        "useful_flops": 28 * 2176,
        "executed_lanes": 16 * (4 + 8 + 4),
        "executed_flops": 16 * 16 * 2176,
        "shared_read_bytes": 12 * 1088 * 2,
    }


@pytest.mark.parametrize("group, walked", [(1, 6), (2, 2)])
def test_a_token_walks_over_its_holes_up_to_its_last_lane_and_a_union_has_none(group, walked):
    x = prefill([[-1, -1, -1, -1, 3, -1, -1], [-1] * 7])
    assert ledger("sparse_prefill", x, Tile(16, group, 2))["executed_lanes"] == 16 * walked


@pytest.mark.parametrize("heads", [1, 8, 12, 16, 64])
@pytest.mark.parametrize("rows_of_tile", [16, 64])
@pytest.mark.parametrize("group", [1, 2, 4, 8])
def test_lanes_follow_the_formula_where_tiles_are_whole(heads, rows_of_tile, group):
    """ceil(GH / M) M / (GH) * U / k for one group of k rows a token whose union has U rows."""
    k, apart, block_k = 32, 8, 8  # each token selects its neighbour's rows but for 8
    indices = [list(range(t * apart, t * apart + k)) for t in range(2 * group)]
    tile = Tile(up(group * heads, rows_of_tile), group, block_k)
    union = k + (group - 1) * apart
    expected = up(group * heads, rows_of_tile) / (group * heads) * union / k
    found = ledger("sparse_prefill", prefill(indices, rows=200, heads=heads), tile)
    assert lane_ratio(found) == pytest.approx(expected)


def test_without_a_tile_a_gather_a_token_and_no_executed_lanes():
    x = prefill([[0, 1], [1, 2]])
    found = ledger("sparse_prefill", x)
    assert found["gathered_rows"] == found["unique_rows_group"] == 4
    unknown = {"executed_lanes", "executed_flops", "shared_read_bytes", "unique_rows_wave"}
    assert not unknown & set(found), found
    nothing = ledger("sparse_prefill", prefill([[-1, 30]]), Tile(16, 1, 4))
    for counts in (found, nothing, ledger("page_split", pages([0]))):
        assert math.isnan(lane_ratio(counts)), counts


@many
@given(drawn=selections(), group=st.integers(1, 5))
def test_union_plan_agrees_with_python_sets(drawn, group):
    indices, rows, length = drawn
    tokens = lists(*drawn)
    union = distinct(tokens, group)
    held = None if length is None else torch.tensor(length, dtype=torch.int32)
    assert ledger("union_plan", union_plan.Inputs(indices.int(), held, rows, group)) == {
        "tokens": len(tokens),
        "valid_lanes": sum(r is not None for token in tokens for r in token),
        "union_rows": sum(union),
        "least_bytes": 4 * indices.numel() + 8 * sum(union) + 4 * len(union),
    }


def pages(tokens, count=4, size=128) -> page_split.Inputs:
    """A pool of `count` pages of which the indices name `tokens`."""
    return page_split.Inputs(
        torch.zeros(count, size * 584, dtype=torch.uint8),
        size,
        None if tokens is None else torch.as_tensor(tokens, dtype=torch.int32),
        torch.zeros(count * size // 64, 64 * 584, dtype=torch.uint8),
        torch.zeros(count, dtype=torch.uint8),
        torch.zeros(2, 4 + count * size // 64, dtype=torch.int32),
    )


def test_page_split_by_hand():
    """Page 0 named whole and once again, page 2 by a token that is named twice, 1 and 3 not."""
    named = [*range(128), 7, 256, 256, -1, 512, 10**6]
    found = ledger("page_split", pages([named]))
    assert found == {
        "pages": 4,
        "touched_pages": 2,
        "full_pages": 1,
        "partial_pages": 1,
        "empty_pages": 2,
        "touched_copy_bytes": 2 * 2 * 128 * 584,
        "whole_copy_bytes": 2 * 4 * 128 * 584,
        "least_bytes": 2 * 2 * 128 * 584 + 4 * len(named),
    }


def kinds(found: dict) -> tuple[int, ...]:
    return tuple(found[f"{kind}_pages"] for kind in ("touched", "full", "partial", "empty"))


@pytest.mark.parametrize(
    "tokens, expected",
    [
        pytest.param(None, (4, 4, 0, 0), id="all"),
        pytest.param([], (0, 0, 0, 4), id="nothing"),
        pytest.param([[-1, 512, -(2**31)]], (0, 0, 0, 4), id="none valid"),
        pytest.param([511], (1, 0, 1, 3), id="the last token"),
        pytest.param(list(range(512)), (4, 4, 0, 0), id="every token"),
        pytest.param(list(range(1, 129)), (2, 0, 2, 2), id="a whole page's worth of two pages"),
        pytest.param([3] * 128, (1, 0, 1, 3), id="one token many times"),
    ],
)
def test_pages_by_kind(tokens, expected):
    assert kinds(ledger("page_split", pages(tokens))) == expected


def test_pages_of_64_tokens_are_not_copied():
    found = ledger("page_split", pages([0, 70], size=64))
    assert kinds(found) == (2, 0, 2, 2)
    assert found["touched_copy_bytes"] == found["whole_copy_bytes"] == found["least_bytes"] == 0


@pytest.mark.parametrize("op", [OPS[name] for name in LEDGERS], ids=LEDGERS)
def test_every_edge_has_a_ledger_of_whole_numbers_that_is_json(op):
    for w in op.suites["edges"]:
        x = op.make_inputs(w, "cpu")
        for tile, wave in ((None, None), (Tile(32, 4, 64), 132)):
            found = ledger(op.name, x, tile, wave)
            assert all(type(count) is int and count >= 0 for count in found.values()), found
            assert json.loads(json.dumps(found)) == found and found


def test_an_op_without_a_ledger_has_no_counts():
    assert ledger("an op of a user", None) == {}


@pytest.mark.parametrize(
    "asked, said", [({"wave": 0}, "wave=0"), ({"tile": Tile(16, 1, 0)}, "block_k=0")]
)
def test_numbers_below_one_are_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        ledger("sparse_prefill", prefill([[0]]), **asked)
