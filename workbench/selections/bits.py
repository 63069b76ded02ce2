"""Sets of rows as packed bits, one row of words a token: unions and overlaps are bit operations."""

import numpy as np

TABLE_BYTES = 1 << 22  # of the unpacked table built at a time: it should stay in the L2
LANES = 1 << 18  # that are widened to 64-bit places at a time
WORD = 64
_COUNTS = np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2),
                        axis=1).sum(1, dtype=np.uint8)  # fmt: skip


def packed(indices: np.ndarray, rows: int) -> np.ndarray:
    """Bit r of a token is set where it names row r: uint64 [tokens, more than rows / 64].

    indices [tokens, topk] integer; what lies outside [0, rows) is no row.
    """
    tokens = len(indices)
    words = rows // WORD + 1  # there is always a bit to spare, for invalid lanes
    width = words * WORD
    found = np.empty((tokens, words), np.uint64)
    step = max(1, TABLE_BYTES // width)
    base = np.arange(step, dtype=np.int64)[:, None] * width
    for first in range(0, tokens, step):
        part = indices[first : first + step]
        table = np.zeros((len(part), width), bool)
        lanes = np.where((part >= 0) & (part < rows), part, rows)
        table.reshape(-1)[(lanes + base[: len(part)]).reshape(-1)] = True
        table[:, rows] = False
        bits = np.packbits(table, axis=1, bitorder="little")
        found[first : first + step] = bits.view("<u8")
    return found


def distinct(indices: np.ndarray, rows: int, firsts: list[int]) -> np.ndarray:
    """Rows that each run of tokens names, each once, int64 [groups]; `firsts` as in `unions`.

    In place of bits, a table of bytes for some runs at a time: those may be long.
    """
    bounds = [*firsts, len(indices)]
    found = np.zeros(len(firsts), np.int64)
    at_once = max(1, TABLE_BYTES // (rows + 1))
    step = max(1, LANES // max(indices.shape[1], 1))
    owner = np.repeat(np.arange(len(firsts)), np.diff(bounds))
    for g in range(0, len(firsts), at_once):
        here = len(firsts[g : g + at_once])
        table = np.zeros((here, rows + 1), bool)
        for t in range(bounds[g], bounds[g + here], step):
            end = min(t + step, bounds[g + here])
            part = indices[t:end]
            lanes = np.where((part >= 0) & (part < rows), part, rows)
            places = lanes + (owner[t:end, None] - g) * (rows + 1)
            table.reshape(-1)[places.reshape(-1)] = True
        found[g : g + here] = table[:, :rows].sum(1, dtype=np.int64)
    return found


def counts(bits: np.ndarray) -> np.ndarray:
    """How many bits of each token are set, int64 [tokens]."""
    if hasattr(np, "bitwise_count"):  # numpy 2
        return np.bitwise_count(bits).sum(1, dtype=np.int64)
    return _COUNTS[np.ascontiguousarray(bits).view(np.uint16)].sum(1, dtype=np.int64)


def unions(bits: np.ndarray, firsts: list[int]) -> np.ndarray:
    """The union of each run of tokens; `firsts` [groups] ascends, a run ends where one begins."""
    if not firsts:
        return bits[:0]
    return np.bitwise_or.reduceat(bits, firsts, axis=0)


def pages_of(bits: np.ndarray, rows: int, page: int) -> np.ndarray:
    """Bits of the pages that hold a row of a token. Raises ValueError unless 64 divides `page`."""
    if page < WORD or page % WORD:
        raise ValueError(f"page={page} is no multiple of {WORD}")
    words = bits != 0  # [tokens, words], one word is 64 rows
    per_page = page // WORD
    pages = -(-rows // page)
    held = -(-words.shape[1] // per_page)
    room = np.zeros((len(bits), held * per_page), bool)
    room[:, : words.shape[1]] = words
    touched = room.reshape(len(bits), held, per_page).any(2)[:, :pages]
    out = np.zeros((len(bits), (pages // WORD + 1) * WORD), bool)
    out[:, :pages] = touched
    return np.packbits(out, axis=1, bitorder="little").view("<u8")
