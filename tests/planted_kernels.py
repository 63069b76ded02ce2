"""Variants with known faults and known instructions, for tests of compiled evidence."""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from workbench.ops.device_copy.definition import Output, device_copy


@dataclass(frozen=True)
class Config:
    num_warps: int = 4


@triton.jit
def _spilling_kernel(source, destination, COUNT, WIDTH: tl.constexpr):
    place = tl.arange(0, WIDTH)
    one = tl.load(source + place)
    other = tl.load(source + WIDTH + place)
    for i in range(COUNT):  # both live through the loop, and more than there are registers
        more = tl.load(source + i * WIDTH + place)
        one, other = other + more, one * more
    tl.store(destination + place, one)
    tl.store(destination + WIDTH + place, other)


@triton.jit
def _product_kernel(
    source, destination, COUNT,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros([M, N], tl.float32)
    for i in tl.range(0, COUNT, num_stages=STAGES):
        a = tl.load(source + i * M * K + rows[:, None] * K + inner[None, :])
        b = tl.load(source + i * K * N + inner[:, None] * N + columns[None, :])
        total = tl.dot(a, b, total)
    tl.store(destination + rows[:, None] * N + columns[None, :], total)


@triton.jit
def _refused_kernel(destination, WIDTH: tl.constexpr):
    tl.store(destination + tl.arange(0, WIDTH), 0)


def _spill(x) -> Output:
    source, destination = x.source.view(torch.float32), x.destination.view(torch.float32)
    _spilling_kernel[(1,)](source, destination, len(x.source), WIDTH=2048, num_warps=1, maxnreg=96)
    return Output(x.destination)


def _multiply(x, m: int, n: int, k: int, stages: int) -> Output:
    source, destination = x.source.view(torch.bfloat16), x.destination.view(torch.float32)
    _product_kernel[(1,)](source, destination, len(x.source), M=m, N=n, K=k, STAGES=stages)
    return Output(x.destination)


@device_copy.variant(config=Config())
def spills(x, config) -> Output:
    """Spill inside of a loop, undeclared."""
    return _spill(x)


@device_copy.variant(config=Config(), stack_bytes=4096)
def spills_declared(x, config) -> Output:
    """Spill inside of a loop, as declared."""
    return _spill(x)


@device_copy.variant(config=Config())
def large(x, config) -> Output:
    """Stages of 32 KB in shared memory, four at a time."""
    return _multiply(x, 128, 128, 64, 5)


@device_copy.variant(config=Config())
def small_tile(x, config) -> Output:
    """A product of 16 rows: too few for a warp group."""
    return _multiply(x, 16, 16, 16, 2)


@device_copy.variant(config=Config())
def tall_tile(x, config) -> Output:
    """A product of 64 rows: a warp group's."""
    return _multiply(x, 64, 64, 64, 2)


@device_copy.variant(config=Config(), archs=("sm_90",))
def hopper_only(x, config) -> Output:
    """Declared for one architecture."""
    return _multiply(x, 64, 64, 64, 2)


@device_copy.variant(config=Config(), requires=lambda w, config: f"bytes={w.bytes} are too few")
def refuses(x, config) -> Output:
    """Never runs."""


@device_copy.variant(config=Config())
def refused(x, config) -> Output:
    """A range that is no power of two."""
    _refused_kernel[(1,)](x.destination, WIDTH=48)
    return Output(x.destination)


@device_copy.variant(config=Config())
def raises(x, config) -> Output:
    """A launcher with a fault of its own."""
    raise LookupError("no such tile")


@device_copy.variant(config=Config())
def reads_values(x, config) -> Output:
    """What is launched depends on a value."""
    if int(x.source[0]) >= 0:
        _multiply(x, 16, 16, 16, 2)
    return Output(x.destination)
