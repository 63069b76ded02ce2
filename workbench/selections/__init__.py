"""Which cache rows a query token reads: laws that draw them, their overlap, their validity.

A law returns indices [tokens, topk] int32 for queries at `positions` [tokens]: unique rows, none
after the query's own position, none past the cache, -1 where fewer than topk rows are visible.
"""

from .draw import LAWS as LAWS
from .draw import LENGTHS as LENGTHS
from .draw import PADDINGS as PADDINGS
from .draw import check as check
from .draw import draw as draw
from .draw import positions as positions
from .overlap import distinct_rows as distinct_rows
from .overlap import union_ratio as union_ratio
from .uniform import uniform as uniform
from .validity import doubts as doubts
from .validity import valid_lanes as valid_lanes
from .validity import violations as violations
from .walk import walk as walk
