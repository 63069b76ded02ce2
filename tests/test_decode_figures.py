"""Figures of sparse decode say what the records say: times, crossings, the cost of picks.

Times are planted: `split_k_mma` at 16 heads is the fastest up to 65 tokens, prefill from 96 on.
"""

import numpy as np
import planted_decode as planted
import pytest
from matplotlib.text import Text

from workbench import evidence, figures, record
from workbench.figures.decode import flashmla
from workbench.models import picks

TOKENS = (1, 8, 64, 65, 96, 128)


def loaded(folder, *measurements):
    record.append(folder / "r.jsonl", *measurements)
    return evidence.load(folder / "r.jsonl")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    hot = [planted.one("split_k", 900.0, 0, 0, "hot", tokens=200, heads=64)]
    hot[0].flags.append("throttled: heat")
    return loaded(tmp_path_factory.mktemp("r"), *planted.crossover((16, 64), TOKENS), *hot,
                  *planted.splits(("split_k_mma", "split_k_wgmma"), topks=(768, 2048)))  # fmt: skip


@pytest.fixture(scope="module")
def drawn(table):
    return {"latency": figures.decode_latency(table), "splits": figures.decode_splits(table),
            "crossover": figures.decode_crossover(table)}  # fmt: skip


def texts(figure) -> set[str]:
    figure.draw_without_rendering()
    return {t.get_text() for t in figure.findobj(Text) if t.get_visible() and t.get_text()}


def lines(axes) -> dict:
    return {line.get_label(): line for line in axes.get_lines()}


@pytest.mark.parametrize("kind", ["latency", "splits", "crossover"])
def test_nothing_is_cut_off_and_no_title_lies_on_another(kind, drawn):
    figure = drawn[kind]
    figure.draw_without_rendering()
    legends = [*figure.legends, *(a.get_legend() for a in figure.axes if a.get_legend())]
    for artist in (figure._suptitle, *legends):
        box, page = artist.get_window_extent(), figure.bbox
        assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1, artist
    assert "NVIDIA H200 · graph_rotating" in figure._suptitle.get_text()


def test_equal_data_give_an_equal_file(table, tmp_path):
    for draw in (figures.decode_crossover, figures.decode_splits):
        one, two = (figures.save(draw(table), "f", tmp_path / part) for part in "ab")
        assert one.read_bytes() == two.read_bytes() and len(one.read_bytes()) > 10_000


def test_a_line_is_the_fastest_config_of_its_variant(drawn, table):
    few, many, _ = drawn["latency"].axes
    assert [a.get_title("left") for a in (few, many)] == ["16 heads", "64 heads"]
    line = lines(few)["split_k_mma"]
    at = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    mine = table[(table["variant"] == "split_k_mma") & (table["workload.heads"] == 16)
                 & (table["workload.topk"] == 2048) & (table["workload.tokens"] == 96)]  # fmt: skip
    swept = mine.groupby("config.chunks_per_block")["median_us"].median()
    assert len(swept) > 5 and at[96] == pytest.approx(swept.min())
    assert lines(few)["prefill_swapped"].get_linestyle() == "--"
    assert "prefill_swapped" not in lines(many), "it takes 16 heads at most"
    floor = lines(many)["floor: bytes and products at measured ceilings"]
    assert set(floor.get_xdata()) >= set(TOKENS) and max(floor.get_ydata()) < 100


def test_a_variant_that_never_ran_by_its_own_rule_is_no_line(table):
    other = (table["variant"] != "split_k_wgmma") | (table["config.chunks_per_block"] != 0)
    assert "split_k_wgmma" not in figures.decode_times(table[other]).columns


def test_a_flagged_time_is_hollow(drawn):
    many = drawn["latency"].axes[1]
    hollow = [x for line in many.get_lines() if line.get_markerfacecolor() == "white"
              for x in line.get_xdata()]  # fmt: skip
    assert hollow == [200] and "hollow: throttled" in drawn["latency"]._suptitle.get_text()


def test_times_of_flashmla_are_marks_of_their_own_and_only_of_their_device(drawn, table):
    few, many, _ = drawn["latency"].axes
    marks = lines(few)["FlashMLA, timed outside this workbench"]
    assert marks.get_linestyle() == "None" and list(marks.get_ydata())[-1] == 111.6
    assert "FlashMLA pads\nto 64 heads" in {t.get_text() for t in few.texts} and not many.texts
    times = figures.decode_times(table)
    assert times.loc[(16, 8), "FlashMLA (not here)"] == 22.1
    assert np.isnan(times.loc[(64, 65), "FlashMLA (not here)"]) and flashmla("NVIDIA H100").empty
    other = table.assign(**{"environment.device": "a GPU"})
    assert "FlashMLA (not here)" not in figures.decode_times(other)
    assert not any("FlashMLA" in text for text in texts(figures.decode_latency(other)))


def test_families_cross_where_they_were_planted_to(drawn, table):
    few, _ = figures.decode_crossings(table)
    assert few.startswith("H=16: prefill is faster from tokens=96 on, not yet at 65")
    assert few in drawn["crossover"]._suptitle.get_text().splitlines()
    found = figures.crossover_table(table).set_index(["H", "T"])
    assert list(found.loc[16].index) == list(TOKENS) and set(found["blocks"]) == {3}
    last = found.loc[(16, 65)]
    assert (last["decode"].split(" ")[0], last["prefill"]) == ("split_k_mma", "prefill_swapped")
    ratio = last["decode (µs)"] / last["prefill (µs)"]
    assert last["low"] < ratio < last["high"] < 1 and last["decode is"] == "FASTER"
    assert found.loc[(16, 96), "decode is"] == "SLOWER"
    rule = "the fixed rule of servers: decode up to 64 tokens"
    assert [lines(axes)[rule].get_xdata()[0] for axes in drawn["crossover"].axes] == [64.5] * 4


def test_arms_that_took_no_turns_together_are_not_compared(tmp_path):
    """A sweep of another day is faster, and says nothing of prefill."""
    rows = planted.crossover((16,), (1, 128))
    other = [planted.one("split_k", 0.5, 0, 8, "another", tokens=t, heads=16) for t in (1, 128)]
    found = figures.crossover_table(loaded(tmp_path, *rows, *other))
    assert "split_k" not in {arm.split(" ")[0] for arm in found["decode"]} and len(found) == 2


def test_picks_and_points_are_those_of_the_model(drawn, table):
    found, made, seen = model = figures.split_model(table)
    left, right = drawn["splits"].axes
    shown = sum(len(line.get_xdata()) for name, line in lines(left).items() if "rms" in name)
    assert shown == sum(len(s.times_us) for s in found)
    rings = [line for line in left.get_lines() if line.get_label() == "fitted on these"]
    assert [len(line.get_xdata()) for line in rings] == [6, 6]
    rows = figures.split_table(seen)
    assert len(rows) == len(seen) and (rows["refined"] <= rows["pick"]).all()
    shares = {told["variant"]: told for told in picks.shares(seen)}
    assert texts(drawn["splits"]) >= {
        f"{told[way]['within']:.0%} ≤ 1.10\nworst {told[way]['worst']:.2f}"
        for told in shares.values() for way in picks.WAYS
    }  # fmt: skip
    mine = rows[rows["variant"] == "split_k_mma"]
    assert shares["split_k_mma"]["pick"]["within"] == (mine["pick"] <= 1.10).mean()
    assert "split_k_mma inline_656, 45 places" in texts(drawn["splits"]) and len(right.texts) == 8
    assert len(made) == 2 and figures.decode_splits(table, model)


def test_what_is_missing_is_told(table):
    one = table[table["workload.tokens"] == 1]
    by_rule = table[table["config.chunks_per_block"].fillna(0) == 0]
    with pytest.raises(ValueError, match="no two token counts"):
        figures.decode_crossover(one)
    with pytest.raises(ValueError, match="several chunks_per_block"):
        figures.decode_splits(by_rule)
    with pytest.raises(ValueError, match="no times of sparse_decode along T"):
        figures.decode_latency(table[:0])
    for draw in (figures.decode_latency, figures.decode_splits):
        with pytest.raises(ValueError, match="2 setups"):
            draw(evidence.pd.concat([table, table.assign(clock="graph_hot")]))
    assert figures.crossover_table(one).empty and figures.decode_crossings(one) == []


def test_each_figure_is_drawn_where_its_records_are(table, tmp_path):
    made = figures.draw_all(table, tmp_path)
    names = {p.stem.removesuffix("_nvidia_h200_graph_rotating") for p in made}
    assert names >= {"decode_latency", "decode_crossover", "decode_splits"}
    lone = table[(table["workload.tokens"] == 1) & (table["config.chunks_per_block"] == 0)]
    assert not [p for p in figures.draw_all(lone, tmp_path / "lone") if "decode" in p.stem]
