"""The laws by name, and how a law is written: `boundary`, `boundary:core=0.9:pool=3`, or a preset.

One text names the law and its parameters, so that a workload needs no field for each of them.
`captured` is no law that can be drawn from its name alone: it needs a file.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..fields import choose, pairs, replaced
from ._drift import in_range
from .boundary import Boundary, boundary
from .captured import Captured, captured
from .independent import independent
from .indexer import Indexer, indexer
from .paged import Paged, paged
from .presets import PRESETS
from .topics import Topics, topics
from .uniform import uniform
from .walk import walk


@dataclass(frozen=True, kw_only=True)
class Walk:
    churn: float = 0.10  # share of its rows that a step swaps

    def __post_init__(self):
        in_range(self, churn=(0, 1))


class Law(NamedTuple):
    draw: Callable  # (positions, rows, topk, rng, parameters) -> indices [tokens, topk] int32
    defaults: Any  # a frozen dataclass; None: the law has no parameter
    solved: dict[str, tuple[float, float]]  # what `fit` may change, in this order, within limits
    scales: bool = True  # parameters mean the same where tokens, rows and topk are all fewer
    needs: tuple[str, ...] = ()  # parameters that have no default


REGISTRY = {
    "uniform": Law(lambda at, rows, topk, rng, law: uniform(at, rows, topk, rng), None, {}),
    "independent": Law(independent, None, {}),
    "walk": Law(lambda at, rows, topk, rng, law: walk(at, rows, topk, rng, law.churn), Walk(),
                {"churn": (0.0, 1.0)}),
    "boundary": Law(boundary, Boundary(),
                    {"core": (0.0, 1.0), "pool": (1.0, 16.0), "drift": (0.0, 0.1)}),
    "indexer": Law(indexer, Indexer(), {"correlation": (0.0, 1.0)}),
    "topics": Law(topics, Topics(), {"churn": (0.0, 1.0)}, scales=False),
    "paged": Law(paged, Paged(), {"churn": (0.0, 1.0)}, scales=False),
    "captured": Law(captured, Captured(), {}, needs=("file",)),
}  # fmt: skip
LAWS = tuple(name for name, law in REGISTRY.items() if not law.needs)


def parsed(text: str) -> tuple[str, Any]:
    """(name of the law, its parameters) of a text. Raises ValueError with what is unknown in it."""
    name, *given = text.split(":")
    if name in PRESETS:
        name, base = parsed(PRESETS[name].law)
    else:
        choose("law", name, (*REGISTRY, *PRESETS))
        base = REGISTRY[name].defaults
        if missing := set(REGISTRY[name].needs) - set(pairs(given)):
            raise ValueError(f"law {name} needs {', '.join(sorted(missing))}=")
    return name, replaced(base, pairs(given), f"parameter of law {name}:")


def written(name: str, parameters) -> str:
    """The text that `parsed` reads as this; parameters at the law's default are left out."""
    defaults = asdict(REGISTRY[name].defaults) if parameters is not None else {}
    given = asdict(parameters) if parameters is not None else {}
    return ":".join([name, *(f"{k}={v}" for k, v in given.items() if v != defaults[k])])
