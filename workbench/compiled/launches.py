"""The launches a variant makes, recorded in place of being made: no GPU, and no data at all.

Inputs are drawn as tensors without memory where they are large, so that a pool of many gigabytes
costs nothing; the variant sees only tensors without memory. What is compiled for a launch depends
on shapes, types, strides, alignment and numbers, all of which these have.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.experimental.gluon._runtime import GluonASTSource
from triton.runtime.jit import JITFunction, create_function_from_signature

from ..op import Config, Inputs, Op, Variant, Workload

SMALL_BYTES = 1 << 24  # of a tensor that is drawn as it is
ALIGNMENT = 512  # bytes, of what PyTorch's allocator hands out on a GPU
# What tracing without values stops at
VALUES = (DataDependentOutputException, DynamicOutputShapeException)


class Launch(NamedTuple):
    """A recorded launch."""

    kernel: JITFunction
    args: tuple
    options: dict[str, Any]  # the constexprs and what the compiler is told


class Source(NamedTuple):
    """A launch as the compiler takes it, specialised for one architecture."""

    ast: ASTSource
    options: Any  # of the backend
    target: GPUTarget


class Untraceable(RuntimeError):
    """What is launched depends on the values of tensors that are too large to draw."""


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Inside the block, kernels are not run; yields the list that their launches go to."""
    launches = []

    def run(self, *args, grid, warmup, **options):
        launches.append(Launch(self, args, options))

    with patch.object(JITFunction, "run", run):
        yield launches


class _Sized(TorchDispatchMode):
    """Results above SMALL_BYTES have no memory, and neither has what is computed from them."""

    def __init__(self, mode: FakeTensorMode):
        super().__init__()
        self.mode = mode

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, torch.Tensor)]
        if any(isinstance(t, FakeTensor) for t in given):
            with self.mode:
                return func(*args, **kwargs)
        if not given:  # a new tensor: how large?
            with self.mode:
                made = func(*args, **kwargs)
            if isinstance(made, torch.Tensor) and made.nbytes > SMALL_BYTES:
                return made
        return func(*args, **kwargs)


class Recorder:
    """Traces launches in this process; all of its tensors belong together."""

    def __init__(self):
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)

    def inputs(self, op: Op, w: Workload) -> Inputs:
        """The inputs of `w`, none of which holds memory. Raises Untraceable."""
        with self._placed(), _Sized(self.mode):
            try:
                drawn = op.make_inputs(w, "cpu")
            except VALUES as error:
                raise Untraceable(f"its inputs are drawn from values ({error.func})") from None
        return type(drawn)(*(self._empty(x) for x in drawn))

    def launches(self, v: Variant, x: Inputs, config: Config = None) -> list[Launch]:
        """What `v` launches on `x`, which `inputs` made. Raises Untraceable."""
        with self._placed(), recorded_launches() as made, self.mode:
            try:
                v(x, config)
            except VALUES as error:
                raise Untraceable(f"reads values on the host ({error.func})") from None
        return made

    def sources(self, launches: list[Launch], arch: int) -> list[Source]:
        """The launches as the just-in-time compiler would take them on `arch`."""
        with self._placed():
            return [specialised(launch, arch) for launch in launches]

    def _empty(self, x):
        if isinstance(x, torch.Tensor) and not isinstance(x, FakeTensor):
            return self.mode.from_tensor(x)
        return x

    @staticmethod
    @contextmanager
    def _placed() -> Iterator[None]:
        """Tensors without memory stand as a GPU's allocator would put them: aligned, and apart."""

        def data_ptr(tensor) -> int:
            start = tensor.untyped_storage()._cdata * ALIGNMENT
            return start + tensor.storage_offset() * tensor.element_size()

        with patch.object(FakeTensor, "data_ptr", data_ptr):
            yield


def specialised(launch: Launch, arch: int) -> Source:
    """`launch` with the types, constants and divisibilities that a launch on `arch` would find."""
    fn, args, options = launch
    target, backend, binder = _binder(fn, arch)
    options = options | {"debug": options.get("debug", fn.debug)}
    if "WAITS" in options:  # for the kernel before it: Hopper and later start it early
        options |= dict.fromkeys(("WAITS", "launch_pdl"), arch >= 90)
    bound, specialization, rest = binder(*args, **options)
    parsed, signature, constexprs, attrs = fn._pack_args(
        backend, options, bound, specialization, rest
    )
    kind = GluonASTSource if fn.is_gluon() else ASTSource
    return Source(kind(fn, signature, constexprs, attrs), parsed, target)


@cache
def _binder(fn: JITFunction, arch: int) -> tuple:
    """The target, its backend, and what sorts the arguments of `fn` into types and constants."""
    target = GPUTarget("cuda", arch, 32)
    backend = make_backend(target)
    return target, backend, create_function_from_signature(fn.signature, fn.params, backend)
