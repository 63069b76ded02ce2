"""A ring of buffers in shared memory, read 16 bytes a thread, neighbours beside each other.

A warp's load is four whole rows of the 32 banks: no two threads of a quarter want one bank. Two
reads are added at a time, since an addition of three operands costs what one of two does.
"""

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ..._gluon import cta_barrier
from ..definition import Inputs, Output, Workload, shared_read


@dataclass(frozen=True)
class Config:
    num_warps: int = 8


@gluon.jit(do_not_specialize=["LOOPS", "STRIDE"])  # a known stride would tell the next buffer
def _ring_kernel(
    ring, sums,
    LOOPS, STRIDE,
    BUFFERS: gl.constexpr, WORDS: gl.constexpr,
):  # fmt: skip
    threads: gl.constexpr = gl.BlockedLayout([4], [32], [gl.num_warps()], [0])
    banks: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    place = gl.arange(0, WORDS, threads)
    program = gl.program_id(0).to(gl.int64)
    buffers = gl.allocate_shared_memory(gl.int32, [BUFFERS, WORDS], banks)
    for b in gl.static_range(BUFFERS):
        buffers.index(b).store(gl.load(ring + (program * BUFFERS + b) * WORDS + place))
    cta_barrier()  # here, or the compiler puts one into the loop
    total = gl.zeros([WORDS], gl.int32, threads)
    for i in range(0, LOOPS - LOOPS % 2, 2):
        one = buffers.index(i * STRIDE & (BUFFERS - 1)).load(threads)
        other = buffers.index((i + 1) * STRIDE & (BUFFERS - 1)).load(threads)
        total += one + other
    if LOOPS % 2:
        total += buffers.index((LOOPS - 1) * STRIDE & (BUFFERS - 1)).load(threads)
    gl.store(sums + program * WORDS + place, total)


def whole_vectors(w: Workload, config: Config) -> str | None:
    vector = 4 * 32 * config.num_warps
    if w.words % vector:
        return f"a buffer of {w.words} words is no multiple of the {vector} that all threads read"
    return None


@shared_read.variant(config=Config(), requires=whole_vectors, interpretable=False)
def gluon_ring(x: Inputs, config: Config) -> Output:
    """Read buffer after buffer in vectors of 16 bytes without bank conflicts."""
    programs, buffers, words = x.ring.shape
    sums = x.ring.new_empty((programs, words), dtype=torch.int32)
    if programs:
        _ring_kernel[(programs,)](
            x.ring, sums,
            x.loops, x.stride,
            BUFFERS=buffers, WORDS=words,
            num_warps=config.num_warps,
        )  # fmt: skip
    return Output(sums)
