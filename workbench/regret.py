"""What choosing by a table, or by a fixed rule, loses over a mix of calls against the fastest arm.

The oracle of a call is the fastest that was measured at exactly its place, of what serves it. A
choice costs what was measured of it there, and nothing is guessed: calls, and choices, of which
there is no measurement are named and counted. A rule that chooses a family of kernels is given the
fastest of that family, so its loss is the least that it can be.
"""

import csv
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .dispatch import DEFAULT, place, planned
from .fields import convert, once, replaced
from .models.dispatch_estimates import Estimate, estimates
from .models.dispatch_table import AXIS, Table, identity
from .op import Op, Workload

WEIGHT = "weight"
LEAST, MOST = 1e-12, 1e12  # of a weight: sums of their products with times stay numbers
DECODE_MOST_TOKENS = 64  # SGLang's SM120_DECODE_MAX_TOKENS
DENSE_MOST_CONTEXT = 2048  # SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD, by default


class Call(NamedTuple):
    """A row of a mix."""

    workload: Workload
    weight: float  # how many of these are called


@dataclass(frozen=True)
class Rule:
    """A choice between families of variants (`family_of`) that looks at no measurement."""

    name: str
    picks: Callable[[Workload], tuple[str, ...]]  # the families that it may take
    families: tuple[str, ...]  # without a measured arm of each the rule says nothing


@dataclass(frozen=True)
class Choice:
    """What was chosen for a call, and what the oracle takes for it."""

    workload: Workload
    weight: float
    variant: str | None  # None: a rule's family is not measured here
    us: float | None  # None: the choice is not measured here
    oracle: str
    oracle_us: float
    why: str

    @property
    def lost(self) -> float | None:
        """Share of the oracle's time that is lost; None where the choice is not measured."""
        return None if self.us is None else self.us / self.oracle_us - 1


@dataclass(frozen=True)
class Line:
    """A way to choose, over all calls of a mix that are measured."""

    name: str
    choices: tuple[Choice, ...]  # none: the rule says nothing, for lack of a family

    @property
    def known(self) -> list[Choice]:
        return [c for c in self.choices if c.us is not None]

    @property
    def us(self) -> float | None:
        """Weighted microseconds a call; None where no choice is measured."""
        return _mean((c.weight, c.us) for c in self.known)

    @property
    def lost(self) -> float | None:
        """Share of the oracle's time over the same calls."""
        best = _mean((c.weight, c.oracle_us) for c in self.known)
        return None if best is None else self.us / best - 1


@dataclass(frozen=True)
class Regret:
    oracle_us: float  # weighted, a call
    lines: tuple[Line, ...]  # the table's first
    unmeasured: tuple[Call, ...]  # of whose places no record has a time


def regret(
    op: Op, table: Table, measured: Table, mix: Iterable[Call], held_out: bool = False
) -> Regret:  # fmt: skip
    """What choosing by `table` loses on `mix`, by the times of `measured`.

    `held_out`: each choice is made without the table's entry of that place, as for a call between
    two that were measured. Raises ValueError where no call of the mix is measured.
    """
    found, unmeasured = [], []
    for call in folded(mix):
        exact = [e for e in estimates(op, call.workload, _only(measured, call.workload),
                                      table.arch or None) if e.reason is None]  # fmt: skip
        if exact:
            found.append((call, exact))
        else:
            unmeasured.append(call)
    if not found:
        told = [place(op, call.workload) or DEFAULT for call in unmeasured[:3]]
        raise ValueError(f"no record measures a call of the mix: {'; '.join(told) or 'it is empty'}"
                         f"{', ...' if len(unmeasured) > 3 else ''}")  # fmt: skip
    own = tuple(_chosen(op, table, call, exact, held_out) for call, exact in found)
    name = "this table, each place held out" if held_out else "this table"
    ruled = [Line(rule.name, _ruled(rule, found)) for rule in RULES.get(op.name, ())]
    return Regret(_mean((c.weight, c.oracle_us) for c in own), (Line(name, own), *ruled),
                  tuple(unmeasured))  # fmt: skip


def folded(mix: Iterable[Call]) -> list[Call]:
    """The different calls of a mix, each with the weights of its equals added up."""
    weights: dict[Workload, float] = {}
    for w, weight in mix:
        weights[w] = weights.get(w, 0.0) + weight
    return [Call(w, weight) for w, weight in weights.items()]


def _mean(pairs: Iterable[tuple[float, float]]) -> float | None:
    pairs = list(pairs)
    total = sum(weight for weight, _ in pairs)
    return sum(weight * us for weight, us in pairs) / total if pairs else None


def _only(table: Table, w: Workload, keep: bool = True) -> Table:
    """`table` with nothing but the entry of this very place, or with all but that."""
    here = identity(w)
    return replace(table, entries=tuple(
        e for e in table.entries if (_whole(e.workload, w) == here) == keep))  # fmt: skip


def _whole(fields: Any, w: Workload) -> dict:
    return identity(type(w)()) | dict(fields)


def _chosen(op: Op, table: Table, call: Call, exact: list[Estimate], held_out: bool) -> Choice:
    w = call.workload
    made = planned(op, w, _only(table, w, keep=False) if held_out else table)
    times = [e.us for e in exact if (e.variant, e.config) == (made.variant, made.config)]
    return _choice(call, exact, made.variant, times[0] if times else None, made.why)


def _choice(call: Call, exact: list[Estimate], variant, us, why: str) -> Choice:
    return Choice(call.workload, call.weight, variant, us, exact[0].variant, exact[0].us, why)


def _ruled(rule: Rule, found: list[tuple[Call, list[Estimate]]]) -> tuple[Choice, ...]:
    """What a rule chooses for each call; nothing where a family that it needs is not measured."""
    seen = {family_of(e.variant) for _, exact in found for e in exact}
    if not set(rule.families) <= seen:
        return ()
    choices = []
    for call, exact in found:
        families = rule.picks(call.workload)
        best = next((e for e in exact if family_of(e.variant) in families), None)
        choices.append(_choice(call, exact, best and best.variant, best and best.us,
                               f"the fastest of {' and '.join(families)}"))  # fmt: skip
    return tuple(choices)


def family_of(variant: str) -> str:
    """ "prefill" or "dense" of a variant whose name begins so, "decode" of any other."""
    head = variant.partition("_")[0]
    return head if head in ("prefill", "dense") else "decode"


def _by_tokens(w: Workload) -> tuple[str, ...]:
    return ("decode",) if vars(w)[AXIS] <= DECODE_MOST_TOKENS else ("prefill",)


def _by_context(w: Workload) -> tuple[str, ...]:
    """By the rows of a request: the requests of a step share the pool evenly."""
    context = w.rows // max(1, w.tokens // w.tokens_per_request)
    return ("dense",) if context <= DENSE_MOST_CONTEXT else ("decode", "prefill")


RULES = {
    "sparse_decode": (
        Rule(f"tokens <= {DECODE_MOST_TOKENS}: decode, else prefill", _by_tokens,
             ("decode", "prefill")),
        Rule(f"context <= {DENSE_MOST_CONTEXT}: dense, else sparse", _by_context, ("dense",)),
    ),
}  # fmt: skip


def read_mix(path: Path | str, base: Workload) -> list[Call]:
    """The calls of a file, row by row: CSV with a header, or a JSON list of objects.

    A row gives fields of the workload, of which the others are those of `base`, and its weight.
    Raises ValueError with the row that is wrong, OSError where there is no such file.
    """
    path, calls = Path(path), []
    for number, row in enumerate(_rows(path), 1):
        try:
            calls.append(_call(row, base))
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from None
    if not calls:
        raise ValueError(f"{path} holds no calls")
    return calls


def _call(row: dict, base: Workload) -> Call:
    given = {k: v for k, v in row.items() if v not in (None, "")}  # a cell may be left empty
    if None in given:  # where the csv module puts cells beyond the header's
        raise ValueError(f"{given[None][0]} has no column")
    weight = given.pop(WEIGHT, None)
    if not isinstance(weight, str | int | float):
        seen = f"it is {row[WEIGHT]!r:.40}" if WEIGHT in row else \
            f"the columns are {', '.join(map(repr, row)) or 'none'}"  # fmt: skip
        raise ValueError(f"no {WEIGHT}: {seen}")
    if not LEAST < (calls := convert(WEIGHT, weight, float)) < MOST:
        raise ValueError(f"{WEIGHT}={weight!r} is no positive number between {LEAST} and {MOST:g}")
    return Call(replaced(base, given, "workload"), calls)


def _rows(path: Path) -> list[dict]:
    try:
        if path.suffix == ".csv":
            return _csv_rows(path)
        rows = json.loads(path.read_bytes(), object_pairs_hook=once)
    except (ValueError, RecursionError, csv.Error) as error:
        what = "no CSV" if path.suffix == ".csv" else "neither .csv nor JSON"
        raise ValueError(f"{path} is {what}: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path} is no list of objects")
    return rows


def _csv_rows(path: Path) -> list[dict]:
    with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets write the mark
        rows = csv.DictReader(file)
        rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
        once([(name, None) for name in rows.fieldnames if name])
        return list(rows)
