"""A step, layer by layer: split both caches with the variant at hand, then read both.

The same reader stands behind every variant, so that two of them differ by their splits alone. It
reads after both splits, as attention does: a destination that both caches shared would show.
"""

import torch

from ...op import Variant
from ..page_split.coverage import SPLIT, route
from ..page_split.definition import PAGE
from ..page_split.definition import Inputs as SplitInputs
from ..paged_read.definition import Inputs as ReadInputs
from ..paged_read.kernels.direct import direct
from .definition import READER, Inputs, Output


def each_layer(
    x: Inputs, split: Variant | None, extra_split: Variant | None = None
) -> Output:  # fmt: skip
    """The rows of every layer, read through `split`; from the pools themselves where it is None.

    `extra_split` is the extra cache's, where that is another one.
    """
    main = x.destination, x.mask, x.stamps
    extra = x.extra_destination, x.extra_mask, x.extra_stamps
    for layer in range(len(x.source)):
        tokens = x.indices, x.extra_indices[layer]
        pools = (
            _pages(x.source[layer], x.page_size, False, tokens[0], main, split),
            _pages(x.extra_source[layer], x.extra_page_size, True, tokens[1], extra,
                   extra_split or split),
        )
        rows = x.rows[layer], x.extra_rows[layer]
        for (pool, page_size), lanes, scratch, out in zip(pools, tokens, (main, extra), rows,
                                                          strict=True):  # fmt: skip
            direct(ReadInputs(pool, page_size, lanes, *scratch, out))
    return Output(x.rows, x.extra_rows)


def _pages(
    pool: torch.Tensor, page_size: int, extra: bool, indices: torch.Tensor, scratch: tuple,
    split: Variant | None,
) -> tuple[torch.Tensor, int]:  # fmt: skip
    """(pages that the reader takes, their size): the pool's, or its split's where it needs one."""
    if split is None or route(READER, page_size, extra) != SPLIT:
        return pool, page_size
    return split(SplitInputs(pool, page_size, indices, *scratch)).split, PAGE
