"""The repaired interpreter computes as torch does: casts bit for bit, products within float32.

The stock one truncates to bfloat16, multiplies its bit patterns, and wraps where e4m3 saturates.
"""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from conftest import DEVICE
from triton.runtime import interpreter

from workbench.interpreter import narrow, widen

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="kernels are compiled, not interpreted")
BF16, E4M3, FP32 = torch.bfloat16, torch.float8_e4m3fn, torch.float32
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}


@triton.jit
def _cast_kernel(x, y, N, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + k, mask=k < N, other=0.0)
    tl.store(y + k, value.to(y.dtype.element_ty), mask=k < N)


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.empty_like(x, dtype=dtype)
    _cast_kernel[(triton.cdiv(len(x), 1024),)](x, y, len(x), BLOCK=1024)
    return y


def assert_same(got: torch.Tensor, want: torch.Tensor, x: torch.Tensor) -> None:
    """Bit for bit; any NaN is a NaN. `x` is what was converted."""
    bits = BITS[want.element_size()]
    wrong = got.view(bits) != want.view(bits)
    wrong &= ~(got.float().isnan() & want.float().isnan())
    k = wrong.nonzero().flatten()[:1].tolist()
    assert not k, f"{int(wrong.sum())} of {len(x)} differ, first {x[k]}: {got[k]}, not {want[k]}"


def between(dtype: torch.dtype) -> torch.Tensor:
    """Every finite value of `dtype`, every halfway point of neighbours, and a hair off each."""
    count = 1 << (8 * torch.finfo(dtype).bits // 8)
    whole = torch.arange(count).to(BITS[torch.finfo(dtype).bits // 8]).view(dtype).float()
    values = whole[whole.isfinite()].double().unique()
    middle = torch.cat((values, (values[1:] + values[:-1]) / 2)).float()
    middle = middle[middle.isfinite()]
    up, down = torch.tensor(torch.inf), torch.tensor(-torch.inf)
    return torch.cat((middle, middle.nextafter(up), middle.nextafter(down)))


def hostile() -> torch.Tensor:
    """float32: any bit pattern, every scale, subnormals, both zeros, infinities, NaN."""
    gen = torch.Generator().manual_seed(0)
    patterns = torch.randint(-(2**31), 2**31, (20_000,), generator=gen, dtype=torch.int64)
    scales = torch.randn(4000, generator=gen) * 2.0 ** torch.linspace(-14, 12, 4000)
    edges = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 448.0, 464.0, 464.1, -1e30, 3.3e38]
    small = [2.0**-149, -(2.0**-127), 2.0**-9, 2.0**-10, 1.5 * 2.0**-10]
    return torch.cat((patterns.int().view(FP32), scales, torch.tensor(edges + small)))


@pytest.mark.parametrize("x", [hostile(), between(BF16)], ids=["hostile", "halfway"])
def test_float32_to_bfloat16(x):
    assert_same(cast(x, BF16), x.to(BF16), x)


@pytest.mark.parametrize("x", [hostile(), between(E4M3)], ids=["hostile", "halfway"])
def test_float32_to_e4m3_saturates(x):
    want = torch.where(x.isnan(), x, x.clamp(-448.0, 448.0)).to(E4M3)
    assert_same(cast(x, E4M3), want, x)
    assert cast(torch.tensor([1e9, -torch.inf]), E4M3).float().tolist() == [448.0, -448.0]


@pytest.mark.parametrize("dtype", [BF16, E4M3], ids=str)
def test_every_value_widens(dtype):
    bits = torch.finfo(dtype).bits
    x = torch.arange(1 << bits).to(BITS[bits // 8]).view(dtype)
    assert_same(cast(x, FP32), x.float(), x)


def test_e4m3_to_bfloat16_and_back():
    x = torch.arange(256).to(torch.uint8).view(E4M3)
    assert_same(cast(x, BF16), x.to(BF16), x)
    assert_same(cast(cast(x, BF16), E4M3), x, x)


def test_integers_become_bfloat16():
    x = torch.arange(-600, 600, dtype=torch.int32)
    assert_same(cast(x, BF16), x.to(BF16), x)
    assert_same(cast(x.to(BF16), torch.int32), x.to(BF16).int(), x)


@pytest.mark.parametrize("name, dtype", [("bf16", BF16), ("fp8e4nv", E4M3), ("fp32", FP32)])
def test_widen_and_narrow_are_inverse(name, dtype):
    x = torch.linspace(-400, 400, 1001).to(dtype)
    data = narrow(x.float().numpy(), name)
    assert np.array_equal(widen(data, name), x.float().numpy())


@triton.jit
def _dot_kernel(a, b, c, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    z = tl.load(c + m[:, None] * N + n[None, :])
    tl.store(out + m[:, None] * N + n[None, :], tl.dot(x, y, z))


@pytest.mark.parametrize("dtype", [BF16, E4M3], ids=str)
def test_dot(dtype):
    gen = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(n, m, generator=gen) for n, m in ((16, 64), (64, 32), (16, 32)))
    a, b, out = a.to(dtype), b.to(dtype), torch.empty(16, 32)
    _dot_kernel[(1,)](a, b, c, out, M=16, N=32, K=64)
    want = a.double() @ b.double() + c.double()
    size = a.double().abs() @ b.double().abs() + c.double().abs()
    assert ((out - want).abs() <= 64 * 2.0**-24 * size).all()


@triton.jit
def _twice(x):
    return x + x


@triton.jit
def _arithmetic_kernel(x, y, out, N, BLOCK: tl.constexpr):
    k = tl.arange(0, BLOCK)
    a, b = tl.load(x + k), tl.load(y + k)
    tl.store(out + k, a + b)
    tl.store(out + N + k, a * b)
    tl.store(out + 2 * N + k, a - b)
    tl.store(out + 3 * N + k, tl.maximum(a, b))
    tl.store(out + 4 * N + k, tl.where(a < b, a, tl.full([BLOCK], 0.3, tl.bfloat16)))
    tl.store(out + 5 * N + k, tl.abs(a))
    tl.store(out + 6 * N + k, -a)
    tl.store(out + 7 * N + k, _twice(a))
    tl.store(out + 8 * N + k, tl.fma(a, b, a))


def test_bfloat16_arithmetic_rounds_once():
    gen = torch.Generator().manual_seed(0)
    a, b = (torch.randn(256, generator=gen).to(BF16) for _ in range(2))
    out = torch.empty(9, 256, dtype=BF16)
    _arithmetic_kernel[(1,)](a, b, out, 256, BLOCK=256)
    other = torch.tensor(0.3, dtype=BF16)
    want = (a + b, a * b, a - b, a.maximum(b), a.where(a < b, other), a.abs(), -a, a + a,
            (a.float() * b.float() + a.float()).to(BF16))  # fmt: skip
    for got, expected in zip(out, want, strict=True):
        assert_same(got, expected, a)


@triton.jit
def _fails_kernel(x):
    tl.store(x, _twice(tl.load(x)) + tl.arange(0, 3))  # 3 is no power of two


def test_the_language_is_restored_after_a_launch():
    """Cheaper calls of device functions leave triton.language as it was, after a failure too."""

    def patched():
        names = ("range", "static_range", "reduce", "associative_scan", "static_assert")
        homes = {name: getattr(tl, name).__module__ for name in names}
        return {name: home for name, home in homes.items() if home == interpreter.__name__}

    test_bfloat16_arithmetic_rounds_once()
    assert not patched()
    with pytest.raises(interpreter.InterpreterError):
        _fails_kernel[(1,)](torch.zeros(1))
    assert not patched()
