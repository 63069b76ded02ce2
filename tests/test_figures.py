"""Figures are functions of a table: equal data give an equal file, two setups share no axes."""

import json
from pathlib import Path

import pytest

from workbench import figures, record
from workbench.figures.axes import one_setup, timed

RECORDS = Path(__file__).parents[1] / "traces/records"


@pytest.fixture(scope="module")
def table():
    return record.load(*sorted(RECORDS.glob("*/*.jsonl")))


@pytest.fixture(scope="module")
def hot(table):
    return table[table["clock"] == "graph_hot"]


@pytest.mark.parametrize("kind", ["latency", "page_split_cost", "ladder", "union_ratio"])
def test_equal_data_give_an_equal_file(kind, hot, tmp_path):
    draw = getattr(figures, kind)
    one, two = (figures.save(draw(hot), kind, tmp_path / part) for part in "ab")
    assert one.read_bytes() == two.read_bytes() and len(one.read_bytes()) > 10_000


@pytest.mark.parametrize("kind", ["latency", "page_split_cost", "ladder"])
def test_two_clocks_are_refused(kind, table):
    with pytest.raises(ValueError, match="2 setups"):
        getattr(figures, kind)(table)


@pytest.mark.parametrize("kind", ["latency", "page_split_cost", "ladder", "union_ratio"])
def test_no_times_is_told(kind, hot):
    with pytest.raises(ValueError, match="no "):
        getattr(figures, kind)(hot[:0])


def test_a_figure_leaves_its_table_and_the_callers_settings_alone(hot):
    import matplotlib

    settings, before = dict(matplotlib.rcParams), hot.copy(deep=True)
    figures.latency(hot)
    assert dict(matplotlib.rcParams) == settings
    assert hot.equals(before)


def test_an_arm_far_off_the_scale_is_told_in_the_title(hot):
    title = figures.latency(hot)._suptitle.get_text()
    assert "eager is off the scale" in title and one_setup(hot) in title


def test_a_flagged_point_is_drawn_hollow(hot):
    rows = timed(hot, "page_split")
    plain = figures.page_split_cost(rows.assign(flags=[[]] * len(rows)))
    flagged = figures.page_split_cost(rows.assign(flags=[["unstable"]] * len(rows)))

    def hollow(figure):
        lines = [line for axes in figure.axes for line in axes.get_lines()]
        return sum(len(x.get_xdata()) for x in lines if x.get_markerfacecolor() == "white")

    assert hollow(plain) == 0 and hollow(flagged) > 0


@pytest.mark.slow
def test_figures_of_the_repository_are_drawn_from_its_records(table, tmp_path):
    made = sorted(figures.draw_all(table, tmp_path) + figures.draw_computed(tmp_path))
    shown = sorted((RECORDS.parents[1] / "figures").glob("[!c]*.svg"))
    assert sorted(p.name for p in made) == [p.name for p in shown]
    results = (RECORDS.parents[1] / "claims").glob("*.json")
    drawn = {p.stem for p in (RECORDS.parents[1] / "figures").glob("claim_*.svg")}
    assert drawn == {f"claim_{p.stem.replace('.', '_')}" for p in results}


def test_a_failed_save_leaves_the_old_figure(hot, tmp_path, monkeypatch):
    path = figures.save(figures.ladder(hot), "ladder", tmp_path)
    before = path.read_bytes()
    broken = figures.ladder(hot)
    monkeypatch.setattr(broken, "savefig", lambda *a, **k: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        figures.save(broken, "ladder", tmp_path)
    assert path.read_bytes() == before and json.dumps([p.name for p in tmp_path.iterdir()])
