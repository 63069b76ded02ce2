"""Which variant a call should run, and why: what serves it, and what was measured.

Each variant says once what it serves (`Variant.requires`, `archs`, `capturable`); a table says how
long each took where it was timed, and may hold constants of the chunk model for where none was. A
plan names the fastest that serves, and holds the reason in words, so that a choice can be recorded:
what is modelled is called so. Nothing here touches a GPU.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from . import atomic
from .fields import choose
from .models.dispatch_estimates import Estimate, estimates, refusal
from .models.dispatch_modelled import COUNT, modelled
from .models.dispatch_table import AXIS, Table, fields_of, identity, label, read, text
from .op import Config, Op, Workload

LOCK_S = 60.0  # no table takes long to write: a lock held longer is a stuck process's
REMEMBERED = 4096  # plans; a server sees as many shapes as it captured graphs
DEFAULT = "the default workload"


@dataclass(frozen=True)
class Plan:
    op: str
    variant: str
    config: Config  # of the variant, with what it leaves to the workload filled in
    why: str  # one line


def update(path: Path | str, change: Callable[[Table | None], Table]) -> Table:
    """Put what `change` makes of the table at `path`, or of None, in its place; return that.

    Read and written, whole or not at all, under one hold of the lock `path`.lock: of several who
    add to a table each one's part stays. Raises OSError, and ValueError where something else than a
    table stands there, which is left as it is.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(path.name + ".lock"), timeout=LOCK_S):
        made = change(_standing(path))
        atomic.write(path, text(made))
    return made


def save(table: Table, path: Path | str) -> None:
    """Write a table in place of the one at `path`, if any. Raises as `update` does."""
    update(path, lambda _: table)


def _standing(path: Path) -> Table | None:
    try:
        return read(path) if path.exists() else None
    except ValueError as error:
        raise ValueError(f"{path} is no dispatch table: {error}") from None


def plan(
    op: Op, w: Workload, table: Table | None = None, *, variant: str | None = None,
    config: Config = None, arch: str | None = None,
) -> Plan:  # fmt: skip
    """`planned`, remembered: the second time the same is asked, the first answer is given."""
    # the variants themselves are asked by: one that was replaced must not answer
    return _remembered(op, tuple(op.variants.values()), w, table, variant, config, arch)


@lru_cache(maxsize=REMEMBERED)
def _remembered(op, variants, w, table, variant, config, arch) -> Plan:
    return planned(op, w, table, variant=variant, config=config, arch=arch)


def planned(
    op: Op, w: Workload, table: Table | None = None, *, variant: str | None = None,
    config: Config = None, arch: str | None = None,
) -> Plan:  # fmt: skip
    """The variant and config that `w` should run.

    Of what serves `w`: the fastest that `table` has at its place, or between two token counts of
    it. Where nothing that serves was measured there: the fastest by the constants of the chunk
    model that `table` holds, split as that picks; without any, the first in the op's order of
    preference. A time that was measured wins over every one that is modelled.
    `variant` and `config` are asked for instead. `arch`, such as "sm_90": by default the table's;
    without one only what is written for any GPU serves. Raises ValueError with the reasons where
    nothing serves, or what is asked for does not.
    """
    if table is not None and table.op != op.name:
        raise ValueError(f"a table of {table.op}, not of {op.name}")
    arch = arch or (table.arch if table is not None else None) or None
    if variant is not None:
        return _asked(op, w, table, variant, config, arch)
    if config is not None:
        raise ValueError(f"config={config} without a variant")
    found = estimates(op, w, table, arch)
    if any(e.reason is None for e in found):
        return _fastest(op, w, found)
    guessed = modelled(op.variants.values(), w, table, arch)
    if any(e.reason is None for e in guessed):
        told = _fastest(op, w, guessed)
        passed = f"; {_unmeasured(op, w, table, found)}" if found else ""
        return replace(told, why=told.why + passed)
    reasons = {}
    for name in dict.fromkeys((*op.preference, *op.variants)):
        v = op.variants[name]
        reasons[name] = refusal(v, w, v.config, arch)
        if reasons[name] is None:
            why = f"{_unmeasured(op, w, table, found)}: {name} comes first of what serves"
            if name not in op.preference:
                why += ", in the order of their files: no preference names it"
            return Plan(op.name, name, v.settled(w, v.config), why)
    told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise ValueError(f"no variant of {op.name} serves {place(op, w) or DEFAULT}: {told}")


def _asked(op, w, table, name: str, config: Config, arch: str | None) -> Plan:
    """The plan of a variant that was asked for: with the config asked for, or its fastest one."""
    v = op.variants[choose(f"variant of {op.name}", name, op.variants)]
    if config is not None and type(config) is not type(v.config):
        raise ValueError(f"config={config} is none of {name}")
    if config is None:
        own = [e for e in estimates(op, w, table, arch, named=True) if e.variant == name]
        if any(e.reason is None for e in own):
            told = _fastest(op, w, own)
            return Plan(op.name, name, told.config, f"asked for; {told.why}")
        for e in modelled([v], w, table, arch, named=True):
            if e.reason is None:
                return Plan(op.name, name, e.config, f"asked for; {_modelled(e)}")
    given = v.config if config is None else config
    if reason := refusal(v, w, given, arch, named=True):
        raise ValueError(f"{name} does not serve {place(op, w) or DEFAULT}: {reason}")
    return Plan(op.name, name, v.settled(w, given), "asked for")


def _fastest(op: Op, w: Workload, found: list[Estimate]) -> Plan:
    """The plan of the fastest of these estimates that serves, at least one of which does."""
    serving = [e for e in found if e.reason is None]
    best, faster = serving[0], found[0]
    why = [f"{_measured(best, w)}, {_next(serving)}" if best.at else
           f"{_modelled(best)}; {_next(serving)}"]  # fmt: skip
    if faster.reason is not None:
        why.append(f"{faster.variant} does not serve: {faster.reason}")
    if flags := {flag.partition(":")[0]: None for arm in best.sides for flag in arm.flags}:
        why.append(f"flagged: {', '.join(flags)}")
    return Plan(op.name, best.variant, best.config, "; ".join(why))


def _measured(e: Estimate, w: Workload) -> str:
    if AXIS not in vars(w):
        return f"measured: {e.us:.1f} us"
    tokens, unit = vars(w)[AXIS], "token" if e.at == (1,) else "tokens"
    if len(e.at) == 1 and e.at[0] < tokens:
        return f"measured up to {e.at[0]} {unit}: {e.us:.1f} us in proportion"
    if len(e.at) == 1 and e.at[0] > tokens:
        return f"measured from {e.at[0]} {unit} on: {e.us:.1f} us there"
    return f"measured at {' and '.join(map(str, e.at))} {unit}: {e.us:.1f} us"


def _modelled(e: Estimate) -> str:
    return f"modelled, not measured: {e.us:.1f} us with {COUNT}={vars(e.config)[COUNT]}"


def _next(serving: list[Estimate]) -> str:
    """How far the second fastest is behind; with an interval where both sides agree who leads."""
    if len(serving) == 1:
        return f"nothing else that serves {'was measured' if serving[0].at else 'has constants'}"
    best, other = serving[:2]
    name, ratio = other.variant, other.us / best.us
    if name == best.variant:
        name = label(name, fields_of(other.config), fields_of(best.config))
    told = f"next {name} {ratio:.2f}x"
    leads = best.at and all(arm.ratio is None for arm in best.sides)  # a guess has no interval
    if best.at != other.at or not leads or any(arm.low is None for arm in other.sides):
        return told
    low, high = min(a.low for a in other.sides), max(a.high for a in other.sides)
    # of the blocks that both have: where it leaves out the ratio of the times, it is not of that
    if not round(low, 2) <= round(ratio, 2) <= round(high, 2):
        return told
    return f"{told} ({low:.2f}-{high:.2f})"


def _unmeasured(op: Op, w: Workload, table: Table | None, found: list[Estimate]) -> str:
    """Why no time decides, in words; and what the most similar place has that was measured."""
    if table is None:
        return "no measurement of this place, for there is no table"
    if found:
        first = found[0]
        return f"nothing that was measured at this place serves ({first.variant}: {first.reason})"
    if not table.entries:
        return "no measurement of this place: the table is empty"
    asked, default = identity(w).items(), identity(op.Workload())
    differ = [{k: v for k, v in (default | dict(e.workload)).items()
               if k != AXIS and (k, v) not in asked} for e in table.entries]  # fmt: skip
    near = " ".join(f"{k}={v}" for k, v in min(differ, key=len).items())
    return f"no measurement of this place (the nearest has {near or 'no tokens'})"


def place(op: Op, w: Workload | Mapping[str, Any]) -> str:
    """A place in words: the fields of a workload that are not the op's default; maybe none."""
    fields, default = w if isinstance(w, Mapping) else identity(w), identity(op.Workload())
    return " ".join(f"{k}={v}" for k, v in fields.items() if v != default.get(k))
