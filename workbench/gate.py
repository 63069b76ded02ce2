"""Correctness: a variant may be timed only after it has passed here, on the same inputs.

What a wrong kernel could hide behind is taken away first: memory that still holds an old answer
(poisoned allocations, and the kernel runs before the reference), writes beside the destination
(guard bytes), changed inputs (compared bit for bit), a host read that a graph would not repeat.
"""

from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from . import ranges
from .compare import same_bits
from .machine import synchronize
from .op import Config, Inputs, Op, Output, Variant, Verdict, Workload

GUARD_BYTES = 4096  # on either side of every tensor that a run may write
GUARD = 0x5A
POISON = 0xA5  # of integer memory that nobody has written; floating memory is NaN

_ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_HOST_READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim",
               "unique_consecutive", "is_nonzero", "equal", "bincount",
               "repeat_interleave"}  # fmt: skip
# These copy to the host, and on a CPU without an operator that a dispatch mode would see.
_HOST_METHODS = {getattr(torch.Tensor, name): name for name in ("tolist", "numpy", "cpu")}


class HostRead(RuntimeError):
    """A variant that calls itself capturable read the device on the host."""


class _Methods(TorchFunctionMode):
    """Refuse the tensor methods that copy to the host."""

    def __init__(self, refuse):
        super().__init__()
        self.refuse = refuse

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _HOST_METHODS:
            self.refuse(_HOST_METHODS[func])
        return func(*args, **(kwargs or {}))


class Watch(TorchDispatchMode):
    """Poison what torch.empty returns; where `capturable`, refuse reads of the device.

    `read` names the first read, also where the variant swallowed the exception.
    """

    def __init__(self, capturable: bool):
        super().__init__()
        self.capturable = capturable
        self.read: str | None = None
        self._methods = _Methods(self.refuse)

    def refuse(self, name: str) -> None:
        """Raise HostRead for the operation `name` where reads are refused."""
        if self.capturable:
            self.read = self.read or name
            raise HostRead(f"{name} reads the device on the host")

    def __enter__(self):
        self._methods.__enter__()
        return super().__enter__()

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self._methods.__exit__(*exc)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        to_host = name in ("_to_copy", "copy_") and _leaves_device(name, args, kwargs.get("device"))
        if name in _HOST_READS or to_host or _by_mask(name, args):
            self.refuse(name)
        out = func(*args, **kwargs)
        if name in _ALLOCATIONS and out.numel():
            poison(out)
        return out


def _by_mask(name: str, args: tuple) -> bool:
    """Whether an index is a mask that must be counted; filling one value in needs no count."""
    if name not in ("index", "index_put", "index_put_"):
        return False
    masks = (torch.bool, torch.uint8)
    by_mask = any(isinstance(i, torch.Tensor) and i.dtype in masks for i in args[1])
    return by_mask and (name == "index" or args[2].numel() != 1)


def _leaves_device(name: str, args: tuple, target: Any) -> bool:
    if name == "copy_":
        return args[0].device.type == "cpu" and args[1].device.type != "cpu"
    return target is not None and torch.device(target).type == "cpu" and args[0].is_cuda


def poison(tensor: torch.Tensor) -> None:
    """Fill with what no kernel returns on purpose: NaN, or 0xA5 in every byte."""
    if tensor.dtype.is_floating_point:
        tensor.fill_(torch.nan)
    elif tensor.dtype == torch.bool:
        tensor.fill_(True)
    else:
        bits = 8 * tensor.element_size()
        value = int.from_bytes(bytes([POISON]) * tensor.element_size(), "little")
        signed = tensor.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
        tensor.fill_(value - (1 << bits) if signed else value)


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
        with ranges.span("kernel"), watch, _no_synchronisation(device, v.capturable):
            actual = v(x, config)
        synchronize(device)
    except Exception as error:  # a kernel that cannot run is a result, not the end of a study
        if watch.read is None:
            return Verdict("error", why=_told(error))
    if watch.read is not None:
        why = f"{watch.read} reads the device on the host, yet the variant calls itself capturable"
        return Verdict("incorrect", why=why)
    return actual


@contextmanager
def _no_synchronisation(device: str, refuse: bool):
    """On a GPU, raise where torch waits for the device: a graph would not wait again."""
    if not refuse or torch.device(device).type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _trespass(x: Inputs, kept: dict, guards: dict) -> str | None:
    """What was written that may not be, or None."""
    for name, before in kept.items():
        if not same_bits(getattr(x, name), before):
            return f"the input {name} was modified"
    for name, (_, before, behind) in guards.items():
        if not (before == GUARD).all() or not (behind == GUARD).all():
            return f"memory beside {name} was written"
    return None


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
