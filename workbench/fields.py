"""NAME=VALUE text into the fields of a frozen dataclass; what is wrong is told with its value."""

import itertools
import types
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, get_args, get_type_hints


def choose(kind: str, name: str, known) -> str:
    """Return `name` where it is among `known`. Raises ValueError that lists what is."""
    known = list(known)
    if name in known:
        return name
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown {kind} {name!r}{hint} (known: {', '.join(known) or 'none'})")


def convert(name: str, text: Any, kind: Any) -> Any:
    """Return `text` as a value of `kind` (int, float, bool, str or one of them | None)."""
    kinds = get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and (text is None or str(text).lower() == "none"):
        return None
    if text is None:
        raise ValueError(f"{name} may not be none")
    (target,) = [k for k in kinds if k is not type(None)]
    if target is bool:
        if str(text).lower() in ("true", "1", "yes", "false", "0", "no"):
            return str(text).lower() in ("true", "1", "yes")
        raise ValueError(f"{name}={text!r} is neither true nor false")
    whole = target is int and isinstance(text, float)
    if (whole and not text.is_integer()) or isinstance(text, bool | list | dict):
        raise ValueError(f"{name}={text!r} is not of type {target.__name__}")
    try:
        return target(text)
    except (ValueError, OverflowError):  # 10**400 is no float
        raise ValueError(f"{name}={text!r} is not of type {target.__name__}") from None


def replaced(instance: Any, changes: dict[str, Any], kind: str) -> Any:
    """Return `instance` with `changes` (name -> text or value). Raises ValueError, naming both.

    `kind` says what the instance is ("workload", "config of union") in the message.
    """
    hints = get_type_hints(type(instance))
    known = [f.name for f in fields(instance)] if instance is not None else []
    typed = {}
    for name, text in changes.items():
        choose(f"{kind} field", name, known)
        typed[name] = convert(name, text, hints[name])
    return replace(instance, **typed) if typed else instance


def pairs(assignments: list[str]) -> dict[str, str]:
    """Return {"tokens": "8"} for ["tokens=8"]. Raises ValueError on an item without `=`."""
    found = {}
    for item in assignments:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise ValueError(f"{item!r} is not of the form NAME=VALUE")
        if name in found:
            raise ValueError(f"{name} is given twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found


def once(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these keys and values: `object_pairs_hook` of json, which keeps the last one.

    Raises ValueError on a key that is given twice.
    """
    found = dict(items)
    if len(found) < len(items):
        names = [name for name, _ in items]
        raise ValueError(f"{max(names, key=names.count)!r:.40} is given twice")
    return found


def expanded(changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Every combination of `changes` whose values may be lists or comma lists such as "2,4"."""
    choices = {
        name: value.split(",") if isinstance(value, str) else
        list(value) if isinstance(value, list | tuple) else [value]
        for name, value in changes.items()
    }  # fmt: skip
    for name, values in choices.items():
        if not values:
            raise ValueError(f"{name} has no value")
    return [dict(zip(choices, c, strict=True)) for c in itertools.product(*choices.values())]
