"""Correctness: a variant may be timed only after it has passed here, on the same inputs.

What a wrong kernel could hide behind is taken away first: memory that still holds an old answer
(poisoned allocations, and the kernel runs before the reference), writes beside the destination
(guard bytes), changed inputs (compared bit for bit), a host read that a graph would not repeat.
"""

import traceback
from dataclasses import replace
from pathlib import Path

import torch

from . import ranges
from .compare import same_bits
from .machine import synchronize
from .op import Config, Inputs, Op, Output, Variant, Verdict, Workload
from .watch import Watch, no_synchronisation

GUARD_BYTES = 4096  # on either side of every tensor that a run may write
GUARD = 0x5A


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return (a copy with the strides of `tensor`, the guard before it, the guard behind it)."""
    if not tensor.numel():
        none = tensor.new_empty(0, dtype=torch.uint8)
        return tensor.clone(), none, none
    size = tensor.element_size()
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    whole = torch.empty(2 * GUARD_BYTES + span * size + 16, dtype=torch.uint8, device=tensor.device)
    end = GUARD_BYTES + span * size
    before, behind = whole[:GUARD_BYTES], whole[end : end + GUARD_BYTES]
    before.fill_(GUARD)
    behind.fill_(GUARD)
    inner = whole[GUARD_BYTES:end].view(tensor.dtype)
    copy = inner.as_strided(tensor.shape, tensor.stride(), inner.storage_offset())
    copy.copy_(tensor)
    return copy, before, behind


def check(
    v: Variant, w: Workload, config: Config = None, *, device: str, inputs: Inputs = None
) -> Verdict:
    """Compare `v` with its op's reference on `w`. A fault of the variant is a verdict.

    `inputs`, where given, are `v.op.make_inputs(w, device)`, made before; they come back as they
    were from a variant that passes.
    """
    config = v.config if config is None else config
    if reason := v.requires(w, config):
        return Verdict("unsupported", why=reason)
    if not v.interpretable and torch.device(device).type == "cpu":
        return Verdict("unsupported", why="written in Gluon, no interpreter runs it: needs a GPU")
    op = v.op
    if inputs is None:
        with ranges.span("inputs"):
            inputs = op.make_inputs(w, device)
    guards = {name: guarded(getattr(inputs, name)) for name in op.writes}
    x = inputs._replace(**{name: copy for name, (copy, _, _) in guards.items()})
    kept = {
        name: t.clone()
        for name, t in inputs._asdict().items()
        if isinstance(t, torch.Tensor) and name not in op.writes
    }
    actual = _run(v, x, config, device)
    if isinstance(actual, Verdict):
        return actual
    if reason := _trespass(x, kept, guards):
        return Verdict("incorrect", why=reason)
    with ranges.span("reference"):
        expected = op.reference(v.widens(inputs))
    if reason := _form(op, actual, expected):
        return Verdict("incorrect", why=reason)
    verdict = op.compare(x, actual, expected)
    if not verdict.passed:
        return verdict
    try:
        second = _again(v, w, x, config, guards, device)
    finally:
        for name, before in kept.items():
            getattr(inputs, name).copy_(before)
    return verdict if second.passed else replace(second, why=f"second call: {second.why}")


def _again(
    v: Variant, w: Workload, x: Inputs, config: Config, guards: dict, device: str
) -> Verdict:
    """The verdict on a second call, with other numbers in the same tensors.

    It tells a variant that needs what its first call left behind, and one that remembers its
    answer by shape or address.
    """
    fresh = v.op.make_inputs(replace(w, seed=w.seed + 1), device)
    given = {name: t for name, t in fresh._asdict().items() if isinstance(t, torch.Tensor)}
    for name, t in given.items():
        getattr(x, name).copy_(t)
    actual = _run(v, x, config, device)
    if isinstance(actual, Verdict):
        return actual
    kept = {name: t for name, t in given.items() if name not in v.op.writes}
    expected = v.op.reference(v.widens(fresh))
    reason = _trespass(x, kept, guards) or _form(v.op, actual, expected)
    return Verdict("incorrect", why=reason) if reason else v.op.compare(x, actual, expected)


def _run(v: Variant, x: Inputs, config: Config, device: str) -> Output | Verdict:
    """What the variant returns, or the verdict on how it failed to."""
    watch = Watch(v.capturable)
    try:
        with ranges.span("kernel"), watch, no_synchronisation(device, v.capturable):
            actual = v(x, config)
        synchronize(device)
    except Exception as error:  # a kernel that cannot run is a result, not the end of a study
        if watch.read is None:
            return Verdict("error", why=_told(error) + _place(error, v))
    if watch.read is not None:
        why = f"{watch.read} reads the device on the host, yet the variant calls itself capturable"
        return Verdict("incorrect", why=why)
    return actual


def _trespass(x: Inputs, kept: dict, guards: dict) -> str | None:
    """What was written that may not be, or None."""
    for name, before in kept.items():
        if not same_bits(getattr(x, name), before):
            return f"the input {name} was modified"
    for name, (_, before, behind) in guards.items():
        if not (before == GUARD).all() or not (behind == GUARD).all():
            return f"memory beside {name} was written"
    return None


def _place(error: Exception, v: Variant) -> str:
    """The last line of the variant's own file that the exception went through."""
    own = v.run.__code__.co_filename
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == own]
    return f" ({Path(own).name}:{lines[-1]})" if lines else ""


def _told(error: Exception) -> str:
    """An exception in one line; a compiler's own line says where, its innermost cause says why."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    said = [f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}"
            for e in dict.fromkeys((error, cause))]  # fmt: skip
    return "; ".join(said)


def _form(op: Op, actual: Output, expected: Output) -> str | None:
    """Why `actual` is not an output of `op` at all, or None."""
    if type(actual) is not op.Output:
        return f"returned {type(actual).__name__}, not {op.Output.__name__}"
    for name, got, want in zip(expected._fields, actual, expected, strict=True):
        if not isinstance(got, torch.Tensor):
            return f"{name} is {type(got).__name__}, not a tensor"
        if got.shape != want.shape:
            return f"{name} has shape {tuple(got.shape)}, not {tuple(want.shape)}"
        if got.dtype != getattr(torch, op.dtypes[name]):
            return f"{name} is {got.dtype}, not torch.{op.dtypes[name]}"
        if got.device != want.device:
            return f"{name} is on {got.device}, not on {want.device}"
    return None
