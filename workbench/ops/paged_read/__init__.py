from . import kernels as kernels
from .definition import paged_read as paged_read
