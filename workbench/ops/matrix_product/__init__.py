from . import kernels as kernels
from .definition import matrix_product as matrix_product
