"""Did answers get worse? Two runs over the same items, compared item by item.

Only items on which the runs disagree say anything about a difference: 14 against 15 of 1,319 is
no regression although one raw count is lower (sglang#32320: p = 1.0).
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
_OUTCOMES = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Paired:
    """Counts of items by who was right, and what they say of accuracy B - accuracy A."""

    both: int
    only_a: int
    only_b: int
    neither: int
    n: int
    p: float  # exact two-sided McNemar
    difference: float  # accuracy B - accuracy A
    low: float  # 95 % interval of the difference
    high: float


def paired(outcomes_a: Mapping[str, bool], outcomes_b: Mapping[str, bool]) -> Paired:
    """Compare two runs (item -> was it right). Raises ValueError on items without a partner."""
    for side, here, there in (("B", outcomes_b, outcomes_a), ("A", outcomes_a, outcomes_b)):
        missing = [item for item in there if item not in here]
        if missing:
            names = ", ".join(map(str, missing[:3]))
            raise ValueError(f"{side} lacks {len(missing)} items of the other run: {names}")
    if not outcomes_a:
        raise ValueError("neither run has items")
    counts = {(a, b): 0 for a in (True, False) for b in (True, False)}
    for item, a in outcomes_a.items():
        pair = (a, outcomes_b[item])
        if pair not in counts:
            raise ValueError(f"{item}: {pair!r} are not both right or wrong")
        counts[pair] += 1
    return from_counts(*counts.values())


def from_counts(both: int, only_a: int, only_b: int, neither: int) -> Paired:
    """The comparison of a table of counts: McNemar's exact test and the difference's interval."""
    n, discordant = both + only_a + only_b + neither, only_a + only_b
    if n == 0 or min(both, only_a, only_b, neither) < 0:
        raise ValueError(f"{both}/{only_a}/{only_b}/{neither} is no table of counts")
    p = min(1.0, 2 * float(stats.binom.cdf(min(only_a, only_b), discordant, 0.5)))
    low, high = _interval(only_a, only_b, n)
    return Paired(both, only_a, only_b, neither, n, p, (only_b - only_a) / n, low, high)


def _interval(only_a: int, only_b: int, n: int) -> tuple[float, float]:
    """The paired bootstrap's percentile interval, without drawing: its distribution is known.

    Items drawn anew differ by +1, -1 or 0 with the frequencies seen; the sum of n such steps has
    an exact distribution, whose 2.5 % and 97.5 % quantiles are whole numbers of items. For 15
    against 14 of 1,319 these are -12 and +10, the report's -0.910 and +0.758 points (sglang#32320).
    It lets the number of disagreements vary too. Clopper-Pearson limits of only_b / disagreements
    hold it fixed: where B alone gains 5 items on average, they cover the truth in 55 % of studies,
    these in 95 % (88 % in the worst case, 3.5 items).
    """
    tail = (1 - CONFIDENCE) / 2
    if only_a + only_b == 0:  # Clopper and Pearson (1934) for what was never seen in n items
        unseen = 1 - tail ** (1 / n)
        return -unseen, unseen
    step = np.zeros(2 * n + 2)  # index i is a difference of i items, counted from the end below 0
    step[0], step[1], step[-1] = 1 - (only_a + only_b) / n, only_b / n, only_a / n
    total = np.fft.irfft(np.fft.rfft(step) ** n, len(step))
    below = np.cumsum(np.roll(total, n))  # index i: P(difference <= i - n)
    low, high = np.searchsorted(below, [tail, 1 - tail])
    return (int(low) - n) / n, (int(high) - n) / n


def read_outcomes(path: str | Path) -> dict[str, bool]:
    """Read item -> right or wrong from CSV or JSON lines.

    CSV: the columns `item` and `correct`, or the first two. JSON lines: {"item": ..., "correct":
    ...}. An outcome is true, false, 1 or 0. Raises ValueError with file, line and value.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from None
    rows = _json_rows(path, text) if text.lstrip().startswith("{") else _csv_rows(path, text)
    found: dict[str, bool] = {}
    for line, item, outcome in rows:
        if str(outcome).strip().lower() not in _OUTCOMES:
            raise ValueError(f"{path}:{line}: {outcome!r} is none of {', '.join(_OUTCOMES)}")
        if item in found:
            raise ValueError(f"{path}:{line}: item {item!r} is given twice")
        found[item] = _OUTCOMES[str(outcome).strip().lower()]
    if not found:
        raise ValueError(f"{path} holds no items")
    return found


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, str, object]]:
    for line, record in enumerate(text.split("\n"), 1):
        if not record.strip():
            continue
        try:
            entry = json.loads(record)
            item, outcome = entry["item"], entry["correct"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ValueError(f"{path}:{line}: {record!r:.80} has no item and correct") from None
        if not isinstance(item, str | int):
            raise ValueError(f"{path}:{line}: item {item!r:.80} is neither text nor a number")
        yield line, str(item), outcome


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, str, object]]:
    reader, item, correct = csv.reader(io.StringIO(text, newline="")), 0, 1
    for row in _told(path, reader):
        if not row:
            continue
        if reader.line_num == 1 and {"item", "correct"} <= set(row):
            item, correct = row.index("item"), row.index("correct")
        elif len(row) <= max(item, correct):
            raise ValueError(f"{path}:{reader.line_num}: {row!r:.80} has no item and correct")
        elif reader.line_num > 1 or row[correct].strip().lower() in _OUTCOMES:
            yield reader.line_num, row[item], row[correct]  # a first line may be other names


def _told(path: Path, reader) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: {error}") from None
