"""What each variant buys over the one that it changes: as its counts predict, and as measured."""

import numpy as np
import pandas as pd

from ..ops import OPS


def rungs(rows: pd.DataFrame, op: str) -> pd.DataFrame:
    """One row an arm of one workload, slowest first: `rows` are its pooled records, timed.

    over: the variant that it changes, where that was timed, too, at its fastest. predicted: how
    many times the floor of that one's counts is this one's. measured: the same of their times.
    floor_share: of this one's time, and limit, what sets the floor. nan where either is unknown.
    """
    rows = rows.drop_duplicates("arm").sort_values("median_us", ascending=False)
    variants = OPS[op].variants if op in OPS else {}
    return pd.DataFrame([_rung(row, rows, variants) for _, row in rows.iterrows()])


def _rung(row: pd.Series, rows: pd.DataFrame, variants: dict) -> dict:
    variant = variants.get(row["variant"])
    found = {"arm": row["arm"], "over": "", "idea": variant.idea if variant else "",
             "median_us": row["median_us"], "predicted": np.nan, "measured": np.nan,
             "floor_share": row.get("roofline_share", np.nan),
             "limit": row.get("roofline_limit", "") or ""}  # fmt: skip
    before = rows[rows["variant"] == variant.step_from] if variant else rows[:0]
    if len(before):
        fastest = before.sort_values("median_us").iloc[0]
        found |= {"over": variant.step_from, "measured": fastest["median_us"] / row["median_us"]}
        if "roofline_us" in rows:
            found |= {"predicted": fastest["roofline_us"] / row["roofline_us"]}
    return found
