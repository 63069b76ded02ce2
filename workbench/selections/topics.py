"""A sliding window, the first rows of the text, and topics: spans of rows that come and go.

Attention reads what is near, what stands at the very beginning (sinks), and the passages that the
text is about; those drift. Neighbours share all but the window's edge and the spans that left.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ._drift import begun, due, followed, in_range


@dataclass(frozen=True, kw_only=True)
class Topics:
    sinks: int = 4  # rows at the beginning of the request
    window: int = 128  # rows up to the query's own
    span: int = 32  # neighbouring rows of a passage
    churn: float = 0.05  # share of the passages that others replace at each step of position

    def __post_init__(self):
        in_range(self, sinks=(0, 1 << 20), window=(0, 1 << 20), span=(1, 1 << 20), churn=(0, 1))


def topics(
    positions: torch.Tensor,
    rows: int,
    topk: int,
    rng: np.random.Generator,
    law: Topics = Topics(),
):
    """Return indices [tokens, topk] int32, ascending; positions must not decrease.

    Where topk is less than sinks and window, the sinks come first. Slots that no whole passage
    fills lengthen the window.
    """
    indices, seen, first = begun(positions, rows, topk)
    sinks = min(law.sinks, topk)
    passages, rest = divmod(topk - sinks - min(law.window, topk - sinks), law.span)
    window = min(law.window, topk - sinks) + rest
    places, chosen, seen = positions[first:], indices[first:], seen[first:]
    chosen[:, :sinks] = np.arange(sinks)
    chosen[:, topk - window :] = seen[:, None] - window + np.arange(window)
    eligible = (seen - sinks - window) // law.span
    lane = np.arange(law.span, dtype=np.int32)
    swaps = due(places, law.churn * passages)
    for t, units in followed(eligible, passages, swaps, topk, rng):
        units.sort(axis=1)
        spans = sinks + units[:, :, None] * np.int32(law.span) + lane
        chosen[t : t + len(units), sinks : topk - window] = spans.reshape(len(units), -1)
    return torch.from_numpy(indices)
