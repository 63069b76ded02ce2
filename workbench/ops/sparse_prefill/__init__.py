from . import kernels as kernels
from .definition import sparse_prefill as sparse_prefill
