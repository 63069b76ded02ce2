"""What a study compares: variants with configs, and the workloads it runs them on."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from .fields import choose, expanded, pairs, replaced
from .op import Op, Variant, Workload


@dataclass(frozen=True)
class Arm:
    """A variant with the config fields that a caller asks to differ from its default."""

    variant: Variant
    changes: tuple[tuple[str, object], ...] = ()

    @property
    def label(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.changes)
        return self.variant.name + (f" {said}" if said else "")

    @property
    def asked(self) -> dict:
        config = self.variant.config
        return (asdict(config) if config is not None else {}) | dict(self.changes)

    def asked_on(self, w: Workload) -> dict:
        """`asked`, with what it leaves to workload `w` filled in."""
        v = self.variant
        return {} if v.config is None else asdict(v.settled(w, replace(v.config, **self.asked)))


def arms_of(op: Op, names: Iterable[str] = (), changes: dict | None = None) -> list[Arm]:
    """The arms of a study: variants by name (all where none is named), times the config changes.

    A value of `changes` may be a list or "2,4": one arm each. A variant whose config lacks a field
    runs without it. Raises ValueError on an unknown variant, a field that none has, a bad value.
    """
    names = list(names)
    kind = f"variant of {op.name}"
    chosen = [op.variants[choose(kind, name, op.variants)] for name in names or op.variants]
    fields_of = {v.name: [f.name for f in fields(v.config)] if v.config else [] for v in chosen}
    known = sorted({f for found in fields_of.values() for f in found})
    for name in changes or {}:
        choose("config field", name, known)
    arms = []
    for v in chosen:
        own = {k: x for k, x in (changes or {}).items() if k in fields_of[v.name]}
        for values in expanded(own):
            typed = asdict(replaced(v.config, values, f"config of {v.name}")) if values else {}
            arms.append(Arm(v, tuple((k, typed[k]) for k in values)))
    # "union" and "union group=4" are one arm where 4 is the default
    return list({(a.variant.name, *map(str, a.asked.items())): a for a in reversed(arms)}.values())[
        ::-1
    ]


def arm_named(op: Op, text: str) -> Arm:
    """The arm that `text` names: a variant, and config fields behind it: "union group=4".

    Commas may stand between the fields, as in the labels of tables. Raises ValueError.
    """
    name, *said = text.replace(",", " ").split() or [""]
    changes = pairs(said)
    v = op.variants[choose(f"variant of {op.name}", name, op.variants)]
    known = [f.name for f in fields(v.config)] if v.config else []
    for field in changes:
        choose(f"config field of {name}", field, known)
    (arm,) = arms_of(op, [name], changes)
    return arm


def workloads_of(op: Op, suite: str | None = None, changes: dict | None = None) -> list[Workload]:
    """The workloads of a suite, or the op's default one, with fields changed.

    A value of `changes` may be a list or "2048,4096": one workload each, repeats left out. Raises
    ValueError on an unknown suite or field, and on a value that the workload refuses.
    """
    base = (op.Workload(),) if suite is None else op.suites[choose("suite", suite, op.suites)]
    grid = expanded(changes or {})
    return list(dict.fromkeys(replaced(w, values, "workload") for values in grid for w in base))
