"""One folder an operation. Importing this package registers every variant of every one."""

from ..op import Op
from .decode_split_step import decode_split_step
from .device_copy import device_copy
from .fp8_prefill import fp8_prefill
from .matrix_product import matrix_product
from .merge_splits import merge_splits
from .page_split import page_split
from .page_split_step import page_split_step
from .paged_read import paged_read
from .row_gather import row_gather
from .shared_read import shared_read
from .sparse_decode import sparse_decode
from .sparse_prefill import sparse_prefill
from .union_plan import union_plan

_ATTENTION = (
    page_split, page_split_step, paged_read, decode_split_step, union_plan, sparse_prefill,
    fp8_prefill, merge_splits, sparse_decode,
)  # fmt: skip
_CEILINGS = (device_copy, row_gather, shared_read, matrix_product)  # what the machine can do

OPS: dict[str, Op] = {op.name: op for op in _ATTENTION + _CEILINGS}
