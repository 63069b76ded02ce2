"""Names of Gluon that changed after Triton 3.6, and what it has no name for.

Where a name changed the old one is tried last: some still exist.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

cta_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
cp_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
_Shared = gl.shared_memory_descriptor
reinterpret = getattr(_Shared, "reinterpret", None) or _Shared._reinterpret


@gluon.jit
def prefetch(pointers):
    """Ask for the lines at `pointers` in L2. What is written later is seen there, so that this may
    stand before gdc_wait."""
    gl.inline_asm_elementwise("prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [pointers],
                              dtype=gl.int32, is_pure=False, pack=1)  # fmt: skip
