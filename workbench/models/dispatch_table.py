"""Which variant took how long where, as a file that a server could read.

A table holds measured times of one op, device, Triton version and clock, and maybe the constants of
a model that were fitted to such: what to run is decided by whoever reads it (`dispatch.plan`). It
is JSON with a schema number, an entry a line. A reader that cannot use a table does without, and
says so once: a server starts anyway.
"""

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..fields import once
from .makespan import Constants, Fit
from .ratio import VERDICTS

SCHEMA = 1
AXIS = "tokens"  # of a workload, along which a reader may look between two places
SETUP = ("op", "device", "triton", "clock")  # what a table is of
SEED = "seed"  # the one field of a workload that does not tell a place
MOST = 1e12  # no time in microseconds, no ratio of two, and no number at all reaches it
_SCALAR = (str, int, float, bool, type(None))


@dataclass(frozen=True)
class Arm:
    """A variant with a config, at one place.

    Raises ValueError on a time, a ratio or an interval that is none.
    """

    variant: str
    config: Mapping[str, Any]  # that ran
    us: float  # of the arm in most process blocks the geometric mean of its medians; of any other
    # that times the ratio of the two, so that blocks which it missed do not count for it
    blocks: int  # of its own
    flags: tuple[str, ...]  # what a reader should know before believing the time
    ratio: float | None = None  # its time over that of the fastest arm; None of that arm itself
    low: float | None = None  # 95 % interval of the ratio; None where a side has one block, or
    # where it has no bound
    high: float | None = None
    verdict: str | None = None  # of `ratio.verdict`; SLOWER is beyond doubt

    def __post_init__(self):
        if not 0 < self.us < MOST or self.blocks < 1:
            raise ValueError(f"{self.variant} took {self.us} us in {self.blocks} blocks")
        if not all(end is None or 0 < end < MOST for end in (self.ratio, self.low, self.high)):
            raise ValueError(f"{self.variant} took {self.ratio} times ({self.low} to {self.high}) "
                             "as long as the fastest")  # fmt: skip
        ends = (self.low, self.high)
        if ends != (None, None) and (None in ends or self.low > self.high):
            raise ValueError(f"{self.variant} has an interval from {self.low} to {self.high}")


@dataclass(frozen=True)
class Entry:
    """All that was timed at one place. Raises ValueError on arms out of order, or one twice."""

    workload: Mapping[str, Any]  # every field but the seed
    arms: tuple[Arm, ...]  # the fastest first

    def __post_init__(self):
        times = [arm.us for arm in self.arms]
        if not times or times != sorted(times):
            raise ValueError(f"arms of an entry take {times} us: none, or not the fastest first")
        keys = [(arm.variant, *sorted(arm.config.items())) for arm in self.arms]
        if len(set(keys)) < len(keys):
            variant, *config = max(keys, key=keys.count)
            raise ValueError(f"two arms {label(variant, dict(config), {})} of one place")


@dataclass(frozen=True)
class Model:
    """What `makespan` fitted on the table's device. Raises ValueError on what gives no time."""

    multiprocessors: int
    layouts: Mapping[str, Fit]  # "variant layout": constants, and how well they fit

    def __post_init__(self):
        if self.multiprocessors < 1:
            raise ValueError(f"a model of {self.multiprocessors} multiprocessors")
        for name, fit in self.layouts.items():
            *rates, merge, merge_byte = vars(fit.constants).values()
            if min(rates) <= 0 or min(merge, merge_byte) < 0:
                raise ValueError(f"{name} has {fit.constants}")


@dataclass(frozen=True, eq=False)  # as a key of a cache, a table is itself
class Table:
    """Raises ValueError where two entries are of one place, with what they leave to defaults."""

    op: str
    device: str
    arch: str  # such as "sm_90"; empty of a processor
    triton: str
    torch: str  # all versions that the times are of
    clock: str
    entries: tuple[Entry, ...]
    model: Model | None = None

    def __post_init__(self):
        from ..ops import OPS  # kernels: not for those who only look at a file's numbers

        seen = set()
        default = identity(OPS[self.op].Workload()) if self.op in OPS else {}
        for entry in self.entries:
            place = tuple(sorted((default | dict(entry.workload)).items()))
            if place in seen:
                raise ValueError(f"two entries of one place: {entry.workload}")
            seen.add(place)

    @classmethod
    def load(
        cls, path: Path | str, *, op: str | None = None, device: str | None = None,
        triton: str | None = None,
    ) -> "Table | None":  # fmt: skip
        """The table of a file, or None with one warning that names the file and why.

        That is: a file that is absent, unreadable, of another schema, or of another op, device or
        Triton than is asked for (None: whichever it is of). Raises nothing for those.
        """
        try:
            table = read(path)
            for name, asked in (("op", op), ("device", device), ("triton", triton)):
                if asked not in (None, getattr(table, name)):
                    raise ValueError(f"its {name} is {getattr(table, name)!r}, not {asked!r}")
        except (OSError, ValueError, RecursionError) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"{path} is no dispatch table for this: {why}", stacklevel=2)
            return None
        return table


def identity(w) -> dict[str, Any]:
    """What of a workload tells its place."""
    return {name: value for name, value in vars(w).items() if name != SEED}


def unlike(a: Table, b: Table) -> str | None:
    """The first of SETUP in which two tables differ: their times, and constants, are then apart."""
    return next((name for name in SETUP if getattr(a, name) != getattr(b, name)), None)


def label(variant: str, config: Mapping[str, Any], default: Mapping[str, Any]) -> str:
    """A variant with those of its config fields that are not as in `default`."""
    return " ".join([variant, *(f"{k}={v}" for k, v in config.items() if default.get(k) != v)])


def fields_of(config: Any) -> dict[str, Any]:
    """A config as a dict: that of a variant without one is empty."""
    return {} if config is None else dict(vars(config))


def text(table: Table) -> str:
    """The table as it stands in a file: equal tables are equal text."""
    told = asdict(table)
    entries = ",\n".join(json.dumps(entry, allow_nan=False) for entry in told.pop("entries"))
    head = json.dumps({"schema": SCHEMA} | told, indent=1, allow_nan=False)
    return f'{head[:-2]},\n "entries": [\n{entries}\n ]\n}}\n'


def read(path: Path | str) -> Table:
    """The table of a file. Raises ValueError on anything else, OSError where there is none."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError("it is no regular file")
    try:
        told = json.loads(path.read_bytes(), parse_constant=float, object_pairs_hook=once)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    return parsed(told)


def parsed(told: Any) -> Table:
    """The table that JSON says. Raises ValueError with the first thing that is not as it should be.
    """
    schema = told.get("schema") if isinstance(told, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"its schema is {schema!r:.40}, not {SCHEMA}")
    names = ("op", "device", "arch", "triton", "torch", "clock")
    entries = tuple(map(_entry, _of(told, "entries", list)))
    model = _of(told, "model", dict, type(None))
    return Table(**{name: _of(told, name, str) for name in names}, entries=entries,
                 model=None if model is None else _model(model))  # fmt: skip


def _entry(told: Any) -> Entry:
    workload = _scalars(told, "workload")
    tokens = workload.get(AXIS, 0)
    if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 0:
        raise ValueError(f"its {AXIS} is {tokens!r:.40}")
    return Entry(workload, tuple(map(_arm, _of(told, "arms", list))))


def _arm(told: Any) -> Arm:
    flags = _of(told, "flags", list)
    if not all(isinstance(flag, str) for flag in flags):
        raise ValueError(f"its flags are {flags!r:.40}")
    if (said := _of(told, "verdict", str, type(None))) not in (None, *VERDICTS):
        raise ValueError(f"its verdict is {said!r:.40}")
    ratios = {name: _of(told, name, int, float, type(None)) for name in ("ratio", "low", "high")}
    return Arm(_of(told, "variant", str), _scalars(told, "config"), _of(told, "us", int, float),
               _of(told, "blocks", int), tuple(flags), **ratios, verdict=said)  # fmt: skip


def _model(told: dict) -> Model:
    fits = {}
    for layout, fit in _of(told, "layouts", dict).items():
        found = _of(fit, "constants", dict)
        constants = {n: _of(found, n, int, float) for n in Constants.__dataclass_fields__}
        fits[layout] = Fit(Constants(**constants), _of(fit, "relative_rms", int, float))
    return Model(_of(told, "multiprocessors", int), fits)


def _scalars(told: Any, name: str) -> dict:
    found = _of(told, name, dict)
    for key in found:
        _of(found, key, *_SCALAR)
    return found


def _of(told: Any, name: str, *kinds: type) -> Any:
    """The field `name` of what should be an object. Raises ValueError where it is none of `kinds`.
    """
    if not isinstance(told, dict) or name not in told:
        raise ValueError(f"{name!r:.40} is missing in {told!r:.40}")
    value = told[name]
    wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
    if wrong or (isinstance(value, int | float) and not abs(value) < MOST):  # nan is not, too
        raise ValueError(f"its {name:.40} is {value!r:.40}")
    return value
