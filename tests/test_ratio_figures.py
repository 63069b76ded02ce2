"""Figures of comparison show what was found: intervals, crossings, noise, flags, and no more."""

from dataclasses import replace

import numpy as np
import pytest

from workbench import figures
from workbench.comparison import Compared, Line
from workbench.models.crossover import crossover
from workbench.models.ratio import from_logs, verdict

OCTAVES = (64, 128, 256, 512, 1024, 2048, 4096)
SPREAD = np.array([-0.004, 0.001, 0.003])


def case(place: str, logs, noise: float = 0.002, flags=(), **changes) -> Compared:
    r = from_logs(np.asarray(logs))
    made = Compared("a GPU", "graph_hot", "hot", "sparse_prefill", place, "per_token", "union",
                    100.0, 100.0 * r.value, r, noise, verdict(r, noise=noise if noise == noise
                    else 0.0), tuple(flags), tuple(logs))  # fmt: skip
    return replace(made, **changes)


def line(ratio=lambda x: (700 / x) ** 0.2, x=OCTAVES, spread=SPREAD, noise=0.002, flagged=(),
         axis="tokens", place="") -> Line:  # fmt: skip
    logs = np.array([np.log(ratio(v)) + spread for v in x])
    cases = tuple(case(f"{axis}={v} {place}".strip(), row, noise, ["throttled: heat"] *
                       (v in flagged)) for v, row in zip(x, logs, strict=True))  # fmt: skip
    found = crossover(x, logs, noise=0.0 if noise != noise else noise)
    return Line("a GPU", "graph_hot", place, axis, "per_token", "union", cases, found, noise, ())


def plane(values=(0.0, 0.1, 0.2, 0.4), **more) -> list[tuple[float, Line]]:
    return [(v, line(lambda x, v=v: (300 * (1 + 4 * v) / x) ** 0.2, place=f"churn={v}", **more))
            for v in values]  # fmt: skip


def texts(figure) -> str:
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return "\n".join(t.get_text() for t in figure.findobj(Text) if t.get_visible())


def hollow(figure) -> int:
    lines = [x for axes in figure.axes for x in axes.get_lines()]
    return sum(len(x.get_xdata()) for x in lines if str(x.get_markerfacecolor()) == "white")


def legend(figure) -> list[str]:
    return [t.get_text() for t in figure.legends[0].get_texts()]


KINDS = {
    "line": lambda: figures.ratio_line(line(flagged=(128,)), "When?"),
    "forest": lambda: figures.forest(list(line(flagged=(128,)).cases), "When?"),
    "map": lambda: figures.ratio_map(plane(), "churn"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_equal_data_give_an_equal_file_and_leave_settings_alone(kind, tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    one, two = (figures.save(KINDS[kind](), kind, tmp_path / part) for part in "ab")
    assert one.read_bytes() == two.read_bytes() and len(one.read_bytes()) > 10_000
    assert dict(matplotlib.rcParams) == before
    assert len(one.read_bytes()) < 400_000, "a page shows several"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_cut_off(kind):
    """Every text lies inside the figure, and every legend too."""
    figure = KINDS[kind]()
    figure.draw_without_rendering()
    page = figure.bbox
    for artist in [figure._suptitle, *figure.legends, *(a for a in figure.axes)]:
        box = artist.get_tightbbox() if artist in figure.axes else artist.get_window_extent()
        assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1, artist
        assert page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1, artist


@pytest.mark.parametrize("kind", ["line", "forest"])
def test_flagged_points_are_hollow_and_said(kind):
    drawn = KINDS[kind]()
    plain = (figures.ratio_line(line()) if kind == "line" else figures.forest(line().cases))
    assert hollow(drawn) == 1 and "flagged" in legend(drawn)
    assert hollow(plain) == 0 and "flagged" not in legend(plain)


def test_the_noise_of_an_a_a_pair_is_drawn_and_labelled():
    figure = figures.ratio_line(line(noise=0.02))
    assert "A/A noise ±2.02%" in legend(figure)
    boxes = [p.get_extents() for p in figure.axes[1].patches]
    ends = [figure.axes[1].transData.transform([(1, np.exp(e))])[0, 1] for e in (-0.02, 0.02)]
    assert any([b.y0, b.y1] == pytest.approx(ends) for b in boxes)
    assert "A/A noise" in legend(figures.forest(line(noise=0.02).cases))
    for drawn in (figures.ratio_line(line(noise=np.nan)), figures.forest(line(noise=np.nan).cases)):
        assert not any("A/A" in said for said in legend(drawn)), "none was measured"


def test_a_crossing_is_drawn_at_its_place_with_its_neighbours():
    found = line()
    axes = figures.ratio_line(found).axes[1]
    (crossing,) = found.found.crossings
    assert any(list(x.get_xdata()) == [crossing.at] * 2 for x in axes.get_lines())
    spans = [p.get_extents().transformed(axes.transData.inverted()) for p in axes.patches]
    assert any((s.x0, s.x1) == pytest.approx(crossing.between) for s in spans)
    none = figures.ratio_line(line(lambda x: 0.9))
    assert not any("crossing" in said for said in legend(none))
    assert "none in range: union is faster everywhere" in texts(none)


EDGES = {
    "one block": {"spread": np.array([0.0])},
    "open ends": {"ratio": lambda x: 1.0 if x < 256 else 0.9},
    "undecided": {"ratio": lambda x: 1.0},
    "no noise": {"noise": np.nan},
    "a linear axis": {"x": (0, 0.5, 1, 2.5), "ratio": lambda x: 1.2 - 0.15 * x, "axis": "churn"},
    "shares": {"x": (0.1, 0.5, 0.9, 0.95, 1.0), "ratio": lambda x: x / 0.96, "axis": "share"},
    "two points": {"x": (64, 65)},
    "far apart": {"ratio": lambda x: x / 100.0},
    "nearly equal": {"ratio": lambda x: 1 + 1e-4 * np.log(x / 700), "spread": SPREAD / 100},
    "endless intervals": {"spread": np.array([-3.0, 3.0])},
    "many points": {"x": tuple(range(100, 1000, 7))},
}


@pytest.mark.parametrize("changes", EDGES.values(), ids=EDGES)
def test_edges_are_drawn_with_numbers_to_read(changes, tmp_path):
    found = line(**changes)
    for name, figure in (("l", figures.ratio_line(found)), ("f", figures.forest(found.cases))):
        assert figures.save(figure, name, tmp_path).stat().st_size > 5000
        axis = figure.axes[-1].yaxis if name == "l" else figure.axes[-1].xaxis
        low, high = axis.get_view_interval()
        ticks = [t for t in axis.get_ticklocs() if low <= t <= high]
        labels = [axis.get_major_formatter()(t) for t in ticks]
        assert 2 <= len(set(labels)) == len(ticks) <= 12, labels
        assert not any("10^" in said for said in labels), "plain numbers"
        assert high / low < 1e5, "an endless interval must not flatten the rest"


def test_an_axis_has_readable_ticks_and_both_ends():
    def ticks(**changes):
        axis = figures.ratio_line(line(**changes)).axes[1].xaxis
        return [axis.get_major_formatter()(t) for t in axis.get_ticklocs()]

    assert ticks() == ["64", "128", "256", "512", "1k", "2k", "4k"]
    shares = ticks(**EDGES["shares"])
    assert shares[0] == "0.1" and shares[-1] == "1" and "0.95" not in shares, "labels overlap"
    assert "0.5" in ticks(**EDGES["a linear axis"]), "a fraction is no whole number"


def test_rows_of_a_forest_are_named_by_what_differs():
    cases = [case("tokens=64 heads=16", SPREAD), case("tokens=64", SPREAD - 0.1)]
    said = texts(figures.forest(cases))
    assert "heads=16\n" in said and "heads=8\n" in said, "the op's default is told"
    assert said.count("tokens=64") == 1, "what all share is told once"
    assert "time of union over time of per_token" in said and "FASTER" in said
    two = texts(figures.forest([*cases, replace(cases[0], device="B200", clock="events")]))
    assert "B200 events" in two and "a GPU graph_hot" in two
    files = [replace(c, a="union") for c in cases]
    assert "time of new over time of base" in texts(figures.forest(files))
    with pytest.raises(ValueError, match="no case"):
        figures.forest([])


def test_a_map_shows_equal_time_its_band_and_plain_numbers():
    figure = figures.ratio_map(plane(), "churn")
    axes, bar = figure.axes
    dots = next(x for x in axes.get_lines() if x.get_label() == "crossing of a measured line")
    truth = [300 * (1 + 4 * v) for v in (0.0, 0.1, 0.2, 0.4)]
    assert dots.get_xdata() == pytest.approx(truth, rel=0.02)
    assert list(dots.get_ydata()) == [0.0, 0.1, 0.2, 0.4]
    assert {"equal time", "95 % interval of a crossing"} <= set(legend(figure))
    labels = [t.get_text() for t in bar.get_yticklabels()]
    assert "1" in labels and len(labels) >= 4 and not any("10^" in t for t in labels), labels
    mesh = axes.collections[0]
    assert mesh.get_rasterized(), "SVG draws shaded triangles as flat ones"
    low, high = mesh.norm.vmin, mesh.norm.vmax
    assert low * high == pytest.approx(1), "white is equal time"


def test_maps_of_lines_with_other_points_open_ends_and_no_crossing(tmp_path):
    rows = plane((1, 2, 16, 64))
    rows[1] = 2, line(x=(100, 300, 900, 5000), place="churn=2")
    rows[2] = 16, line(lambda x: 0.8)
    rows[3] = 64, line(lambda x: 1.0 if x < 200 else 1.1)
    figures.save(figures.ratio_map(rows, "heads"), "map", tmp_path)
    figures.save(figures.ratio_map(plane(spread=np.array([0.0])), "churn"), "one", tmp_path)
    same = [(v, line(lambda x: 1.0, spread=np.zeros(3))) for v in (1, 2)]
    figures.save(figures.ratio_map(same, "heads"), "same", tmp_path)


def test_a_map_is_refused_where_it_would_mix_or_lack_lines():
    with pytest.raises(ValueError, match="two lines or more, not 1"):
        figures.ratio_map(plane((0.1,)), "churn")
    with pytest.raises(ValueError, match=r"churn=0\.1 is given twice"):
        figures.ratio_map(plane((0.1, 0.1, 0.2)), "churn")
    apart = [(1, line(x=(1, 2, 4))), (2, line(x=(8, 16, 32)))]
    with pytest.raises(ValueError, match="share no range of tokens"):
        figures.ratio_map(apart, "heads")
