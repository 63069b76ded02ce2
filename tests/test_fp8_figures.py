"""Figures of fp8 prefill show what records, compiled rows and computed errors say, and no more."""

import copy
import json
from pathlib import Path

import pytest
from matplotlib.text import Text

from workbench import evidence, figures
from workbench.figures.orientations import FAULT
from workbench.models.quantised_error import ARITHMETICS, study

ROOT = Path(__file__).parents[1]
ROWS = json.loads((ROOT / "traces/compiled/fp8_prefill.json").read_text())
RECORDS = ROOT / "traces/records/nvidia_h200/fp8_prefill.jsonl"
US_A_TOKEN = {"dequant_then_alone": 0.4, "heads_on_m_wgmma": 0.6, "mg": 1.6, "swapab": 2.4,
              "heads_on_warps": 6.0, "dequant_dot": 4.0}  # fmt: skip


def us(arm: str, tokens: int, heads: int) -> float:
    """A planted time: `swapab` overtakes `mg` with 128 heads between 512 and 2,048 tokens."""
    swapped = 0.5 if arm == "swapab" and heads == 128 and tokens > 1000 else 1.0
    return US_A_TOKEN[arm] * tokens * heads / 64 * swapped


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three blocks at 4 x 2 places; the last place of 64 heads is throttled."""
    kept = [json.loads(line) for line in RECORDS.read_text().splitlines()]
    like = {row["variant"]: row for row in kept}
    path, out = tmp_path_factory.mktemp("records") / "r.jsonl", []
    for heads in (64, 128):
        for tokens in (128, 512, 2048, 8192):
            for block in range(3):
                for arm in US_A_TOKEN:
                    row = copy.deepcopy(like.get(arm, like["mg"])) | {"variant": arm}
                    row["workload"] |= {"tokens": tokens, "heads": heads}
                    row["ledger"], row["cost"] = {}, row["cost"] | {"bytes": 1}
                    time_us = us(arm, tokens, heads) * (1 + 0.01 * (block - 1) * (arm == "mg"))
                    row |= {"block": block, "samples_us": [time_us] * 3, "twin_us": [],
                            "flags": ["throttled: heat"] * (tokens == 8192 and heads == 64)}
                    out.append(json.dumps(row))
    path.write_text("\n".join(out) + "\n")
    return figures.along_tokens(evidence.load(path))


def texts(figure) -> list[str]:
    figure.draw_without_rendering()
    return [t.get_text() for t in figure.findobj(Text) if t.get_visible() and t.get_text()]


@pytest.fixture(scope="module")
def drawn(table):
    return {"times": figures.fp8_prefill(table), "compiled": figures.orientations(ROWS),
            "sm_90": figures.orientations(ROWS, "sm_90"), "rounding": figures.rounding(study())}


def test_equal_data_give_an_equal_file(table, tmp_path):
    make = {"t": lambda: figures.fp8_prefill(table), "c": lambda: figures.orientations(ROWS)}
    for name, draw in make.items():
        one, two = (figures.save(draw(), name, tmp_path / part) for part in "ab")
        assert one.read_bytes() == two.read_bytes() and 10_000 < len(one.read_bytes()) < 400_000


@pytest.mark.parametrize("kind", ["times", "compiled", "sm_90", "rounding"])
def test_nothing_is_cut_off_and_no_number_lies_on_another(kind, drawn):
    figure = drawn[kind]
    figure.draw_without_rendering()
    for artist in (figure._suptitle, *figure.legends):
        box, page = artist.get_window_extent(), figure.bbox
        assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1 and box.y0 >= page.y0 - 1, artist
    for axes in figure.axes:
        numbers = [t.get_window_extent() for t in axes.texts if t.get_text().strip()]
        apart = [a.overlaps(b) for i, a in enumerate(numbers) for b in numbers[:i]]
        assert not any(apart), axes.get_title()


def test_times_and_ratios_are_of_their_heads(drawn, table):
    figure = drawn["times"]
    said = texts(figure)
    assert {"64 heads", "128 heads", "swapab is faster", "mg is faster"} <= set(said)
    assert "NVIDIA H200 · graph_cold" in figure._suptitle.get_text()
    assert said.count("0.67") == 6 and said.count("1.33") == 2
    lines = [line for axes in figure.axes[:2] for line in axes.get_lines()]
    hollow = [len(x.get_xdata()) for x in lines if x.get_markerfacecolor() == "white"]
    assert sum(hollow) == len(US_A_TOKEN) and "hollow: throttled" in figure._suptitle.get_text()


def test_the_table_of_ratios_and_the_crossings(table):
    found = figures.ratio_table(table).set_index(["H", "T"])
    assert len(found) == 8 and set(found["blocks"]) == {3}
    assert found.loc[(64, 512), "MG / swapAB"] == pytest.approx(1.6 / 2.4, rel=1e-3)
    assert (found["low"] < found["MG / swapAB"]).all() and (found["high"] < 1.5).all()
    few, many = sorted(figures.crossings(table), reverse=True)
    assert few == "H=64: none in range: mg is faster everywhere"
    assert many.startswith("H=128: swapab is faster from tokens=2048 on, not yet at 512")
    ((device, ratios),) = figures.measured_ratios(table).values()
    assert device == "NVIDIA H200" and len(ratios) == 8


def test_one_place_and_one_process_are_told(tmp_path):
    table = figures.along_tokens(evidence.load(RECORDS))
    first = table[(table["workload.tokens"] == table["workload.tokens"].iloc[0])
                  & (table["workload.heads"] == table["workload.heads"].iloc[0])]  # fmt: skip
    first = first[first["block"] == first["block"].iloc[0]]
    assert "no interval" in figures.fp8_prefill(first)._suptitle.get_text()
    (said,) = figures.crossings(first)
    assert "were timed at T=" in said and said.endswith("alone")


def test_other_models_and_pools_are_not_drawn(table):
    strange = table.assign(place=table["place"] + " rows=65536")
    assert not len(figures.along_tokens(strange))
    with pytest.raises(ValueError, match="no times of fp8_prefill along T and H"):
        figures.fp8_prefill(strange)
    none = table[table["arm"] == "dequant_then_alone"]
    assert not len(figures.ratio_table(none)) and figures.crossings(none) == []
    assert figures.measured_ratios(none) == {} and figures.fp8_prefill(none)


def test_compiled_bars_are_the_numbers_of_their_rows(drawn):
    figure = drawn["compiled"]
    _, local, shared, barriers, _ = figure.axes
    of_swapab = [r for r in ROWS if (r["variant"], r["arch"]) == ("swapab_fp8", "sm_120")]
    assert len(of_swapab) == 2
    widths = {round(p.get_width(), 3) for p in shared.patches}
    assert {round(r["shared_bytes"] / 1024, 3) for r in of_swapab} <= widths
    assert FAULT not in {tuple(p.get_facecolor()[:3]) for p in shared.patches}, "all fit"
    assert {99.0} == {line.get_xdata()[0] for line in shared.get_lines()}
    assert {2.0, 20.0} <= {p.get_width() for p in barriers.patches}
    spilled = [p for p in local.patches if p.get_width()]
    assert len(spilled) >= 2 and {tuple(p.get_facecolor()[:3]) for p in spilled} == {FAULT}
    assert "sm_120" in figure._suptitle.get_text() and not any(
        label.startswith("swapab\n") for label in texts(figure)), "not for sm_120"
    with pytest.raises(ValueError, match="no kernel with products for sm_80"):
        figures.orientations(ROWS, "sm_80")


def test_rounding_shows_each_arithmetic_and_what_was_published(drawn):
    figure = drawn["rounding"]
    said = texts(figure)
    assert set(ARITHMETICS) <= set(said) and "published, fp8 kernel: cosine 0.99975" in said
    with pytest.raises(ValueError, match="no error to draw"):
        figures.rounding([])
