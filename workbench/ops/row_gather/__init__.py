from . import kernels as kernels
from .definition import row_gather as row_gather
