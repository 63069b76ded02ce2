"""What a profiler saw, whichever it was: one form of events, and GPU time by named range.

`read` takes any file, `attribute` links GPU rows to the calls that launched them and to the ranges
around those calls, `totals` and `by_range` say where the time went.
"""

from .attribution import Attributed as Attributed
from .attribution import attribute as attribute
from .attribution import totals as totals
from .events import Events as Events
from .events import Unreadable as Unreadable
from .events import table as table
from .read import read as read
from .summary import busy as busy
from .summary import by_range as by_range
