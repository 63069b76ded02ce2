from . import kernels as kernels
from .definition import device_copy as device_copy
