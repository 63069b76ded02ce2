"""Steps shared by at least two variants. No kernel of its own lives here."""

import triton
import triton.language as tl


@triton.jit
def add_rows(
    pool, row, inside,
    WORDS: tl.constexpr, ROWS: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """Wrapping sums of the words of rows `row`, int64 [ROWS]; 0 where not `inside`.

    A tile is a power of two wide, a row is not: it is read in pieces. These are added up place by
    place, so that threads exchange words once a row and not once a piece.
    """
    lane = tl.arange(0, PIECE)[None, :]
    origin = pool + row.to(tl.int64)[:, None] * WORDS + lane  # [ROWS, PIECE]
    total = tl.zeros([ROWS, PIECE], tl.int64)
    for start in tl.static_range(0, WORDS, PIECE):
        there = inside[:, None] & (start + lane < WORDS)
        total += tl.load(origin + start, mask=there, other=0)
    return tl.sum(total, 1)
