"""What the chunk model says of a call that no place of a table measured: who is fastest, split how.

A table may hold the model's constants (`dispatch calibrate`), of a variant and a layout of rows. A
time that follows from them is a guess: it stands at no place, and whoever tells it says so.
"""

from collections.abc import Iterable
from dataclasses import replace

from ..layouts import LAYOUTS
from ..op import Variant, Workload
from .dispatch_estimates import Estimate, refusal
from .dispatch_table import AXIS, Table
from .makespan import HEADS, Call, Constants, chunks_of, picked, predicted_s

COUNT = "chunks_per_block"  # of a config: what the model picks
CHUNK, FLOAT = 64, 4  # rows; bytes of a number of a part: d_v and its lse
FITTED_HEADS = 16  # of the places that constants are fitted on


def call_of(v: Variant, w: Workload) -> Call:
    """What a variant splits of a workload with a token, by its default config."""
    layout = LAYOUTS[w.layout]
    return Call(w.tokens, w.heads, chunks_of(w.topk, w.extra_topk), CHUNK * layout.token_bytes,
                _block_h(v, w), FLOAT * (layout.d_v + 1))  # fmt: skip


def _block_h(v: Variant, w: Workload) -> int:
    # a tile of several blocks of heads is of a variant that says their size itself
    tile = v.tile(w, v.config)
    return getattr(v.config, "block_h", None) or (tile.rows if tile else HEADS)


def modelled(
    variants: Iterable[Variant], w: Workload, table: Table | None, arch: str | None = None,
    named: bool = False,
) -> list[Estimate]:  # fmt: skip
    """The modelled time of each variant that `table` has constants for, the fastest first.

    Each is split as the model picks and has the default of every other field, as where it was
    fitted. A variant that has another tile for these heads than for those it was fitted on is left
    out: another tile has other constants. Nothing without a token.
    """
    model = table.model if table is not None else None
    if model is None or not vars(w).get(AXIS):
        return []
    found = []
    for v in variants:
        fit = model.layouts.get(f"{v.name} {vars(w).get('layout')}")
        if fit is None or not fit.good or not hasattr(v.config, COUNT):
            continue
        if _block_h(v, w) == _block_h(v, replace(w, heads=FITTED_HEADS)):
            found.append(_split(v, w, fit.constants, model.multiprocessors, arch, named))
    return sorted(found, key=lambda e: (e.us, e.variant))


def _split(
    v: Variant, w: Workload, c: Constants, multiprocessors: int, arch: str | None, named: bool
) -> Estimate:  # fmt: skip
    call = call_of(v, w)
    count = picked(call, c, multiprocessors)
    config, us = replace(v.config, **{COUNT: count}), predicted_s(call, count, c, multiprocessors)
    reason = refusal(v, w, config, arch, named)
    settled = config if reason else v.settled(w, config)
    return Estimate(v.name, settled, us * 1e6, at=(), sides=(), reason=reason)
