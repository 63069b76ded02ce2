"""Figures are functions from a table of records to a Figure; `save` alone writes.

Times of two devices or two clocks never share axes. Bands are the 5th to 95th percentile of the
samples, points their median; a point whose record carries a flag is drawn hollow.
"""

from .compiled import compiled as compiled
from .decode import decode_latency as decode_latency
from .decode import decode_table as decode_table
from .decode import decode_times as decode_times
from .decode import has_line as has_line
from .decode_crossover import crossover_table as crossover_table
from .decode_crossover import decode_crossings as decode_crossings
from .decode_crossover import decode_crossover as decode_crossover
from .files import draw_all as draw_all
from .files import draw_computed as draw_computed
from .files import save as save
from .floors import floors as floors
from .fp8 import along_tokens as along_tokens
from .fp8 import crossings as crossings
from .fp8 import fp8_prefill as fp8_prefill
from .fp8 import measured_ratios as measured_ratios
from .fp8 import ratio_table as ratio_table
from .groups import best_groups as best_groups
from .groups import group_gain as group_gain
from .maps import ratio_map as ratio_map
from .orientations import orientations as orientations
from .overlap import union_curves as union_curves
from .overlap import union_overlay as union_overlay
from .overlap import union_ratio as union_ratio
from .play import union_play as union_play
from .play import union_playground as union_playground
from .ratios import forest as forest
from .ratios import ratio_line as ratio_line
from .rounding import rounding as rounding
from .splits import decode_splits as decode_splits
from .splits import split_model as split_model
from .splits import split_table as split_table
from .steps import step_cost as step_cost
from .timeline import timeline as timeline
from .times import curves as curves
from .times import ladder as ladder
from .times import ladder_table as ladder_table
from .times import latency as latency
from .times import page_split_cost as page_split_cost
from .times import page_split_share as page_split_share
from .times import paged_read_cost as paged_read_cost
