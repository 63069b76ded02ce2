"""Names of Gluon that changed after Triton 3.6. The old ones are tried last: some still exist."""

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

cta_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
cp_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
_Shared = gl.shared_memory_descriptor
reinterpret = getattr(_Shared, "reinterpret", None) or _Shared._reinterpret
