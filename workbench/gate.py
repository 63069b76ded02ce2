"""Correctness: a variant may be timed only after it has passed here, on the same inputs.

What a wrong kernel could hide behind is taken away first: memory that still holds an old answer
(poisoned allocations, and the kernel runs before the reference), writes beside the destination
(guard bytes), changed inputs (compared bit for bit), a host read, a decision of the host that a
graph would not make again (a second call is recorded, and replayed on other numbers).
"""

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from . import ranges
from .answers import Answers
from .compare import same_bits
from .machine import synchronize
from .op import Config, Inputs, Op, Output, Variant, Verdict, Workload
from .replay import record
from .selections import redrawn
from .watch import HostRead, Watch, no_synchronisation

GUARD_BYTES = 4096  # on either side of every tensor that a run may write
GUARD = 0x5A
INDICES = (torch.int32, torch.int64)  # tensors of these say where, not what


def guarded(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Return (a copy with the strides of `tensor`, the guards before, behind and between rows)."""
    if not tensor.numel():
        return tensor.clone(), ()
    size, span = tensor.element_size(), _span(tensor)
    rows, apart = (len(tensor), tensor.stride(0)) if tensor.ndim else (1, 1)
    of_row = _span(tensor[0]) if tensor.ndim else 1
    whole = torch.full((2 * GUARD_BYTES + span * size + 16,), GUARD, dtype=torch.uint8,
                       device=tensor.device)  # fmt: skip
    end = GUARD_BYTES + span * size
    inner = whole[GUARD_BYTES:end].view(tensor.dtype)
    guards = whole[:GUARD_BYTES], whole[end : end + GUARD_BYTES]
    if rows > 1 and apart > of_row:  # a view of wider rows: what stands beside it is another's
        gap = (rows - 1, (apart - of_row) * size), (apart * size, 1), GUARD_BYTES + of_row * size
        guards += (whole.as_strided(*gap),)
    copy = inner.as_strided(tensor.shape, tensor.stride(), inner.storage_offset())
    copy.copy_(tensor)
    return copy, guards


def _span(t: torch.Tensor) -> int:
    """Elements from the first of `t` to its last, that included."""
    return 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))


def _elsewhere(v: Variant, device: str) -> str | None:
    """Why `v` does not run on `device`, or None."""
    if torch.device(device).type == "cpu":
        written = "written in Gluon, no interpreter runs it: needs a GPU"
        return None if v.interpretable else written
    here = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    if v.archs and here not in v.archs:
        return f"written for {', '.join(v.archs)}, this GPU is {here}"
    return None


def check(
    v: Variant, w: Workload, config: Config = None, *, device: str, inputs: Inputs = None,
    answers: Answers | None = None, once: bool = False,
) -> Verdict:  # fmt: skip
    """Compare `v` with its op's reference on `w`. A fault of the variant is a verdict.

    `inputs`, where given, are `v.op.make_inputs(w, device)`, made before; they come back as they
    were from a variant that passes. `answers` of variants checked before, on the same `w`. `once`:
    one call and no more, for further inputs of a workload on which the later calls have passed.
    """
    answers = answers or Answers()
    config = v.config if config is None else config
    if reason := v.requires(w, config):
        return Verdict("unsupported", why=reason)
    if reason := _elsewhere(v, device):
        return Verdict("unsupported", why=reason)
    op = v.op
    if inputs is None:
        with ranges.span("inputs"):
            inputs = op.make_inputs(w, device)
    guards = {name: guarded(getattr(inputs, name)) for name in op.writes + op.fills}
    x = inputs._replace(**{name: copy for name, (copy, _) in guards.items()})
    kept = {
        name: t.clone()
        for name, t in inputs._asdict().items()
        if isinstance(t, torch.Tensor) and name not in guards
    }
    call = partial(_watched, v, x, config, device)
    before = inputs._replace(**kept)
    verdict = _judged(v, x, before, guards, _run(v, call, device), answers, w)
    if once or not verdict.passed:
        return verdict
    try:
        later = _later(v, w, x, guards, call, device, answers)
    finally:
        for name, before in kept.items():
            getattr(inputs, name).copy_(before)
    return verdict if later.passed else later


def _later(
    v: Variant, w: Workload, x: Inputs, guards: dict, call: Callable[[], Output], device: str,
    answers: Answers,
) -> Verdict:  # fmt: skip
    """The verdict on the calls after the first, each with other numbers in the same tensors.

    A second call tells a variant that needs what its first call left behind, and one that
    remembers its answer by shape or address. Replays of it tell what only the host kept right.
    What `Op.writes` names is never reset: a server does not, and it would hide a mask that nobody
    clears. Where there is such state, indices also stay while all else changes, for a call and for
    a replay, so that nothing may count as done.
    """
    replay = None

    def second() -> Output:
        nonlocal replay
        output, replay = record(call, device) if v.capturable else (call(), None)
        return output

    holds = bool(v.op.writes)
    steps = [("second call", second, 1, holds)]
    if v.capturable:
        steps.append(("replayed", lambda: replay(), 2, False))
    elif holds:
        steps.append(("third call", call, 2, False))
    if v.capturable and holds:
        steps.append(("replayed", lambda: replay(), 3, True))
        # a capture calls once more than a tape: what takes turns by calls is at its other turn
        if torch.device(device).type == "cuda":
            steps.append(("replayed", lambda: replay(), 4, False))
    for told, run, ahead, same_indices in steps:
        later = redrawn(w, ahead)
        before = _renewed(v.op, answers.inputs(v.op, later, device), x, same_indices)
        named = None if same_indices else later
        verdict = _judged(v, x, before, guards, _run(v, run, device), answers, named)
        if not verdict.passed:
            return replace(verdict, why=f"{told}: {verdict.why}")
    return verdict


def _renewed(op: Op, now: Inputs, x: Inputs, same_indices: bool = False) -> Inputs:
    """Put the numbers `now` into the tensors of `x`; return a copy of what it then holds.

    What `op.writes` names stays as it is; so do, where `same_indices`, the integer tensors.
    """
    for name, fresh in now._asdict().items():
        if not isinstance(fresh, torch.Tensor):
            continue
        held = getattr(x, name)
        if name in op.writes or (same_indices and fresh.dtype in INDICES):
            now = now._replace(**{name: held.clone()})
        else:
            held.copy_(fresh)
    return now


def _judged(
    v: Variant, x: Inputs, before: Inputs, guards: dict, actual: Output | Verdict,
    answers: Answers, w: Workload | None,
) -> Verdict:  # fmt: skip
    """The verdict on what a run on `x` returned; `before` is a copy of what `x` held before it."""
    if isinstance(actual, Verdict):
        return actual
    if reason := _trespass(x, before, guards):
        return Verdict("incorrect", why=reason)
    with ranges.span("reference"):
        expected = answers.expected(v, w, before)
    if reason := _form(v.op, actual, expected):
        return Verdict("incorrect", why=reason)
    return v.op.compare(x, actual, expected)


def _watched(v: Variant, x: Inputs, config: Config, device: str) -> Output:
    """What the variant returns. Raises HostRead also where it swallowed that or raised another."""
    watch = Watch(v.capturable)
    try:
        with ranges.span("kernel"), watch, no_synchronisation(device, v.capturable):
            return v(x, config)
    finally:
        if watch.read is not None:
            why = "reads the device on the host, yet the variant calls itself capturable"
            raise HostRead(f"{watch.read} {why}")


def _run(v: Variant, call: Callable[[], Output], device: str) -> Output | Verdict:
    """What `call`, a run of the variant, returns, or the verdict on how it failed to."""
    try:
        actual = call()
        synchronize(device)
    except HostRead as read:
        return Verdict("incorrect", why=str(read))
    except Exception as error:  # a kernel that cannot run is a result, not the end of a study
        return Verdict("error", why=_told(error) + _place(error, v))
    return actual


def _trespass(x: Inputs, before: Inputs, guards: dict) -> str | None:
    """What was written that may not be, or None."""
    for name, old in before._asdict().items():
        written = name in guards or not isinstance(old, torch.Tensor)
        if not written and not same_bits(getattr(x, name), old):
            return f"the input {name} was modified"
    for name, (_, beside) in guards.items():
        if not all((guard == GUARD).all() for guard in beside):
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
