"""Records read together: what only then shows of them, and what a study's blocks say as one.

A record holds what was seen; everything here is derived on reading, so that a ceiling measured
later, or a sharper rule, changes no file.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from . import record
from .columns import column
from .flags import TURNOVER, merged
from .models.ceilings import Ceilings, ceilings
from .models.ledger import LEDGERS
from .models.ratio import noise
from .models.roofline import floor
from .ops import OPS
from .reader import load as read

WARM = 1.05  # times the copy ceiling; no memory gives more, so part of the bytes came from a cache
DRIFT = 0.02  # between the medians of the first and the second half of the samples
SPREAD = 0.10  # standard deviation over the median, at which pyperf calls samples unstable too
NORMAL = 3.29  # standard deviations from the 5th to the 95th percentile
SETUP = ["environment.device", "clock", "cache"]
CASE = [*SETUP, "op", "place"]  # arms of one case may be compared
BUILD = [f"environment.{name}" for name in ("source", "torch", "triton", "driver")]
CEILINGS = "ceilings.jsonl"  # beside the other records of a device


def load(*paths: Path | str) -> pd.DataFrame:
    """All records of files and folders, with the columns of `derived`. Raises RecordError."""
    return derived(read(*paths))


def derived(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with place, l2_ratio, copy_share, roofline_*, and the flags that show on reading.

    place: the workload fields that are not the op's default, as text. l2_ratio: distinct bytes
    that a call, or all sets of a rotation, touch at least, over the size of the L2; resident: they
    fit and are not evicted. copy_share: least bytes a second over the measured copy ceiling of the
    device. roofline_us, roofline_limit and roofline_share: the least time that the counted work
    allows at the measured ceilings, what sets it, and its share of the time. All are missing where
    no ceiling of the device is known.
    """
    table = table.copy()
    table["place"] = places(table)
    l2 = column(table, "environment.l2_bytes").replace(0, np.nan)
    touched = column(table, "reuse_bytes").fillna(column(table, "cost.bytes"))
    table["l2_ratio"] = touched / l2
    # what fits the L2 and is not evicted need not come from memory
    table["resident"] = table["cache"].ne("cold") & (table["l2_ratio"] < 1)
    copy = {d: ceilings_of(table, d).copy_gb_per_s for d in table["environment.device"].unique()}
    ceiling = table["environment.device"].map(copy).astype(float)
    table["copy_share"] = table["gb_per_s"] / ceiling
    table["flags"] = [
        [*kept, *seen, *(["failed: in another block of its study"] if failed else [])]
        for kept, seen, failed in zip(
            table["flags"], _seen(table, ceiling), _failed(table), strict=True)
    ]  # fmt: skip
    return table.assign(**_floors(table))


def _failed(table: pd.DataFrame) -> pd.Series:
    """Which times are of an arm that failed on the same case in another block of its study."""
    failed = table["verdict.status"].isin(["incorrect", "error", "timeout"])
    if not failed.any():
        return failed
    keys = [table[k] for k in (*CASE, "arm", "study")]
    somewhere = failed.groupby(keys, dropna=False).transform("any")
    return somewhere & table["median_us"].notna() & table["study"].ne("")


def _floors(table: pd.DataFrame) -> dict[str, pd.Series]:
    """roofline_us, roofline_limit, roofline_share: the least time that the work allows."""
    us = pd.Series(np.nan, table.index)
    limit = pd.Series("", table.index, dtype=object)
    names = [c for c in table.columns if c.startswith("ledger.")]
    known = [c for c in (*names, "cost.bytes", "cost.flops", "workload.dtype") if c in table]
    for device, part in table.groupby("environment.device"):
        measured = ceilings_of(table, device)
        if measured == Ceilings(device) or not known:
            continue
        for _, rows in part.groupby(["op", *known, "resident"], dropna=False, sort=False):
            counts = rows[known].iloc[0].dropna()
            ledger = {c.removeprefix("ledger."): n for c, n in counts.items() if c in names}
            flops = "useful_fp8_flops" if counts.get("workload.dtype") == "fp8" else "useful_flops"
            cost = {"least_bytes": counts.get("cost.bytes"), flops: counts.get("cost.flops")}
            # a variant's own counts are its floor; those of the question alone say too little of it
            counted = ledger or ({} if rows["op"].iloc[0] in LEDGERS else cost)
            if rows["resident"].iloc[0]:
                counted.pop("least_bytes", None)
            if found := floor(counted, measured):
                us[rows.index], limit[rows.index] = found.us, found.limit
    share = us / table["median_us"]
    return {"roofline_us": us, "roofline_limit": limit, "roofline_share": share}


def ceilings_of(table: pd.DataFrame, device: str) -> Ceilings:
    """The ceilings of `device`: each from the table, or else from the records that are shipped."""
    found, shipped = ceilings(table, device), shipped_ceilings(device)
    known = {name: value for name, value in vars(found).items() if value is not None}
    return replace(shipped, **known)


def shipped_ceilings(device: str) -> Ceilings:
    """The ceilings that the records of this checkout give for `device`; all None without any."""
    shipped = record.CHECKOUT / "traces/records" / record.slug(device) / CEILINGS
    return ceilings(read(shipped), device) if shipped.is_file() else Ceilings(device)


def _seen(table: pd.DataFrame, ceiling: pd.Series) -> list[list[str]]:
    cold = table["cache"].eq("cold") & (table["copy_share"] > WARM)
    drift = (column(table, "halves") - 1).abs() > DRIFT
    spread = (table["high_us"] - table["low_us"]) / NORMAL / table["median_us"]
    near = table["cache"].eq("rotating") & (table["l2_ratio"] < TURNOVER)
    columns = zip(cold, near, drift, spread > SPREAD, table["gb_per_s"], ceiling,
                  table["l2_ratio"], column(table, "halves"), spread, strict=True)  # fmt: skip
    out = []
    for is_warm, is_near, drifts, spreads, rate, limit, turned, halves, width in columns:
        seen = []
        if is_near:
            seen.append(f"warm when rotating: all sets touch {turned:.1f} times the L2, "
                        f"{TURNOVER:g} would turn it over")  # fmt: skip
        if is_warm:
            seen.append(f"warm when cold: {rate:,.0f} GB/s over distinct bytes, a copy reaches "
                        f"{limit:,.0f}")  # fmt: skip
        if drifts:
            seen.append(f"unstable: the second half of the samples is {halves - 1:+.1%} off")
        if spreads:
            seen.append(f"unstable: a standard deviation of {width:.0%} of the median")
        out.append(seen)
    return out


def places(table: pd.DataFrame) -> pd.Series:
    """What is special of each record's workload: its fields that are not the op's default.

    Records that were written before a field existed agree with those that hold its default.
    """
    out = pd.Series("", table.index, dtype=object)
    for op, part in table.groupby("op"):
        default = vars(OPS[op].Workload()) if op in OPS else {}
        names = [c for c in part.columns if c.startswith("workload.")]
        names = [c for c in names if not part[c].isna().all()]
        if not names:
            continue
        fields = [f"workload.{name}" for name in default]  # one order in every table
        names.sort(key=lambda c: fields.index(c) if c in fields else len(fields))
        for _, rows in part.groupby(names, dropna=False, sort=False):
            first = rows.iloc[0]
            said = [
                f"{name}={number(first[c])}"
                for c, name in ((c, c.removeprefix("workload.")) for c in names)
                if not _missing(first[c]) and first[c] != default.get(name)
            ]
            out[rows.index] = " ".join(said)
    return out


def _missing(value) -> bool:
    return value is None or value != value


def number(value) -> str:
    """A workload field as it was given: pandas makes a float of a column with gaps."""
    if _missing(value):
        return "none"
    if isinstance(value, float | np.floating):
        return str(int(value)) if float(value).is_integer() else f"{value:g}"
    return str(value)


def told_apart(places: list[str], op: str) -> tuple[str, list[str]]:
    """(what all places of an op share, what tells each from the others), as text.

    A field that varies is told of every place, at its default too.
    """
    found = [dict(word.split("=", 1) for word in place.split()) for place in places]
    default = vars(OPS[op].Workload()) if op in OPS else {}
    names = list(dict.fromkeys(name for words in found for name in words))
    values = {n: [words.get(n, number(default.get(n))) for words in found] for n in names}
    varying = [n for n in names if len(set(values[n])) > 1]
    shared = " ".join(f"{n}={values[n][0]}" for n in names if n not in varying)
    return shared, [" ".join(f"{n}={values[n][i]}" for n in varying) for i in range(len(found))]


def newest(table: pd.DataFrame, keys: list[str] | None = None) -> pd.DataFrame:
    """The records of the newest build of each case and arm: other code is another kernel.

    A build is the source of this package with what compiled and ran it. Studies of one build add
    their blocks to each other. `keys` are what is one thing, by default the case and the arm.
    """
    keys = keys or [*CASE, "arm"]
    build = table.groupby([c for c in BUILD if c in table], dropna=False).ngroup()
    dated = table[keys].assign(at=table["at"], build=build).sort_values("at", kind="stable")
    last = dated.groupby(keys, dropna=False)["build"].last()
    mine = last.reindex(pd.MultiIndex.from_frame(table[keys])).to_numpy()
    return table[build.to_numpy() == mine]


def pooled(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each case and arm: the blocks of its newest build as one.

    median_us is the median over blocks of their medians, low_us and high_us the medians of their
    percentiles, flags the union of theirs, blocks how many there are, noise the absolute log ratio
    that the case's A/A pair reaches over all blocks. The other columns are the first block's.
    """
    keys = [*CASE, "arm"]
    table = newest(table)
    some = table.groupby(keys, dropna=False)["median_us"].transform("count") > 0
    table = table[table["median_us"].notna() | ~some]  # a failure cannot stand for what has times
    groups = table.groupby(keys, sort=False, dropna=False)
    out = groups.head(1).copy()
    index = pd.MultiIndex.from_frame(out[keys])
    for name in ("median_us", "low_us", "high_us", "gb_per_s"):
        out[name] = groups[name].median().reindex(index).to_numpy()
    out["roofline_share"] = out["roofline_us"] / out["median_us"]
    out["blocks"] = groups["median_us"].count().reindex(index).to_numpy()
    flags = groups["flags"].agg(lambda lists: list(merged(lists)))
    out["flags"] = flags.reindex(index).to_list()
    twins = table[table["twin_median_us"].notna()].groupby(CASE, dropna=False)
    known = {case: noise(t["median_us"], t["twin_median_us"]) for case, t in twins}
    cases = out[CASE].itertuples(index=False, name=None)
    out["noise"] = [known.get(case, np.nan) for case in cases]
    return out
