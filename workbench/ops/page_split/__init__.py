from . import kernels as kernels
from .definition import page_split as page_split
