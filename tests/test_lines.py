"""A line along an axis: its points, what is equal on all of them, and what is no axis."""

from dataclasses import replace

import pytest
from test_comparison import pair, table

from workbench.comparison import column_of, lines


def along(field: str, values, ratio_of, workload=None, statistics=None, op="page_split") -> list:
    """Two blocks on each value of a workload field; `statistics` gives those of a value."""
    out = []
    for x in values:
        more = {"op": op, "workload": {**(workload or {}), field: x}}
        if statistics:
            more["statistics"] = statistics(x)
        out += pair([ratio_of(x), ratio_of(x) * 1.001], **more)
    return out


FALLING = {64: 1.2, 128: 1.1, 256: 0.9, 512: 0.8}
PAGES = list(FALLING)


def test_a_line_goes_through_the_points_in_ascending_order():
    rows = along("pages", PAGES[::-1], FALLING.get)
    (line,) = lines(table(*rows), "per_token", "union", "pages")
    assert line.found.x == (64, 128, 256, 512) and line.place == "" and line.axis == "pages"
    assert [c.place for c in line.cases] == [f"pages={n}" for n in PAGES]
    (crossing,) = line.found.crossings
    assert crossing.between == (128, 256) and crossing.direction == "B"


def test_other_fields_are_lines_of_their_own():
    rows = [m for batch in (1, 64) for m in along("pages", PAGES, FALLING.get, {"batch": batch})]
    found = list(lines(table(*rows), "per_token", "union", "pages"))
    assert sorted(line.place for line in found) == ["batch=1", "batch=64"]
    assert all(len(line.cases) == 4 for line in found)


def test_an_axis_may_be_named_by_its_column():
    rows = table(*along("pages", PAGES, FALLING.get))
    one, other = (next(lines(rows, "per_token", "union", x)) for x in ("pages", "workload.pages"))
    assert one.found == other.found and one.place == other.place == ""


def test_a_record_from_before_the_axis_stands_at_its_default():
    rows = along("pages", [64, 256], FALLING.get)
    rows += [replace(m, workload={}) for m in pair([0.5, 0.51], op="page_split")]
    (line,) = lines(table(*rows), "per_token", "union", "pages")
    assert line.found.x == (64, 256, 1024)


def touched(share: float) -> dict:
    return {"touched_share": round(share * 100) / 100, "touched_pages": round(share * 100)}


def test_a_statistic_is_an_axis_with_the_field_that_moves_it_taken_out():
    shares = [0.1, 0.5, 0.9]
    rows = along("share", shares, lambda x: 0.6 + x / 2, {"touch": "share"}, touched)
    (line,) = lines(table(*rows), "per_token", "union", "touched_share")
    assert line.found.x == (0.1, 0.5, 0.9) and line.place == "touch=share"


def test_along_a_statistic_all_else_is_equal_too():
    """Two pools are two lines, where the share alone moves the statistic."""
    rows = []
    for pages in (64, 256):
        rows += along("share", [0.1, 0.9], lambda x: 0.6 + x / 2, {"pages": pages}, touched)
    found = list(lines(table(*rows), "per_token", "union", "touched_share"))
    assert sorted(line.place for line in found) == ["pages=256", "pages=64"]
    assert [line.found.x for line in found] == [(0.1, 0.9)] * 2


def test_a_statistic_that_several_fields_move_is_no_axis():
    rows = [m for pages in (64, 256) for m in
            along("share", [0.1, 0.9], lambda x: 0.6 + x / 2, {"pages": pages},
                  lambda x, n=pages: {"touched_pages": round(x * n)})]  # fmt: skip
    with pytest.raises(ValueError, match="touched_pages changes with pages and with share"):
        list(lines(table(*rows), "per_token", "union", "touched_pages"))


def test_the_noise_and_the_flags_of_a_line_are_those_of_its_points():
    rows = along("pages", PAGES, FALLING.get)
    rows[0] = replace(rows[0], twin_us=[3 * us for us in rows[0].samples_us])
    rows[-1] = replace(rows[-1], flags=["busy: 1"])
    (line,) = lines(table(*rows), "per_token", "union", "pages")
    assert line.noise == max(c.noise for c in line.cases) > 1 and line.flags == ("busy: 1",)
    assert line.found.at_ends == ("AMBIGUOUS", "FASTER"), "noise is of the point that has it"
    (crossing,) = line.found.crossings
    assert crossing.between == (128, 256)


@pytest.mark.parametrize("axis, told", [
    ("pagse", r"unknown axis 'pagse'; did you mean 'pages'"),
    ("touch", r"workload.touch='all' of pages=64 touch=all is no place on an axis"),
    ("batch", r"no line along batch has two points.*the 2 cases"),
])  # fmt: skip
def test_what_is_no_axis_is_told(axis, told):
    rows = along("pages", [64, 128], FALLING.get, {"touch": "all", "batch": 8})
    with pytest.raises(ValueError, match=told):
        list(lines(table(*rows), "per_token", "union", axis))


def test_a_place_that_no_record_knows_is_told():
    rows = along("rows", [None, 4096], lambda x: 0.9, op="sparse_prefill")
    with pytest.raises(ValueError, match=r"workload.rows=None of the default is no place"):
        list(lines(table(*rows), "per_token", "union", "rows"))


def test_columns_of_an_axis():
    rows = table(*along("pages", [64], FALLING.get, statistics=lambda x: touched(0.5)))
    assert column_of(rows, "pages") == column_of(rows, "workload.pages") == "workload.pages"
    assert column_of(rows, "touched_share") == "statistics.touched_share"
