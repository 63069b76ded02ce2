"""Where no place was measured, a plan follows the chunk model's constants, and says that."""

import json
from dataclasses import replace

import pytest
from planted_splits import SMS, call

from workbench.dispatch import plan, planned
from workbench.models.dispatch_modelled import call_of, modelled
from workbench.models.dispatch_table import Arm, Entry, Model, Table, identity, parsed, text
from workbench.models.makespan import Constants, Fit, picked, predicted_s
from workbench.op import Tile
from workbench.ops import OPS

OP = OPS["sparse_decode"]
W = OP.Workload(tokens=8, heads=64)
SLOW, FAST = Constants(1e-12, 9e-11, 5e-6), Constants(6e-13, 5e-11, 3e-6)
FITS = {"split_k inline_656": Fit(SLOW, 0.02), "split_k_wgmma inline_656": Fit(FAST, 0.02)}


def a_table(*entries: Entry, fits=FITS, arch="sm_90") -> Table:
    return Table(OP.name, "a GPU", arch, "3", "2", "graph_rotating", entries, Model(SMS, fits))


def timed(w, us=900.0, variant="single_pass", config=None) -> Entry:
    config = vars(OP.variants[variant].config) if config is None else config
    return Entry(identity(w), (Arm(variant, config, us, 5, ()),))


def expected(variant: str, constants: Constants, w=W) -> tuple[int, float]:
    """(chunks_per_block, microseconds) by the model itself."""
    of = call_of(OP.variants[variant], w)
    count = picked(of, constants, SMS)
    return count, predicted_s(of, count, constants, SMS) * 1e6


def test_the_fastest_by_the_model_is_named_with_its_split_and_called_modelled():
    made = planned(OP, W, a_table())
    (count, us), (_, next_us) = expected("split_k_wgmma", FAST), expected("split_k", SLOW)
    assert made.variant == "split_k_wgmma" and made.config.chunks_per_block == count > 0
    assert made.why == (f"modelled, not measured: {us:.1f} us with chunks_per_block={count}; next "
                        f"split_k {next_us / us:.2f}x")  # fmt: skip
    turned = {name: Fit(c, 0.02) for name, c in zip(FITS, (FAST, SLOW), strict=True)}
    assert planned(OP, replace(W, heads=16), a_table(fits=turned)).variant == "split_k"
    alone = planned(OP, W, a_table(fits={"split_k inline_656": FITS["split_k inline_656"]}))
    assert alone.why.endswith("; nothing else that serves has constants")


def test_a_measured_time_wins_however_much_slower_it_is():
    for here in (W, replace(W, tokens=2)):  # at the place, or at another token count of it
        made = planned(OP, W, a_table(timed(here)))
        assert made.variant == "single_pass" and made.why.startswith("measured")
        assert "modelled" not in made.why
    elsewhere = planned(OP, W, a_table(timed(replace(W, heads=128))))
    assert elsewhere.variant == "split_k_wgmma" and elsewhere.why.startswith("modelled, not meas")


def test_what_was_measured_and_does_not_serve_is_told_behind_the_guess():
    made = planned(OP, W, a_table(timed(W, 1.0, "eager", {})))
    assert made.why.startswith("modelled, not measured: ")
    assert made.why.endswith("; nothing that was measured at this place serves (eager: a "
                             "reference)")  # fmt: skip


def test_the_faster_guess_that_does_not_serve_is_passed_over_and_told():
    made = planned(OP, W, a_table(), arch="sm_120")
    assert made.variant == "split_k"
    assert made.why.endswith("split_k_wgmma does not serve: written for sm_90, this is sm_120")


FOREIGN = {
    "another layout": {"split_k footer_584": Fit(FAST, 0.02)},
    "a fit that is not good": {"split_k inline_656": Fit(FAST, 0.26)},
    "a variant without chunks": {"single_pass inline_656": Fit(FAST, 0.02)},
    "a variant that is not here": {"split_j inline_656": Fit(FAST, 0.02)},
    "none": {},
}


@pytest.mark.parametrize("fits", FOREIGN.values(), ids=FOREIGN)
def test_without_constants_that_apply_the_order_of_preference_stays(fits):
    made = planned(OP, W, a_table(fits=fits))
    assert made == planned(OP, W, replace(a_table(), model=None))
    assert "comes first of what serves" in made.why


def test_a_call_of_no_tokens_is_not_guessed():
    assert "comes first of what serves" in planned(OP, replace(W, tokens=0), a_table()).why


def test_constants_are_of_the_tile_that_they_were_fitted_with():
    """A variant whose tile follows the heads was fitted at 16: of 64 it is another tile."""
    wide = replace(OP.variants["split_k_wgmma"],
                   tile=lambda w, config: Tile(16 if w.heads <= 16 else 64, 1, 64))  # fmt: skip
    assert modelled([wide], W, a_table(), "sm_90") == []
    assert len(modelled([wide], replace(W, heads=8), a_table(), "sm_90")) == 1


def test_a_variant_that_is_asked_for_is_split_as_the_model_picks():
    count, us = expected("split_k", SLOW)
    made = planned(OP, W, a_table(), variant="split_k")
    assert made.config.chunks_per_block == count
    assert made.why == (f"asked for; modelled, not measured: {us:.1f} us with "
                        f"chunks_per_block={count}")  # fmt: skip
    given = replace(made.config, chunks_per_block=count + 1)
    forced = planned(OP, W, a_table(), variant="split_k", config=given)
    assert (forced.config, forced.why) == (given, "asked for")
    known = planned(OP, W, a_table(timed(W, 900.0, "split_k")), variant="split_k")
    assert known.why.startswith("asked for; measured at 8 tokens: 900.0 us")
    assert planned(OP, W, a_table(), variant="single_pass").why == "asked for"


def test_a_modelled_plan_is_made_once(monkeypatch):
    from workbench import dispatch

    table, asked = a_table(), []
    monkeypatch.setattr(dispatch, "modelled", lambda *a, **k: asked.append(a) or modelled(*a, **k))
    first = plan(OP, W, table)
    assert plan(OP, W, table) is first and len(asked) == 1
    plan(OP, W, a_table(timed(W)))
    assert len(asked) == 1, "a measured place asks no model"


def test_the_command_prints_it_in_words_and_as_json(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(text(a_table()))
    words = ("plan", "--table", path, "-w", "tokens=8", "-w", "heads=64")
    (told,) = json.loads(call(*words, "--json").stdout)
    count, us = expected("split_k_wgmma", FAST)
    assert (told["variant"], told["config"]["chunks_per_block"]) == ("split_k_wgmma", count)
    assert told["why"].startswith(f"modelled, not measured: {us:.1f} us with chunks_per_block=")
    shown = call(*words).stdout
    assert f"split_k_wgmma chunks_per_block={count}" in shown and "modelled, not measured" in shown


@pytest.mark.parametrize("model, said", [
    ({"multiprocessors": 0}, "a model of 0 multiprocessors"),
    ({"start_s": 0.0}, "split_k inline_656 has "), ({"program_s_per_byte": -1e-11}, "=-1e-11"),
    ({"merge_s": -1.0}, "merge_s=-1.0"),
])  # fmt: skip
def test_a_model_that_gives_no_time_makes_its_table_unreadable(model, said):
    told = json.loads(text(a_table()))
    fit = told["model"]["layouts"]["split_k inline_656"]["constants"]
    for name, value in model.items():
        (fit if name in fit else told["model"])[name] = value
    with pytest.raises(ValueError, match=said):
        parsed(told)
