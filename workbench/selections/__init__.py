"""Which cache rows a query token reads: laws that draw them, their overlap, their validity.

A law returns indices [tokens, topk] int32 for queries at `positions` [tokens]: unique rows, none
after the query's own position, none past the cache, -1 where fewer than topk rows are visible.
The laws but `uniform`, `walk` name them in ascending order. `calibration` solves laws for a curve.
`captures` are what models and servers selected, `capture_files` reads and writes them, and the law
`captured` gives one to a workload.
"""

from .capture_files import CaptureFile as CaptureFile
from .captures import Capture as Capture
from .captures import Header as Header
from .captures import capture as capture
from .draw import LENGTHS as LENGTHS
from .draw import PADDINGS as PADDINGS
from .draw import check as check
from .draw import draw as draw
from .draw import positions as positions
from .draw import redrawn as redrawn
from .draw import selection as selection
from .independent import independent as independent
from .laws import LAWS as LAWS
from .laws import parsed as parsed
from .laws import written as written
from .overlap import distinct_rows as distinct_rows
from .overlap import union_ratio as union_ratio
from .presets import PRESETS as PRESETS
from .presets import Preset as Preset
from .reference import jaccard_bounds as jaccard_bounds
from .reference import uniform_expectation as uniform_expectation
from .requests import Request as Request
from .requests import Selection as Selection
from .requests import even_requests as even_requests
from .requests import in_order as in_order
from .statistics import statistics as statistics
from .uniform import uniform as uniform
from .validity import accepted as accepted
from .validity import doubts as doubts
from .validity import refusals as refusals
from .validity import valid_lanes as valid_lanes
from .validity import violations as violations
from .walk import walk as walk
