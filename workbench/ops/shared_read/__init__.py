from . import kernels as kernels
from .definition import shared_read as shared_read
