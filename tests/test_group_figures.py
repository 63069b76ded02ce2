"""Figures of groups and unions: what is drawn of planted records, and what is refused."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from test_grouping import known_rates, one, table

from workbench import figures, selections
from workbench.figures.groups import BAR, WIDE

assert known_rates  # a fixture
CONTEXTS, CHURNS = (0, 2048, 8192, 30720), (0.02, 0.10, 0.25, 1.00)


def cell(context=0, churn=0.1, blocks=3, workload=None, **times):
    """Records of one place: microseconds by arm (`union_4`), 100 for one token unless given."""
    times = {"per_token": 100.0} | times
    w = {"context": context, "churn": churn} | (workload or {})
    return [one(arm if arm == "per_token" else arm.replace("_", " "), us * (1 + block / 100), block,
                gathered=int(90 * us), workload=w)
            for block in range(blocks) for arm, us in times.items() if us]  # fmt: skip


def drawn(rows):
    figure = figures.group_gain(table(*rows))
    panels = [axes for axes in figure.axes if axes.get_title(loc="left")]
    return figure, panels


def texts(axes) -> list[str]:
    return [t.get_text() for t in axes.texts]


def colors(axes) -> list[tuple]:
    """Fill of each cell, from the left below to the right above."""
    tiles = sorted(axes.patches, key=lambda p: (round(p.get_y()), p.get_x()))
    return [tile.get_facecolor() for tile in tiles]


def marks(axes) -> list[str]:
    return [line.get_marker() for line in axes.get_lines()]


def overlaps(figure) -> list[str]:
    """Pairs of texts that lie on each other, and texts that leave the figure."""
    FigureCanvasAgg(figure).draw()
    found = [*figure.texts, *(t for legend in figure.legends for t in legend.get_texts())]
    for axes in figure.axes:
        found += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [t for at, t in zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
                      if low <= at <= high]  # fmt: skip
    boxes = [(t.get_text(), t.get_window_extent()) for t in found if t.get_text()]
    whole = figure.bbox.padded(1)
    cut = [a for a, box in boxes if box.x0 < whole.x0 or box.x1 > whole.x1
           or box.y0 < whole.y0 or box.y1 > whole.y1]  # fmt: skip
    pairs = ((a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    return cut + [f"{a!r} on {b!r}" for (a, box), (b, other) in pairs
                  if box.padded(-1).overlaps(other)]  # fmt: skip


def test_one_cell_says_the_group_its_gain_and_its_arm():
    figure, (axes,) = drawn(cell(union_2=80.0, union_4=50.0))
    assert texts(axes) == ["G 4", "2.00×", "union"] and marks(axes) == ["o"]
    assert axes.get_title(loc="left") == "H 8 · T 2k" and not overlaps(figure)
    assert [t.get_text() for t in axes.get_xticklabels()] == ["0.1"]


def test_a_full_grid_has_a_cell_for_each_place_upwards_and_to_the_right():
    rows = [r for i, c in enumerate(CONTEXTS) for j, u in enumerate(CHURNS)
            for r in cell(c, u, union_4=20.0 + 10 * (4 * i + j))]  # fmt: skip
    figure, (axes,) = drawn(rows)
    assert len([t for t in texts(axes) if t.endswith("×")]) == 16 and not overlaps(figure)
    first, last = (next(t for t in axes.texts if t.get_text() == gain).get_window_extent()
                   for gain in ("5.00×", "0.59×"))  # fmt: skip
    assert first.x1 < last.x0 and first.y1 < last.y0, "the least of both stands left and below"
    assert [t.get_text() for t in axes.get_yticklabels()] == ["0", "2k", "8k", "30k"]
    shades = [c[2] - c[0] for c in colors(axes)]  # blue above 1, red below
    assert all(s > 0 for s in shades[:8]) and all(s < 0 for s in shades[9:]), shades
    assert not {"not measured", "a time is flagged"} & set(legend_of(figure))


def legend_of(figure) -> list[str]:
    return [t.get_text() for t in figure.legends[0].get_texts()]


def test_a_place_that_was_not_measured_is_an_empty_frame():
    rows = cell(0, 0.02, union_4=50.0) + cell(0, 0.1, union_4=50.0) + cell(2048, 0.02, union_4=70.0)
    figure, (axes,) = drawn(rows)
    assert [c[3] for c in colors(axes)] == [1, 1, 1, 0] and len(axes.texts) == 9
    assert "not measured" in legend_of(figure)


def test_a_panel_for_each_number_of_heads_and_tokens_and_other_fields():
    shapes = [{"heads": h, "tokens": t} for h in (8, 16, 32) for t in (1024, 2048, 8192)]
    rows = [r for w in [*shapes, {"sink": "random"}] for u in CHURNS[:3]
            for r in cell(0, u, workload=w, union_2=60.0)]  # fmt: skip
    figure, panels = drawn(rows)
    titles = [axes.get_title(loc="left") for axes in panels]
    assert titles[:3] == ["H 8 · T 1k", "H 8 · T 2k", "H 8 · T 2k · sink=random"]
    assert len(titles) == 10 and not overlaps(figure)
    assert figure.get_size_inches()[0] <= WIDE + BAR
    boxes = [axes.get_position() for axes in panels]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    assert all(0 < b.x0 < b.x1 < 1 and 0 < b.y0 < b.y1 < 1 for b in boxes)


def test_another_choice_of_the_model_is_marked_with_what_it_costs():
    rows = [*cell(union_2=50.0), *(one("union 4", 60.0 * (1 + b / 100), b, gathered=100,
                                       workload={"context": 0}) for b in range(3))]  # fmt: skip
    figure, (axes,) = drawn(rows)
    assert texts(axes) == ["G 2", "2.00×", "union", "model G 4: +20.0%"] and marks(axes) == ["^"]
    assert not overlaps(figure) and len(legend_of(figure)) == 1


def test_without_counts_there_is_no_mark():
    rows = [one("per_token", 100.0), one("union 2", 50.0)]
    figure, (axes,) = drawn(rows)
    assert not marks(axes) and not [t for t in legend_of(figure) if "model" in t]


def test_one_block_is_in_question():
    figure, (axes,) = drawn(cell(blocks=1, union_2=50.0))
    assert texts(axes)[0] == "G 2 ?" and "next best group not shown to be slower" in legend_of(
        figure
    )


def test_without_an_arm_of_one_token_the_gain_is_unknown():
    figure, (axes,) = drawn(cell(per_token=0, union_2=60.0, union_4=50.0))
    assert texts(axes)[:2] == ["G 4", "gain unknown"] and len(figure.axes) == 1, "no color bar"


def test_a_flagged_time_is_framed():
    calm, busy = {"churn": 0.02}, {"churn": 0.25}
    rows = [one("per_token", 100.0, workload=calm), one("union 2", 50.0, workload=calm),
            one("per_token", 100.0, workload=busy),
            one("union 2", 50.0, workload=busy, flags=["busy: 1 other process"])]  # fmt: skip
    figure, (axes,) = drawn(rows)
    first, second = (tile.get_linestyle() for tile in axes.patches)
    assert first != second and "a time is flagged" in legend_of(figure)


def test_laws_stand_behind_the_churns_of_the_walk():
    captured = "captured:file=traces/selections/deepseek_v4.safetensors:layer=4"
    rows = [r for w in ({"law": "boundary:core=0.9:pool=3"}, {"law": captured}, {"churn": 0.25},
                        {"churn": 0.02})
            for r in cell(workload=w, union_2=50.0)]  # fmt: skip
    figure, (axes,) = drawn(rows)
    names = [t.get_text().replace("\n", " ") for t in axes.get_xticklabels()]
    assert names == ["0.02", "0.25", "boundary core=0.9 pool=3", "captured deepseek_v4 layer=4"]
    assert not overlaps(figure)


@pytest.mark.parametrize("rows", [[one("per_token", 90.0), one("alone", 80.0)], [one("eager", 9.0)],
                                  [one("per_token", 9.0, op="union_plan")]])  # fmt: skip
def test_without_two_group_sizes_nothing_is_drawn(rows, tmp_path):
    with pytest.raises(ValueError, match="two group sizes"):
        figures.group_gain(table(*rows))
    kinds = [path.name for path in figures.draw_all(table(*rows), tmp_path)]
    assert not [name for name in kinds if name.startswith("group_gain")]


def test_two_clocks_are_refused_and_drawn_apart(tmp_path):
    rows = [one(arm, us, clock=clock) for clock in ("graph_cold", "graph_hot")
            for arm, us in (("per_token", 100.0), ("union 2", 50.0))]  # fmt: skip
    with pytest.raises(ValueError, match="2 setups"):
        figures.group_gain(table(*rows))
    made = [path.name for path in figures.draw_all(table(*rows), tmp_path)]
    assert [name for name in made if name.startswith("group_gain")] == [
        "group_gain_a_gpu_graph_cold.svg", "group_gain_a_gpu_graph_hot.svg"]  # fmt: skip


def test_an_older_build_of_an_arm_is_not_shown():
    rows = [one("per_token", 100.0), one("union 2", 10.0), one("union 2", 50.0, source="new")]
    _, (axes,) = drawn(rows)
    assert "2.00×" in texts(axes)


def test_equal_records_give_an_equal_file(tmp_path):
    rows = cell(union_4=50.0) + cell(2048, union_4=60.0)
    one_file, other = (figures.save(figures.group_gain(table(*part)), "g", tmp_path / name)
                       for name, part in (("a", rows), ("b", rows[::-1])))  # fmt: skip
    assert one_file.read_bytes() == other.read_bytes()


# --- curves of unions

def stats(law="boundary", seed=0):
    return selections.statistics(selections.selection(law, [(64, 256)], 64, seed), (1, 2, 4), (1,),
                                 ())  # fmt: skip


def test_the_overlay_has_a_line_for_a_law_and_a_band_for_a_capture():
    laws = {"walk": stats("walk"), "independent": stats("independent")}
    layers = [stats(seed=s) for s in range(3)]
    figure = figures.union_overlay(laws, {"a model, random weights": layers})
    left, right = figure.axes
    assert [t.get_text() for t in figure.legends[0].get_texts()] == [
        "walk", "independent", "a model, random weights"]  # fmt: skip
    lines = {line.get_label(): line.get_ydata() for line in left.get_lines()}
    assert list(lines["walk"]) == list(laws["walk"]["union_ratio"].values())
    of_four = sorted(s["union_ratio"][4] for s in layers)
    assert lines["a model, random weights"][2] == of_four[1], "the middle layer"
    (band,) = left.collections
    assert band.get_paths()[0].get_extents().y1 == pytest.approx(of_four[2])
    chance = {line.get_label(): line.get_ydata() for line in right.get_lines()}["independent"]
    assert np.allclose(chance, 1.0, atol=0.05)
    assert not overlaps(figure)


def test_a_capture_without_layers_is_left_out():
    figure = figures.union_overlay({"walk": stats("walk")}, {"none": []})
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["walk"]


def test_captures_alone_are_drawn():
    figure = figures.union_overlay({}, {"a model": [stats()]})
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["a model"]


@pytest.mark.parametrize("captures", [None, {}, {"empty": []}])
def test_an_overlay_of_nothing_is_refused(captures):
    with pytest.raises(ValueError, match="no law and no capture"):
        figures.union_overlay({}, captures)


@pytest.mark.parametrize("law, group", [("boundary", 4), ("uniform", 1), ("walk:churn=0.25", 16)])
def test_a_played_law_says_what_its_statistics_say(law, group):
    figure = figures.union_play(law, group, tokens=64, context=192, topk=64)
    s = selections.selection(law, [(64, 256)], 64)
    ratio = selections.union_ratio(s.indices, s.rows, group)
    curve, rows, tokens = figure.axes
    assert f"a group of {group} reads {ratio:.2f} times" in figure._suptitle.get_text()
    assert next(bar.get_x() for bar in rows.patches) < 1 and len(rows.patches) == group
    counts = [bar.get_height() for bar in rows.patches]
    assert sum(counts) == pytest.approx(ratio * 64), "of a mean union"
    assert np.dot(counts, range(1, group + 1)) == pytest.approx(64 * group), "each lane once"
    assert tokens.images[0].get_array().shape[0] == group
    ring = next(line for line in curve.get_lines() if line.get_markersize() == 9)
    assert ring.get_ydata()[0] == pytest.approx(ratio) and not overlaps(figure)


@pytest.mark.parametrize("given, told", [({"group": 0}, "group=0"), ({"group": 17}, "group=17"),
                                         ({"law": "none such"}, "none such")])  # fmt: skip
def test_what_cannot_be_played_is_refused(given, told):
    with pytest.raises(ValueError, match=told):
        figures.union_play(**{"law": "walk", "group": 4} | given)


def test_a_second_play_draws_no_selection_again(monkeypatch):
    figures.union_play("topics", 2, tokens=32, context=32, topk=16)
    monkeypatch.setattr(selections, "selection", lambda *a, **k: pytest.fail("drawn again"))
    figures.union_play("topics", 3, tokens=32, context=32, topk=16)


def test_the_playground_draws_again_at_every_choice():
    """... into the value of a widget: an Output widget may hang what executes a notebook."""
    ipywidgets = pytest.importorskip("ipywidgets")
    box = figures.union_playground(["walk", "topics"], "topics")
    controls, shown = box.children
    law, group, context = controls.children
    seen = [shown.value]
    assert seen[0].startswith("<svg") and (law.value, group.value) == ("topics", 4)
    for control, value in ((law, "walk"), (group, 9), (context, 0)):
        control.value = value
        seen.append(shown.value)
    assert len(set(seen)) == len(seen)
    context.value = 512
    group.value = 4
    law.value = "topics"
    assert shown.value == seen[0], "equal choices, equal pictures"
    assert not isinstance(shown, ipywidgets.Output)
