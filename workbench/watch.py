"""Watching a run: memory that nobody wrote is poisoned, host reads are refused."""

import warnings
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

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


@contextmanager
def no_synchronisation(device: str, refuse: bool):
    """On a GPU, raise where torch waits for the device: a graph would not wait again."""
    if not refuse or torch.device(device).type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that this mode does not see every operation that waits
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)
