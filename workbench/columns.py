"""The columns of a table of records: how fields are spread, and every column that is derived.

A field comes as (values, codes): row i holds `values[codes[i]]`, so that what many records share is
spread once. Both readers of records, Python's and DuckDB's, end here.
"""

import math

SPREAD = {"config", "config_asked", "workload", "verdict", "cost", "statistics", "ledger",
          "environment"}  # fmt: skip
WHOLE = {"profile", "state", "flags", "samples_us", "twin_us"}  # one column: names of kernels as
# columns would be hundreds
LISTS = {"flags", "samples_us", "twin_us"}
INSTEAD = {"block": 0, "study": "", "at": ""}  # of what is absent; other numbers are nan then

BLOCK = 1 << 14  # rows that are sorted at once: what bounds memory


def of_rows(rows: list[dict], names: tuple[str, ...]) -> tuple[dict, dict]:
    """What `table` is made of, from records as they are: their fields `names`, and `file`."""
    import numpy as np

    each = np.arange(len(rows))
    if rows and "file" in rows[0]:
        names = (*names, "file")
    found = {name: ([row.get(name) for row in rows], each) for name in names}
    return found, of_samples(*(found[name][0] for name in ("samples_us", "twin_us")))


def of_samples(taken: list, twin: list) -> dict:
    """The derived columns of records with these samples: lists or arrays; None is none."""
    import numpy as np

    kept = {name: np.full(len(taken), np.nan)
            for name in ("low_us", "median_us", "high_us", "halves", "twin_median_us")}  # fmt: skip
    for rows, block in _blocks(taken):
        ordered, half = np.sort(block, axis=1), block.shape[1] // 2
        for name, q in (("low_us", 5 / 100), ("median_us", 0.5), ("high_us", 95 / 100)):
            kept[name][rows] = _quantile(ordered, q)
        if half > 1:
            early, late = (_quantile(np.sort(x, axis=1), 0.5)
                           for x in (block[:, :half], block[:, half:]))  # fmt: skip
            kept["halves"][rows] = late / np.where(early, early, np.nan)
    for rows, block in _blocks(twin):
        kept["twin_median_us"][rows] = _quantile(np.sort(block, axis=1), 0.5)
    return {"samples": np.array([len(s) for s in taken], dtype=int)} | kept


def _blocks(lists: list):
    """(rows, their samples as an array [row, sample]) of lists of one length, some at once."""
    import numpy as np

    sizes = np.array([0 if s is None else len(s) for s in lists])
    for size in np.unique(sizes[sizes > 0]):
        alike = np.flatnonzero(sizes == size)
        for first in range(0, len(alike), BLOCK):
            rows = alike[first : first + BLOCK]
            yield rows, np.array([lists[i] for i in rows], dtype=float)


def _quantile(ordered, q: float):
    """The quantile of each row, between two samples linear, to the last bit as numpy's."""
    import numpy as np

    at = q * (ordered.shape[1] - 1)
    low, share = int(at), at - int(at)
    a, b = ordered[:, low], ordered[:, min(low + 1, ordered.shape[1] - 1)]
    with np.errstate(invalid="ignore"):  # of infinities
        return a + (b - a) * share if share < 0.5 else b - (b - a) * (1 - share)


def table(found: dict[str, tuple], derived: dict):
    """Records as a pandas DataFrame, one row each.

    Nested fields become columns such as `workload.tokens`; `profile` and `state` stay dicts.
    `derived` adds samples (their count), median_us, low_us and high_us (5th and 95th percentile),
    halves (median of the second half of the samples over that of the first; nan below 4) and
    twin_median_us; added here are profile.span_us, profile.launches (of a call), gb_per_s (least
    bytes over median) and arm (the variant and those of its config fields that differ within the
    table).
    """
    import numpy as np
    import pandas as pd

    parts = {
        name: _spread(name, values).take(codes).reset_index(drop=True)
        for name, (values, codes) in found.items()
    }
    added = pd.DataFrame(derived)
    added["gb_per_s"] = parts["cost"].get("cost.bytes", np.nan) / added["median_us"] / 1e3
    arms = arm_labels(parts["op"]["op"], parts["variant"]["variant"], *found["config_asked"])
    return pd.concat([*parts.values(), added.assign(arm=arms)], axis=1)


def _spread(name: str, values: list):
    """The values of a field as the columns that it has in a table."""
    import pandas as pd

    if name in SPREAD:
        return pd.DataFrame([_flat(name, value or {}) for value in values])
    if name not in WHOLE:
        return pd.DataFrame({name: [INSTEAD.get(name, math.nan) if v is None else v
                                    for v in values]})  # fmt: skip
    if name in LISTS:
        values = [value or [] for value in values]
    columns = {name: pd.Series(values, dtype=object)}
    if name == "profile":
        spans = [(value or {}).get("span_us") for value in values]
        columns["profile.span_us"] = pd.Series(spans, dtype=float)
        columns["profile.launches"] = pd.Series(map(_launches, values), dtype=float)
    return pd.DataFrame(columns)


def _launches(profile: dict | None) -> float:
    """Kernels, copies and memsets of one profiled call; nan without a profile."""
    kernels = (profile or {}).get("kernels")
    return math.nan if kernels is None else sum(count for count, _ in kernels.values())


def _flat(name: str, value: dict) -> dict:
    """Fields of `value` as `name.field`, and theirs where they have some."""
    found = {}
    for key, v in value.items():
        if isinstance(v, dict):
            found |= _flat(f"{name}.{key}", v)
        else:
            found[f"{name}.{key}"] = v
    return found


def arm_labels(ops, variants, asked: list[dict], codes) -> list[str]:
    """Name a record by its variant and the config fields in which that variant's records differ."""
    keys = list(zip(ops, variants, codes.tolist(), strict=True))
    values: dict[tuple, set] = {}
    for op, variant, code in dict.fromkeys(keys):
        for name, value in asked[code].items():
            values.setdefault((op, variant, name), set()).add(str(value))
    names = {}
    for op, variant, code in dict.fromkeys(keys):
        differs = [
            f"{name}={value}"
            for name, value in asked[code].items()
            if len(values[op, variant, name]) > 1
        ]
        names[op, variant, code] = variant + (f" {', '.join(differs)}" if differs else "")
    return [names[key] for key in keys]


def column(table, name: str, absent: float = math.nan):
    """A column of a table, or `absent` in every row where no record has it."""
    import pandas as pd

    return table[name] if name in table else pd.Series(absent, table.index, dtype=float)
