from . import kernels as kernels
from .definition import decode_split_step as decode_split_step
