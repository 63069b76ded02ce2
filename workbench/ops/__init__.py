"""One folder an operation. Importing this package registers every variant of every one."""

from ..op import Op
from .page_split import page_split
from .sparse_prefill import sparse_prefill
from .union_plan import union_plan

OPS: dict[str, Op] = {op.name: op for op in (page_split, union_plan, sparse_prefill)}
