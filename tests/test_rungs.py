"""The ladder as a table: gains over the variant that was changed, predicted and measured."""

import numpy as np
import pandas as pd

from workbench.models.rungs import rungs
from workbench.ops import OPS


def rows(*arms):
    columns = ["variant", "arm", "median_us", "roofline_us", "roofline_share", "roofline_limit"]
    return pd.DataFrame([(v, a, us, floor, floor / us, "l2_gather") for v, a, us, floor in arms],
                        columns=columns)  # fmt: skip


LADDER = rows(
    ("per_token", "per_token", 3000.0, 1500.0),
    ("union", "union group=2", 2300.0, 800.0),
    ("union", "union group=4", 2000.0, 500.0),
    ("halves", "halves", 800.0, 400.0),
)


def test_a_gain_is_over_the_variant_that_is_changed_at_its_fastest():
    found = rungs(LADDER, "sparse_prefill").set_index("arm")
    assert list(found.index) == ["per_token", "union group=2", "union group=4", "halves"]
    four = found.loc["union group=4"]
    assert (four["over"], four["measured"], four["predicted"]) == ("per_token", 1.5, 3.0)
    assert four["floor_share"] == 0.25 and four["limit"] == "l2_gather"
    assert four["idea"] == OPS["sparse_prefill"].variants["union"].idea


def test_what_was_not_timed_is_no_gain():
    found = rungs(LADDER, "sparse_prefill").set_index("arm")
    for arm in ("per_token", "halves"):  # eager and specialised are not there
        assert found.loc[arm, "over"] == "" and np.isnan(found.loc[arm, "measured"])
    assert rungs(LADDER[:1].drop(columns="roofline_us"), "sparse_prefill")["predicted"].isna().all()


def test_an_op_of_a_users_own_has_times_alone():
    found = rungs(LADDER.assign(variant="mine"), "mine")
    assert list(found["median_us"]) == sorted(LADDER["median_us"], reverse=True)
    assert (found["idea"] == "").all() and found["measured"].isna().all()
