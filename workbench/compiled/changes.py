"""What differs between two tables of compiled kernels, number by number."""

import json
from collections import Counter

PLACE = ("op", "variant", "arch", "workload", "kernel")
NUMBERS = ("registers", "stack_bytes", "spill_store_bytes", "spill_load_bytes", "shared_bytes",
           "warps", "blocks_per_sm", "launches")  # fmt: skip
COUNTS = {"instructions": "{}", "looped": "{} in loops", "hot_loop": "{} in the hot loop"}


def changes(old: list[dict], new: list[dict]) -> list[dict]:
    """A row for each kernel that differs: `changes` is {what: [before, after]}.

    A kernel that one side lacks has {"kernel": [None, its name]}, or the reverse.
    """
    before, after = _placed(old), _placed(new)
    rows = []
    for place in [*after, *(p for p in before if p not in after)]:
        one, two = before.get(place), after.get(place)
        found = _between(one, two) if one and two else _alone(one, two)
        if found:
            told = {name: (two or one).get(name) for name in PLACE}
            rows.append(told | {"changes": found})
    return rows


def _placed(rows: list[dict]) -> dict[tuple, dict]:
    """Rows by what they are rows of; several kernels of one name are numbered."""
    seen: Counter = Counter()
    found = {}
    for row in rows:
        place = tuple(json.dumps(row.get(name)) for name in PLACE)
        found[(*place, seen[place])] = row
        seen[place] += 1
    return found


def _alone(one: dict | None, two: dict | None) -> dict:
    return {"kernel": [_outcome(row) if row else None for row in (one, two)]}


def _outcome(row: dict) -> str:
    return row.get("kernel") or row["why"]


def _between(one: dict, two: dict) -> dict:
    found = {}
    for name in NUMBERS:
        if one.get(name) != two.get(name):
            found[name] = [one.get(name), two.get(name)]
    for name, told in COUNTS.items():
        ours, theirs = two.get(name) or {}, one.get(name) or {}
        if ours == theirs:
            continue
        total = [sum(theirs.values()), sum(ours.values())]
        if total[0] != total[1]:
            found[told.format("all")] = total
        for opcode in sorted(set(ours) | set(theirs)):
            pair = [theirs.get(opcode, 0), ours.get(opcode, 0)]
            if pair[0] != pair[1]:
                found[told.format(opcode)] = pair
    if one["why"] != two["why"]:
        found["verdict"] = [one["why"] or "fits", two["why"] or "fits"]
    return found
