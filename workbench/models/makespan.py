"""How many chunks of selected rows a decode program should take: a model of three constants.

A call of T tokens has T * ceil(H / block_h) independent pieces of N chunks (64 rows each), of
`block_h` heads; a program takes `chunks_per_block` of one piece, so a piece becomes
s = ceil(N / chunks_per_block) programs, the last of which may be shorter. More programs fill more
multiprocessors, and each pays once for its start and its share of the merge. Times are those of
list scheduling (Graham, 1969): programs start in order, each on the multiprocessor that is free
first.

The three constants are of one device, kernel and layout of rows: seconds a byte while all of memory
is asked, seconds a byte of one multiprocessor's own latency-bound stream, and seconds of a program.
Formulas: flashinfer-ai/flashinfer, calibration of its sparse MLA decode for SM120. It leaves the
merge out; where a launch and a copy of this device were timed, its time follows from those.
"""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

HEADS = 16  # of a program, where nothing else is said
START = (5e-13, 1.5e-10, 6e-6)  # where the fit begins
WORST_FIT = 0.25  # relative rms, above which constants are refused
AROUND = 6  # chunks on either side of the pick that `refined` measures


@dataclass(frozen=True)
class Constants:
    """Of one device, kernel and row layout: three above 0 that are fitted, two that are known."""

    memory_s_per_byte: float  # of all multiprocessors together
    program_s_per_byte: float  # of one that has memory to itself
    start_s: float  # of a program, whatever its length
    merge_s: float = 0.0  # of a kernel that does nothing
    merge_s_per_byte: float = 0.0  # of memory, read and written side by side


@dataclass(frozen=True)
class Call:
    """What is to be split. Raises ValueError on numbers below 1, chunks below 0."""

    tokens: int
    heads: int
    chunks: int  # N, of main and second cache together
    chunk_bytes: int  # of 64 rows
    block_h: int = HEADS  # heads of a program
    part_bytes: int = 0  # that one head's part leaves for the merge

    def __post_init__(self):
        if min(self.tokens, self.heads, self.chunk_bytes, self.block_h) < 1 or self.chunks < 0:
            raise ValueError(f"{self} has a number that is too small")

    @property
    def pieces(self) -> int:
        return self.tokens * -(-self.heads // self.block_h)


def chunks_of(topk: int, extra_topk: int = 0, rows: int = 64) -> int:
    """Chunks of `rows` rows of a token: those of the second cache begin anew."""
    return -(-topk // rows) + -(-extra_topk // rows)


def programs(call: Call, chunks_per_block: int) -> int:
    return call.pieces * -(-call.chunks // chunks_per_block)


def chunk_s(call: Call, chunks_per_block: int, c: Constants, multiprocessors: int) -> float:
    """Seconds of one chunk beside all that run with it: by memory or by its own latency."""
    together = min(programs(call, chunks_per_block), multiprocessors)
    return call.chunk_bytes * max(together * c.memory_s_per_byte, c.program_s_per_byte)


def predicted_s(call: Call, chunks_per_block: int, c: Constants, multiprocessors: int) -> float:
    """Seconds of the call, its first launch left out. Raises ValueError on a number below 1."""
    if min(chunks_per_block, multiprocessors) < 1:
        raise ValueError(f"chunks_per_block={chunks_per_block} or "
                         f"multiprocessors={multiprocessors} is below 1")  # fmt: skip
    if not call.chunks:
        return 0.0
    splits = -(-call.chunks // chunks_per_block)
    last = call.chunks - (splits - 1) * chunks_per_block
    each = chunk_s(call, chunks_per_block, c, multiprocessors)
    jobs = [(call.pieces * (splits - 1), chunks_per_block * each + c.start_s),
            (call.pieces, last * each + c.start_s)]  # fmt: skip
    return makespan(jobs, multiprocessors) + merge_s(call, splits, c)


def merge_s(call: Call, splits: int, c: Constants) -> float:
    """Seconds of the merge, for parts that are written and read once; one part needs none."""
    if splits == 1:
        return 0.0
    parts = call.tokens * call.heads * splits
    return c.merge_s + 2 * parts * call.part_bytes * c.merge_s_per_byte


def makespan(jobs: Sequence[tuple[int, float]], machines: int) -> float:
    """When the last job ends: (how many, how long) in order, each to the machine free first.

    Exact. Machines that are free at one time take equal jobs at once.
    """
    free, end = [(0.0, machines)], 0.0  # a heap: (when, how many)
    for count, length in jobs:
        while count:
            if count >= machines and (last := max(free)[0]) - free[0][0] < length:
                # a job more for each machine leaves them free in the same order
                each, count = divmod(count, machines)
                free = [(when + each * length, idle) for when, idle in free]
                end = max(end, last + each * length)
                continue
            now, idle = heapq.heappop(free)
            taken = min(idle, count)
            if taken < idle:
                heapq.heappush(free, (now, idle - taken))
            heapq.heappush(free, (now + length, taken))
            end, count = max(end, now + length), count - taken
    return end


def waves_s(
    call: Call, chunks_per_block: int, c: Constants, multiprocessors: int, split_s: float = 0.0
) -> float:  # fmt: skip
    """The model's first generation: whole waves of equal programs, and `split_s` for each split."""
    splits = -(-call.chunks // chunks_per_block)
    waves = -(-call.pieces * splits // multiprocessors)
    each = chunk_s(call, chunks_per_block, c, multiprocessors)
    return waves * (chunks_per_block * each + c.start_s) + split_s * splits


def picked(
    call: Call, c: Constants, multiprocessors: int, l2_bytes: int | None = None,
    predict: Callable[..., float] = predicted_s,
) -> int:  # fmt: skip
    """The chunks_per_block of the least predicted time; of several, the largest.

    `l2_bytes`: picks whose programs together would hold more than that in flight are left out, as
    long as one remains.
    """
    if not call.chunks:
        return 1
    every = range(1, call.chunks + 1)
    fits = [n for n in every if l2_bytes is None
            or in_flight_bytes(call, n, multiprocessors) <= l2_bytes]  # fmt: skip
    return min(fits or every, key=lambda n: (predict(call, n, c, multiprocessors), -n))


def in_flight_bytes(call: Call, chunks_per_block: int, multiprocessors: int) -> int:
    """Bytes of rows that the programs of one wave gather."""
    together = min(programs(call, chunks_per_block), multiprocessors)
    return together * chunks_per_block * call.chunk_bytes


@dataclass(frozen=True)
class Fit:
    constants: Constants
    relative_rms: float  # of the residuals, each as a share of its time

    @property
    def good(self) -> bool:
        return self.relative_rms <= WORST_FIT


def fitted(
    points: Iterable[tuple[Call, int, float]], multiprocessors: int,
    merge: tuple[float, float] = (0.0, 0.0),
) -> Fit:  # fmt: skip
    """Constants from measured (call, chunks_per_block, seconds), by Levenberg and Marquardt.

    `merge` are the two that are known. Residuals are relative, constants are searched by their
    logarithm. A fit that is not `good` says
    that the model does not hold here. Raises ValueError below three points and on a time that is
    not above 0.
    """
    points = list(points)
    if len(points) < len(START):
        raise ValueError(f"{len(points)} points do not determine {len(START)} constants")
    if wrong := [s for *_, s in points if not 0 < s < math.inf]:
        raise ValueError(f"a measured time of {wrong[0]} s")

    def residuals(logs) -> np.ndarray:
        c = Constants(*np.exp(logs), *merge)
        return np.array([predicted_s(call, n, c, multiprocessors) / s - 1 for call, n, s in points])

    # where memory sets no time nothing says which way its rate should go: begin with both
    slow = 2 * START[1] / multiprocessors
    tried = [least_squares(residuals, np.log(start), method="lm", diff_step=1e-4)
             for start in (START, (slow, *START[1:]))]  # fmt: skip
    found = min(tried, key=lambda way: way.cost)
    rms = float(np.sqrt(np.mean(np.square(found.fun))))
    return Fit(Constants(*(float(v) for v in np.exp(found.x)), *merge), rms)


def refined(
    call: Call, pick: int, measured_s: Callable[[int], float], around: int = AROUND
) -> tuple[int, dict[int, float]]:  # fmt: skip
    """(the fastest chunks_per_block within `around` of `pick`, all that was measured)."""
    low, high = max(1, pick - around), min(max(call.chunks, 1), pick + around)
    times = {n: measured_s(n) for n in range(low, high + 1)}
    return min(times, key=lambda n: (times[n], -n)), times
