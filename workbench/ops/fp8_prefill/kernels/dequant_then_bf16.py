"""What servers do: a pass over the pool writes bf16 rows, then a prefill on bf16 rows reads them.

The pass moves 656 + 1,152 bytes a row of the pool, selected or not; each later fetch is of 1,152
bytes where a code's row has 656. Scales that are no powers of two are rounded away here.
"""

from dataclasses import dataclass

from .... import ranges
from ....op import Tile
from ...sparse_prefill.kernels.per_token import per_token
from ..definition import Inputs, Output, fp8_prefill
from ._rows import asked, dequantised, no_rows_of_576, rounded


@dataclass(frozen=True)
class Config:
    block: int = 8  # rows of the pool that a program of the pass writes
    pass_warps: int = 4
    block_k: int = per_token.config.block_k
    num_warps: int = 8  # of the attention: with four, the sums of 64 heads have no registers
    num_stages: int = per_token.config.num_stages


def _attention(config: Config):
    """The part of `config` that is the attention's."""
    names = ("block_k", "num_warps", "num_stages")
    return type(per_token.config)(**{name: getattr(config, name) for name in names})


def _requires(w, config: Config) -> str | None:
    return no_rows_of_576(w) or per_token.requires(w, _attention(config))


def _tile(w, config: Config) -> Tile:
    return per_token.tile(w, _attention(config))


@fp8_prefill.variant(
    config=Config(), step_from="eager", requires=_requires, widens=rounded, tile=_tile,
    stack_bytes=40,  # of 64 heads
)  # fmt: skip
def dequant_then_bf16(x: Inputs, config: Config) -> Output:
    """Write the whole pool as bf16 rows first, then run `per_token` on them; both are timed."""
    with ranges.span("plan"):
        rows = dequantised(x, config.block, config.pass_warps)
        question = asked(x, rows)
    with ranges.span("kernel"):
        return Output(*per_token(question, _attention(config)))
