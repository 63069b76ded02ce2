from . import kernels as kernels
from .definition import fp8_prefill as fp8_prefill
