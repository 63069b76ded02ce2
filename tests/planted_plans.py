"""An op without kernels, and dispatch tables of it with times as a test wants them."""

from dataclasses import dataclass

from workbench.dispatch import Plan, planned
from workbench.models.dispatch_table import Arm, Entry, Table, identity
from workbench.op import Op


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 32
    heads: int = 16
    seed: int = 0


@dataclass(frozen=True)
class Config:
    block: int = 16


def few_heads(w, config) -> str | None:
    return f"heads={w.heads} exceeds {config.block} columns" if w.heads > config.block else None


def an_op(preference=("hopper", "narrow")) -> Op:
    op = Op("planted", Workload, None, {}, {}, *[None] * 6, preference=preference)
    declared = {"eager": {}, "host": {"capturable": False}, "wide": {}, "tall": {},
                "narrow": {"requires": few_heads}, "hopper": {"archs": ("sm_90",)}}  # fmt: skip
    for name, properties in declared.items():
        run = lambda x, config: None  # noqa: E731
        run.__name__, run.__doc__ = name, "An idea."
        op.variant(config=None if name == "eager" else Config(), **properties)(run)
    return op


OP = an_op()


def entry(times: dict, intervals: dict | None = None, **fields) -> Entry:
    """A place whose arms took `times`: "wide" or "wide 32" for a block of 32."""
    arms, fastest = [], min(times.values())
    for name, us in sorted(times.items(), key=lambda item: (item[1], item[0])):
        variant, _, block = name.partition(" ")
        low, high = (intervals or {}).get(name, (None, None))
        config = {"block": int(block)} if block else {}
        more = (us / fastest, low, high, "SLOWER" if low else "AMBIGUOUS") if arms else ()
        arms.append(Arm(variant, config, us, 5, (), *more))
    return Entry(identity(Workload(**fields)), tuple(arms))


def a_table(*entries: Entry, arch="sm_90") -> Table:
    return Table("planted", "a GPU", arch, "3", "2", "graph_hot", entries)


def along(**curves: dict) -> Table:
    """A table of curves: an arm's time by tokens."""
    tokens = sorted({t for curve in curves.values() for t in curve})
    return a_table(*(entry({name: curve[t] for name, curve in curves.items() if t in curve},
                           tokens=t) for t in tokens))  # fmt: skip


def told(table=None, op=OP, variant=None, config=None, arch=None, **fields) -> Plan:
    return planned(op, Workload(**fields), table, variant=variant, config=config, arch=arch)
