"""Clocks: callables take turns, every sample comes back, a summary is the reader's choice.

A clock measures as measure(arms, repeats, budget_s, turn, device): `arms` maps a name to a
callable; `turn(name)` is called before each use of an arm, so that whoever watches knows what ran
last.
"""

from .graph import graph_cold as graph_cold
from .graph import graph_hot as graph_hot
from .samples import Clock as Clock
from .samples import Samples as Samples
from .wall import wall_clock as wall_clock

CLOCKS = {clock.name: clock for clock in (graph_cold, graph_hot, wall_clock)}
