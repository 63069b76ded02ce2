from . import kernels as kernels
from .definition import sparse_decode as sparse_decode
