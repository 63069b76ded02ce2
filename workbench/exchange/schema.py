"""What FlashInfer-Bench's JSON must hold: fields, types, and what goes with which status.

A check takes (value, where it stands) and returns one sentence, or None. Read from the published
models of flashinfer-ai/flashinfer-bench 0.1.2 (`data`) and docs/flashinfer-trace; a test compares
every rule with the models where that package is installed. Fields that are not listed are let
through, as there.
"""

import ast
from collections.abc import Callable
from typing import Any

Check = Callable[[Any, str], str | None]
DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64",
          "int32", "int16", "int8", "bool")  # fmt: skip
STATUSES = {  # -> whether correctness and performance must be there; None: no number may be
    "PASSED": (True, True),
    "INCORRECT_NUMERICAL": (True, False),
    "INCORRECT_SHAPE": (False, False),
    "INCORRECT_DTYPE": (False, False),
    "RUNTIME_ERROR": (False, False),
    "COMPILE_ERROR": (False, False),
    "TIMEOUT": (False, False),
}
NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # numbers that JSON cannot hold, as texts


def _first(faults) -> str | None:
    return next((fault for fault in faults if fault), None)


def _is(test: Callable[[Any], bool], what: str) -> Check:
    return lambda v, at: None if test(v) else f"{at} is {v!r:.60}, not {what}"


def _number(v) -> bool:
    return isinstance(v, int | float) and not isinstance(v, bool)


def _each(check: Check, least: int = 0) -> Check:
    def checked(v, at):
        if not isinstance(v, list) or len(v) < least:
            return f"{at} is {v!r:.60}, not a list" + (f" of at least {least}" if least else "")
        return _first(check(item, f"{at}[{i}]") for i, item in enumerate(v))

    return checked


def _named(check: Check, empty: bool = False) -> Check:
    def checked(v, at):
        if not isinstance(v, dict) or not (empty or all(v)):
            return f"{at} is {v!r:.60}, not an object with names"
        return _first(check(item, f"{at}.{name}") for name, item in v.items())

    return checked


def _fields(required: dict[str, Check], **optional: Check) -> Check:
    def checked(v, at):
        if not isinstance(v, dict):
            return f"{at} is {v!r:.60}, not an object"
        missing = [name for name in required if name not in v]
        if missing:
            return f"{at} has no {missing[0]}"
        known = required | optional
        return _first(known[name](x, f"{at}.{name}") for name, x in v.items() if name in known)

    return checked


def _or_null(check: Check) -> Check:
    return lambda v, at: None if v is None else check(v, at)


def _of_type(**kinds: Check) -> Check:
    """An object whose `type` says which of `kinds` it is."""

    def checked(v, at):
        kind = v.get("type") if isinstance(v, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            return f"{at} is {v!r:.60}, whose type is none of {', '.join(kinds)}"
        return kinds[kind](v, at)

    return checked


any_text = _is(lambda v: isinstance(v, str), "a text")
text = _is(lambda v: isinstance(v, str) and bool(v), "a text that is not empty")
whole = _is(lambda v: isinstance(v, int) and _number(v) and v >= 0, "a whole number from 0 on")
least_0 = _is(lambda v: _number(v) and v >= 0, "a number from 0 on")
error = _is(lambda v: v in NOT_FINITE[:2] if isinstance(v, str) else _number(v) and not v < 0,
            "an error from 0 on")  # fmt: skip
literal = _is(lambda v: isinstance(v, int | float), "a number or a truth value")
truth = _is(lambda v: isinstance(v, bool), "a truth value")
mapping = _is(lambda v: isinstance(v, dict), "an object")
dtype = _is(lambda v: isinstance(v, str) and v in DTYPES, f"one of {', '.join(DTYPES)}")
told = _or_null(any_text)

axis = _of_type(const=_fields({"value": whole}, description=told),
                var=_fields({}, description=told))  # fmt: skip
tensor = _fields({"shape": _or_null(_each(text)), "dtype": dtype}, description=told)
source = _of_type(random=_fields({}), scalar=_fields({"value": literal}),
                  safetensors=_fields({"path": text, "tensor_key": text}))  # fmt: skip
workload = _fields({"axes": _named(whole, empty=True), "inputs": _named(source, empty=True),
                    "uuid": text})  # fmt: skip
_definition = _fields(
    {"name": text, "op_type": text, "axes": _named(axis), "inputs": _named(tensor),
     "outputs": _named(tensor), "reference": text},
    tags=_each(text), description=told, constraints=_each(text),
)  # fmt: skip
_evaluation = _fields(
    {"status": _is(lambda v: isinstance(v, str) and v in STATUSES, "a status"),
     "environment": _fields({"hardware": text}, libs=_named(any_text, empty=True)),
     "timestamp": text},
    log=any_text,
    correctness=_or_null(_fields({}, max_relative_error=error, max_absolute_error=error,
                                 extra=_or_null(mapping))),
    performance=_or_null(_fields({}, latency_ms=least_0, reference_latency_ms=least_0,
                                 speedup_factor=least_0)),
)  # fmt: skip
_solution = _fields(
    {"name": text, "definition": text, "author": text,
     "spec": _fields({"language": text, "target_hardware": _each(any_text, least=1),
                      "entry_point": text},
                     dependencies=_each(text), destination_passing_style=truth),
     "sources": _each(_fields({"path": text, "content": text}), least=1)},
    description=told,
)  # fmt: skip


def definition(v, at: str = "definition") -> str | None:
    """The first fault of a definition, its reference and constraints parsed but never run."""
    if fault := _definition(v, at):
        return fault
    if both := set(v["inputs"]) & set(v["outputs"]):
        return f"{at} has an input and an output {min(both)}"
    for name, spec in (v["inputs"] | v["outputs"]).items():
        if lost := [a for a in spec["shape"] or () if a not in v["axes"]]:
            return f"{at}: {name} has the axis {lost[0]}, which is not among its axes"
    for constraint in v.get("constraints", ()):
        if not _parsed(constraint, "eval"):
            return f"{at} has the constraint {constraint!r:.60}, which is no Python expression"
    parsed = _parsed(v["reference"], "exec")
    if not parsed or not any(isinstance(n, ast.FunctionDef) and n.name == "run"
                             for n in parsed.body):  # fmt: skip
        return f"{at} has a reference without a function run"
    return None


def _parsed(code: str, mode: str) -> ast.AST | None:
    try:
        return ast.parse(code, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # as deep or odd as it likes
        return None


def evaluation(v, at: str = "evaluation") -> str | None:
    """The first fault of an evaluation: numbers that its status must have, or may not."""
    if fault := _evaluation(v, at):
        return fault
    for part, must in zip(("correctness", "performance"), STATUSES[v["status"]], strict=True):
        if (v.get(part) is not None) != must:
            return f"{at} is {v['status']} {'without' if must else 'with'} {part}"
    return None


def solution(v, at: str = "solution") -> str | None:
    """The first fault of a solution: its entry is a function of one of its files."""
    if fault := _solution(v, at):
        return fault
    entry = v["spec"]["entry_point"]
    if entry.count("::") != 1 or entry.split("::")[0] not in [s["path"] for s in v["sources"]]:
        return f"{at} has the entry point {entry!r}, which is in none of its files"
    return None


_trace = _fields({"definition": text, "workload": workload}, solution=told,
                 evaluation=_or_null(evaluation))  # fmt: skip


def trace(v, at: str = "trace") -> str | None:
    """The first fault of a line: a workload, or a run of a solution on one."""
    return _trace(v, at)
