from . import kernels as kernels
from .definition import merge_splits as merge_splits
