"""Clocks: calls take turns, every sample comes back, a summary is the reader's choice."""

from .events import events as events
from .floor import empty as empty
from .graph import graph_cold as graph_cold
from .graph import graph_hot as graph_hot
from .graph import graph_rotating as graph_rotating
from .samples import Call as Call
from .samples import Clock as Clock
from .samples import Plan as Plan
from .samples import Samples as Samples
from .samples import measure as measure
from .wall import wall_clock as wall_clock

CLOCKS = {c.name: c for c in (graph_cold, graph_hot, graph_rotating, events, wall_clock)}
