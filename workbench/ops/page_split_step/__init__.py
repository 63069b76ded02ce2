from . import kernels as kernels
from .definition import page_split_step as page_split_step
