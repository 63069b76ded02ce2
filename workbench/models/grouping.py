"""How many tokens should share a gather: what the records say, and what counted work would say.

A group of G neighbours gathers the union of its rows once: fewer rows are gathered, and a tile is
filled by G times the query rows, of which some belong to other tokens than those that selected a
row. Which G is best follows from the overlap, the heads and the cache; here it is the group of the
fastest arm at a place. The model's is that of the arm whose floor (`roofline`, from the counts of
`ledger`) is the least. All ratios are the time of something over the time of the fastest arm.
"""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from ..flags import merged
from ..ops import OPS
from ..selections import parsed
from .ratio import Ratio, noise, ratio, verdict

OP = "sparse_prefill"
SETUP = ["environment.device", "clock", "cache"]
SHAPE = ["heads", "tokens", "topk", "context", "law", "churn"]
COLUMNS = [*SETUP, "place", *SHAPE, "group", "arm", "us", "next_group", "next_arm", "next_ratio",
           "next_low", "next_high", "verdict", "blocks", "gain", "gain_low", "gain_high",
           "model_group", "model_arm", "regret", "flags"]  # fmt: skip


def group_of(variant: str, config: dict, w) -> int | None:
    """Tokens of workload `w` that share a gather in a variant; None where it states no tile."""
    known = OPS[OP].variants.get(variant)
    if known is None:
        return None
    given = vars(known.config) if known.config is not None else {}
    tile = known.tile(w, SimpleNamespace(**given | config))
    return tile.group if tile else None


def placed(table: pd.DataFrame) -> pd.DataFrame:
    """The times of sparse prefill, with their group, and each workload spelled in one way.

    `table` is one of `evidence.derived`. group: of `group_of`; records without one are left out.
    place: the cache as rows before the tokens wherever that says the same, no churn that the law
    does not read. Added, too: the columns SHAPE, where context is S - T, churn nan but of a walk.
    """
    table = table[(table["op"] == OP) & table["median_us"].notna()]
    fields = [c for c in table.columns if c.startswith("workload.")]
    configs = [c for c in table.columns if c.startswith("config.")]
    told, groups, seen = [], [], {}
    for variant, *values in table[["variant", *fields, *configs]].itertuples(index=False):
        asked = _given(fields, values[: len(fields)])
        key = tuple(asked.items())
        if key not in seen:
            w = OPS[OP].Workload(**{k: v for k, v in asked.items() if k in _defaults()})
            seen[key] = w, _shape(w)
        w, shape = seen[key]
        told.append(shape)
        groups.append(group_of(variant, _given(configs, values[len(fields) :]), w))
    found = pd.DataFrame(told, index=table.index, columns=["place", *SHAPE])
    table = table.assign(**found, group=pd.array(groups, dtype="Int64"))
    return table[table["group"].notna()]


def best_group(table: pd.DataFrame) -> pd.DataFrame:
    """The best group of every place at which arms of two group sizes or more were timed.

    `table` is one of `placed`, of one build of each arm: `evidence.newest(placed(table))`.
    arm, us: the fastest arm, of ties the smaller group, and the geometric mean of its blocks.
    next_*: the fastest arm of any other group, with the 95 % interval of its ratio (nan where a
    side has one block) and the word of `ratio.verdict`: SLOWER settles the best group. gain: the
    fastest arm of one token over the fastest of a larger group, below 1 where sharing loses.
    model_*: the arm of the least floor, of ties the smaller group and then the faster arm; absent
    unless the work of the fastest arm and of another group was counted. regret: its time over the
    fastest. flags: of the arms that are told.
    """
    keys = [*SETUP, "place"]
    found = []
    for key, rows in table.groupby(keys, sort=False, dropna=False):
        if rows["group"].nunique() > 1:
            shape = rows.iloc[0][SHAPE].to_dict()
            found.append(dict(zip(keys, key, strict=True)) | shape | _best(rows))
    out = pd.DataFrame(found, columns=COLUMNS)
    groups = dict.fromkeys(("group", "next_group", "model_group"), "Int64")
    return out.astype(groups).sort_values([*SETUP, *SHAPE], ignore_index=True)


def _defaults() -> dict:
    return vars(OPS[OP].Workload())


def _given(names: list[str], values: list) -> dict:
    """Fields that a record holds, as they were given: pandas makes floats of a column with gaps."""
    given = {}
    for name, v in zip(names, values, strict=True):
        if v is not None and v == v:
            whole = isinstance(v, float | np.floating) and float(v).is_integer()
            given[name.partition(".")[2]] = int(v) if whole else v
    return given


def _shape(w) -> tuple:
    """(place, *SHAPE) of a workload."""
    context = w.cache_rows - w.tokens
    if context >= 0 and context % w.requests == 0:
        w = replace(w, rows=None, context=context // w.requests)
    name, parameters = parsed(w.law)
    walks = name == "walk"
    if walks and w.law != "walk":
        w = replace(w, law="walk", churn=parameters.churn)
    elif not walks:
        w = replace(w, churn=_defaults()["churn"])
    place = " ".join(f"{k}={v}" for k, v in vars(w).items() if v != _defaults()[k])
    churn = float(w.churn) if walks else math.nan
    return place, w.heads, w.tokens, w.topk, context, w.law, churn


def _best(rows: pd.DataFrame) -> dict:
    """What `best_group` says of one place."""
    turns = rows.pivot_table(index=["study", "block"], columns="arm", values="median_us")
    by_arm = rows.groupby("arm")
    arms = pd.DataFrame({"group": by_arm["group"].first().astype(int),
                         "us": np.exp(np.log(turns).mean()),
                         "floor": by_arm["roofline_us"].median()})  # fmt: skip
    arms = arms.sort_values(["us", "group"], kind="stable")
    best = arms.iloc[0]
    other = arms[arms["group"] != best["group"]].iloc[0]
    over = ratio_of(turns, other.name, best.name)
    known = noise_of(rows)
    found = {"group": best["group"], "arm": best.name, "us": best["us"],
             "next_group": other["group"], "next_arm": other.name, "next_ratio": over.value,
             "next_low": over.low, "next_high": over.high, "blocks": over.blocks,
             "verdict": verdict(over, noise=0.0 if math.isnan(known) else known)}  # fmt: skip
    single, shared = arms[arms["group"] == 1], arms[arms["group"] > 1]
    told = {best.name, other.name}
    if len(single):
        gain = ratio_of(turns, single.index[0], shared.index[0])
        found |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
        told |= {single.index[0], shared.index[0]}
    counted = arms[arms["floor"].notna()].sort_values(["floor", "group", "us"], kind="stable")
    if best.name in counted.index and counted["group"].nunique() > 1:
        choice = counted.iloc[0]
        found |= {"model_group": choice["group"], "model_arm": choice.name,
                  "regret": choice["us"] / best["us"]}  # fmt: skip
        told.add(choice.name)
    return found | {"flags": merged(rows.loc[rows["arm"].isin(told), "flags"])}


def noise_of(rows: pd.DataFrame) -> float:
    """The A/A noise of one place as an absolute log ratio; nan where no pair was timed."""
    twins = rows[rows["twin_median_us"].notna()]
    return noise(twins["median_us"], twins["twin_median_us"]) if len(twins) else math.nan


def ratio_of(turns: pd.DataFrame, a: str, b: str) -> Ratio:
    """Time of arm a over that of b: by the blocks in which both took turns, or else by all."""
    of_a, of_b = turns[a].to_numpy(), turns[b].to_numpy()
    has_a, has_b = ~np.isnan(of_a), ~np.isnan(of_b)
    if (both := has_a & has_b).sum() > 1:
        return ratio(of_b[both], of_a[both], paired=True)
    return ratio(of_b[has_b], of_a[has_a], paired=False)
