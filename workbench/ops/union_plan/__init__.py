from . import kernels as kernels
from .definition import union_plan as union_plan
