"""A dispatch table out of records: each place that was timed, with every arm and its ratio."""

import json
import math
from dataclasses import asdict

import numpy as np
import pandas as pd

from ..fields import replaced
from ..flags import merged
from ..op import Op
from .dispatch_table import AXIS, MOST, Arm, Entry, Table, identity
from .grouping import noise_of, ratio_of
from .ratio import verdict

SETUP = {"device": "environment.device", "triton": "environment.triton", "clock": "clock"}

OF_ARMS = {"variant", "arm", "study", "block", "median_us", "twin_median_us", "flags", "at"}


def table(rows: pd.DataFrame, op: Op) -> Table:
    """The table of `op` out of records of one device, Triton version and clock.

    `rows` are of `evidence.newest(evidence.derived(...))`. An arm that failed in another block of
    its study is left out, and so is a place with fields that the op's workload does not have.
    Raises ValueError on records of several setups, and where no place of the op is timed.
    """
    rows = rows[(rows["op"] == op.name) & rows["median_us"].notna()]
    rows = rows[~rows["flags"].map(lambda flags: any(f.startswith("failed") for f in flags))]
    if not len(rows):
        raise ValueError(f"no time of {op.name} in these records")
    setup = {name: sorted(rows[column].unique()) for name, column in SETUP.items()}
    if several := [name for name, values in setup.items() if len(values) > 1]:
        raise ValueError(f"records of several of {', '.join(several)}: "
                         f"{', '.join(setup[several[0]])}")  # fmt: skip
    narrow = rows[[c for c in rows if c in OF_ARMS or c.startswith("config.")]]  # copies are fast
    entries = [Entry(json.loads(place), _arms(part, op))
               for place, part in narrow.groupby(places(rows, op), sort=False)]  # fmt: skip
    if not entries:
        first = _given(rows.iloc[0][[c for c in rows if c.startswith("workload.")]])
        told = " ".join(f"{name}={value}" for name, value in first.items())
        raise ValueError(f"no time in these records is of a workload that {op.name} has: "
                         f"{told or 'they name no field':.200}")  # fmt: skip
    capability = str(rows["environment.capability"].iloc[0] or "")
    return Table(
        op=op.name, **{name: values[0] for name, values in setup.items()},
        arch=f"sm_{capability.replace('.', '')}" if capability else "",
        torch=", ".join(sorted(rows["environment.torch"].unique())),
        entries=tuple(sorted(entries, key=_order)),
    )  # fmt: skip


def places(rows: pd.DataFrame, op: Op) -> pd.Series:
    """The identity of each row's workload as JSON; missing where this op has no such workload."""
    found = pd.Series(None, rows.index, dtype=object)
    names = [c for c in rows if c.startswith("workload.") and not rows[c].isna().all()]
    groups = rows.groupby(names, dropna=False, sort=False) if names else [((), rows)]
    for _, same in groups:
        given = _given(same.iloc[0][names])
        try:
            w = replaced(op.Workload(), given, "workload")
        except ValueError:
            continue
        found[same.index] = json.dumps(identity(w))
    return found


def _order(entry: Entry) -> tuple:
    """Places that differ in their tokens alone stand together, in ascending order."""
    fields = {k: v for k, v in entry.workload.items() if k != AXIS}
    return *((v is not None, 0 if v is None else v) for v in fields.values()), \
        entry.workload.get(AXIS, 0)  # fmt: skip


def _arms(rows: pd.DataFrame, op: Op) -> tuple[Arm, ...]:
    """The arms of one place, the fastest first."""
    turns = rows.pivot_table(index=["study", "block"], columns="arm", values="median_us")
    times = sorted((us, arm) for arm, us in _times(turns).items())
    known = noise_of(rows)
    floor = 0.0 if math.isnan(known) else known
    of = dict(iter(rows.sort_values("at", kind="stable").groupby("arm", sort=False)))
    found = []
    for us, arm in times:
        own = of[arm]
        last = own.iloc[-1]
        told = {"variant": last["variant"], "config": config_of(last, op), "us": float(us),
                "blocks": int(turns[arm].count()), "flags": merged(own["flags"])}  # fmt: skip
        if found:
            r = ratio_of(turns, arm, times[0][1])
            # no bound: two blocks that disagree leave an interval of many powers of ten
            low, high = (r.low, r.high) if r.high < MOST else (None, None)
            told |= {"ratio": r.value, "low": low, "high": high,
                     "verdict": verdict(r, noise=floor)}  # fmt: skip
        found.append(Arm(**told))
    return tuple(found)


def _times(turns: pd.DataFrame) -> dict[str, float]:
    """Microseconds of each arm of `turns` (blocks by arms), all over the same blocks.

    A block may be slow or fast as a whole: the mean of an arm over its own blocks says little
    beside that of another over others. So the arm that is in most is the measure of the rest.
    """
    own, counts = np.exp(np.log(turns).mean()), turns.count()
    anchor = min(turns, key=lambda arm: (-counts[arm], own[arm], arm))
    return {arm: own[anchor] * (1.0 if arm == anchor else ratio_of(turns, arm, anchor).value)
            for arm in turns}  # fmt: skip


def config_of(row: pd.Series, op: Op) -> dict:
    """The config that ran, its numbers as its variant has them: a column with gaps is of floats."""
    given = _given(row[[c for c in row.index if c.startswith("config.")]])
    v = op.variants.get(row["variant"])
    try:
        typed = asdict(replaced(v.config, given, "config")) if given else {}
    except (AttributeError, ValueError):  # a variant, or a config, of another version or module
        typed = {}
    return {name: typed.get(name, value) for name, value in given.items()}


def _given(fields: pd.Series) -> dict:
    """The fields, such as `workload.tokens`, that a record has, with Python's own numbers."""
    return {c.partition(".")[2]: getattr(value, "item", lambda value=value: value)()
            for c, value in fields.items() if not pd.isna(value)}  # fmt: skip
