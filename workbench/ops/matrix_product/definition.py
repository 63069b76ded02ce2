"""Matrix product: C = A @ B^T of two square matrices, a ceiling of the machine.

What the tensor cores reach on random data is the most that any kernel bound by arithmetic can do:
power falls with the number of bits that flip, and zeros or constants would run at a higher clock.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from ...compare import SLACK, relative_l2, storage_rounding
from ...op import Cost, Op, Verdict
from ...random_bytes import random_bytes

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
SPREAD = 147.8  # standard deviation of a sum of four random bytes; its mean is 510
CHUNK_ROWS = 1024  # of A that the reference multiplies at a time
# Hopper's fp8 tensor cores keep about 14 bits of a running sum and cut the rest off at every step
# of 32 products (DeepSeek-V3 technical report, section 3.3.2): the cuts have one direction.
FP8_STEP, FP8_CUT = 32, 2.0**-14


@dataclass(frozen=True, kw_only=True)
class Workload:
    n: int = 8192  # rows and columns of A, B and C
    dtype: str = "bf16"  # of A and B: bf16 or fp8 (e4m3); C is bf16
    seed: int = 0

    def __post_init__(self):
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r} is none of {', '.join(DTYPES)}")
        if self.n < 0 or self.seed < 0:
            raise ValueError(f"n={self.n} or seed={self.seed} is below 0")


class Inputs(NamedTuple):
    a: torch.Tensor  # [n, n] bf16 or e4m3, rows are the inner dimension
    b: torch.Tensor  # [n, n] the same
    scale: torch.Tensor  # [] float32, 1: the scale of a and of b that an fp8 product asks for


class Output(NamedTuple):
    c: torch.Tensor  # [n, n] bf16 (reference: float64): sum over k of a[i, k] * b[j, k]


def bell(n: int, seed: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """[n, n] nearly normal numbers of variance 1, equal on every device: sums of four bytes."""
    drawn = random_bytes((n, n, 8), seed, device)[..., :4]  # four suffice for a bell
    summed = drawn.sum(-1, dtype=torch.int32)
    return ((summed - 510) * (1.0 / SPREAD)).to(dtype)


def make_inputs(w: Workload, device: str) -> Inputs:
    dtype = DTYPES[w.dtype]
    a, b = (bell(w.n, 2 * w.seed + i, dtype, device) for i in range(2))
    return Inputs(a, b, torch.ones((), device=device))


def validate(x: Inputs) -> None:
    """Raise ValueError on other shapes or dtypes."""
    for name in ("a", "b"):
        tensor = getattr(x, name)
        if tensor.dtype not in DTYPES.values() or tensor.shape != 2 * (len(x.a),):
            raise ValueError(f"{name} is {tensor.dtype} {tuple(tensor.shape)}, "
                             "not square bf16 or e4m3")  # fmt: skip
        if not tensor.is_contiguous():
            raise ValueError(f"{name} has strides {tensor.stride()}, is not in one piece")
    if x.a.dtype != x.b.dtype:
        raise ValueError(f"a is {x.a.dtype}, b is {x.b.dtype}")


def reference(x: Inputs) -> Output:
    """The definition in float64, a bounded part of the rows at a time."""
    b = x.b.double()
    c = torch.empty(x.a.shape, dtype=torch.float64, device=x.a.device)
    for i in range(0, len(c), CHUNK_ROWS):
        c[i : i + CHUNK_ROWS] = x.a[i : i + CHUNK_ROWS].double() @ b.T
    return Output(c)


def budget(x: Inputs, expected: Output) -> float:
    """Relative L2 error that storing C costs, with slack, and what fp8 units cut off the sums."""
    steps = len(x.a) / FP8_STEP if x.a.dtype == torch.float8_e4m3fn else 0.0
    return SLACK * storage_rounding(expected.c, torch.bfloat16) + steps * FP8_CUT


def compare(x: Inputs, actual: Output, expected: Output) -> Verdict:
    """Within the rounding of bf16, and of the units' own sums for fp8."""
    error, most = relative_l2(actual.c, expected.c), budget(x, expected)
    if not error <= most:  # NaN is not within any budget
        return Verdict("incorrect", error, most, f"relative L2 {error:.2e} exceeds {most:.2e}")
    return Verdict("passed", error, most)


def cost(x: Inputs) -> Cost:
    """Read A and B once, write C once; a multiplication and an addition a product."""
    n = len(x.a)
    return Cost(2 * n * n * x.a.element_size() + 2 * n * n, 2 * n**3)


def statistics(x: Inputs) -> dict:
    return {}


_tiny = Workload(n=48)
_edges = (
    _tiny,
    replace(_tiny, n=0),
    replace(_tiny, n=1),
    replace(_tiny, n=33),
    replace(_tiny, n=128),
    replace(_tiny, n=200),  # several tiles and a tail
    replace(_tiny, dtype="fp8"),
    replace(_tiny, n=16, dtype="fp8"),
    replace(_tiny, n=160, dtype="fp8"),
)

matrix_product = Op(
    name="matrix_product",
    Workload=Workload,
    Output=Output,
    dtypes={"c": "bfloat16"},
    suites={
        "edges": _edges,
        "ceilings": tuple(Workload(n=n, dtype=dtype) for dtype in DTYPES for n in (4096, 8192)),
    },
    make_inputs=make_inputs,
    validate=validate,
    reference=reference,
    compare=compare,
    cost=cost,
    statistics=statistics,
)
