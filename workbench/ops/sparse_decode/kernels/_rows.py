"""What the variants in plain Triton share: the softmax of a token's heads over a part of its lanes.

A row's codes become one bf16 row of 512 columns, and one product a tile gives its scores, another
one its values. Under scales that are powers of two that row is exact. Other scales leave more
digits than bf16 has: what it rounds away is a second row of the same tile, and what that one leaves
still counts in the scores, whose error is the error of `lse`.
"""

import triton
import triton.language as tl

from ...fp8_prefill.kernels._blocks import locate

MASKED = tl.constexpr(-1e30)  # score of a lane that does not count, and the running maximum's start


@triton.jit
def _counted(length, t, TOPK):
    """Lanes of token `t` that may count: its length, where there is one, within [0, TOPK]."""
    counted = TOPK
    if length is not None:
        counted = tl.minimum(tl.load(length + t), TOPK)
    return counted


@triton.jit
def _listed(
    lanes, extra_lanes,
    start, of_main, counted, extra_counted, tokens, extra_tokens,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """(what the lanes from `start` on name, which of them count) [BLOCK_K].

    Lanes of the second cache are those from `of_main` on; a tile is all of one cache.
    """
    k = start + tl.arange(0, BLOCK_K)
    if extra_lanes is not None:
        second = start >= of_main
        k = tl.where(second, k - of_main, k)
        lanes = tl.where(second, extra_lanes, lanes)
        counted = tl.where(second, extra_counted, counted)
        tokens = tl.where(second, extra_tokens, tokens)
    token = tl.load(lanes + k, mask=k < counted, other=-1)
    return token, (token >= 0) & (token < tokens)


@triton.jit
def _scales(at, group, valid, GROUPS: tl.constexpr, FOOTER_BYTES: tl.constexpr):
    """Scales [BLOCK_K, BLOCK_G] float32 of the groups `group` at the bytes `at`; 0 if not `valid`.

    A footer's eight bytes are one word. Byte b is 2**(b - 127), exactly, also the subnormal of byte
    0; byte 255 is NaN.
    """
    if FOOTER_BYTES:
        words = tl.load(at.to(tl.pointer_type(tl.int64)), mask=valid, other=0)  # [BLOCK_K]
        byte = ((words[:, None] >> (8 * group).to(tl.int64)[None, :]) & 255).to(tl.int32)
        bits = tl.where(byte == 0, 1 << 22, byte << 23)
        bits = tl.where(byte == 255, 0x7FC00000, bits)
        read = valid[:, None] & (group < GROUPS)[None, :]
        scales = tl.where(read, bits.to(tl.float32, bitcast=True), 0.0)
    else:
        place = at.to(tl.pointer_type(tl.float32))[:, None] + group[None, :]
        scales = tl.load(place, mask=valid[:, None], other=0.0)
    return scales


@triton.jit
def _fetched(
    cache, extra_cache,
    token, valid, start, of_main, page_stride, row_stride, extra_page_stride,
    PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr, NOPE: tl.constexpr,
    ROPE: tl.constexpr, GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    """Codes [BLOCK_K, BLOCK_G, GROUP], scales [BLOCK_K, BLOCK_G] and rotary values of `token`."""
    group, c = tl.arange(0, BLOCK_G), tl.arange(0, GROUP)
    column = group[:, None] * GROUP + c[None, :]  # [BLOCK_G, GROUP]
    token = tl.where(valid, token, 0)
    row, at = locate(token, page_stride, row_stride, PAGE_SIZE, NOPE, FOOTER_BYTES)
    if extra_cache is not None:
        second = start >= of_main
        extra = locate(token, extra_page_stride, row_stride, EXTRA_PAGE_SIZE, NOPE, FOOTER_BYTES)
        row, at = tl.where(second, extra[0], row), tl.where(second, extra[1], at)
        cache = tl.where(second, extra_cache, cache)
    read = valid[:, None, None]
    if NOPE < BLOCK_G * GROUP:
        read = read & (column < NOPE)[None, :, :]
    codes = tl.load(cache + row[:, None, None] + column[None, :, :], mask=read, other=0)
    scales = _scales(cache + at, group, valid, NOPE // GROUP, FOOTER_BYTES)
    ROW: tl.constexpr = NOPE if FOOTER_BYTES else NOPE + 4 * (NOPE // GROUP)
    rotary = (cache + row[:, None] + ROW).to(tl.pointer_type(tl.bfloat16))
    keys_r = tl.load(rotary + tl.arange(0, ROPE)[None, :], mask=valid[:, None], other=0.0)
    return codes, scales, keys_r


@triton.jit
def _rows(codes, scales, PASSES: tl.constexpr):
    """(what is multiplied [PASSES * BLOCK_K, WIDTH] bf16: rows, then what these left out; what both
    leave out [BLOCK_K, WIDTH], of one pass nothing)."""
    K: tl.constexpr = codes.shape[0]
    WIDTH: tl.constexpr = codes.shape[1] * codes.shape[2]
    codes = codes.to(tl.float8e4nv, bitcast=True)
    if PASSES == 1:
        rows = codes.to(tl.bfloat16) * scales.to(tl.bfloat16)[:, :, None]
        third = tl.zeros([1], tl.bfloat16)  # in place of what there is not
    else:
        whole = codes.to(tl.float32) * scales[:, :, None]
        near = whole.to(tl.bfloat16)
        left = whole - near.to(tl.float32)
        second = left.to(tl.bfloat16)
        third = tl.reshape((left - second.to(tl.float32)).to(tl.bfloat16), [K, WIDTH])
        rows = tl.permute(tl.join(near, second), (3, 0, 1, 2))
    return tl.reshape(rows, [PASSES * K, WIDTH]), third


@triton.jit
def _folded(
    acc, acc_r, m, l, kept, q_c, q_r, rows, third, keys_r, valid,
    scale_log2,
    ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr,
):  # fmt: skip
    """The softmax state (acc, acc_r, m, l, kept), base 2, with a tile of rows folded in.

    The running maximum is a whole number: then a weight has the same digits whatever rows were met
    before, its rounding to bf16 does not depend on the split, and rescaling is exact. `kept` is the
    share of a tile's weights that rounding left, and acc is `kept` times the answers so far: a
    single row is exact. Heads are rows of each product: with the cache's rows in their place, the
    values turned round, Triton 3.6 reads other values for the second of two warp groups.
    """
    K: tl.constexpr = keys_r.shape[0]
    H: tl.constexpr = q_c.shape[0]
    scores = tl.dot(q_c, tl.trans(rows))  # [H, PASSES * K]
    if PASSES == 2:
        scores = tl.dot(q_c, tl.trans(third), tl.sum(tl.reshape(scores, [H, 2, K]), 1))
    scores = tl.dot(q_r, tl.trans(keys_r), scores)
    scores = tl.where(valid[None, :], scores * scale_log2, MASKED)
    m_new = tl.maximum(m, tl.ceil(tl.max(scores, 1)))
    p = tl.where(valid[None, :], tl.exp2(scores - m_new[:, None]), 0.0)
    alpha = tl.exp2(m - m_new)
    weights = p.to(tl.bfloat16)
    exact, rounded = tl.sum(p, 1), tl.sum(weights.to(tl.float32), 1)
    l = l * alpha + exact
    some = rounded > 0.0
    whole = tl.where(some, exact, 1.0)
    scaled = (alpha * tl.where(some, rounded / (kept * whole), 1.0 / kept))[:, None]
    now = tl.where(some, rounded / whole, 1.0)
    if ROPE_IN_V:
        acc_r = tl.dot(weights, keys_r, acc_r * scaled)
    if PASSES == 2:
        weights = tl.reshape(tl.broadcast_to(weights[:, None, :], [H, 2, K]), [H, 2 * K])
    acc = tl.dot(weights, rows, acc * scaled)  # [H, BLOCK_G * GROUP]
    return acc, acc_r, m_new, l, now


@triton.jit
def attend(
    q, cache, indices, topk_length, extra_cache, extra_indices, extra_topk_length,
    scale_log2, t, h, first, end,
    H, TOKENS, TOPK, INDICES_STRIDE, PAGE_STRIDE, ROW_STRIDE,
    EXTRA_TOKENS, EXTRA_TOPK, EXTRA_INDICES_STRIDE, EXTRA_PAGE_STRIDE,
    CHUNK: tl.constexpr, PAGE_SIZE: tl.constexpr, EXTRA_PAGE_SIZE: tl.constexpr,
    NOPE: tl.constexpr, ROPE: tl.constexpr, GROUP: tl.constexpr, FOOTER_BYTES: tl.constexpr,
    ROPE_IN_V: tl.constexpr, PASSES: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """(acc, its rotary columns, lse) of heads `h` of token `t` over the chunks `first` to `end`.

    Chunks are those of the main cache, then those of the second one, which begin anew. Answers are
    float32; without a valid lane they are 0, and lse is -inf.
    """
    head = (t * H + h)[:, None]
    inside = (h < H)[:, None]
    column, rotary = tl.arange(0, BLOCK_G * GROUP)[None, :], NOPE + tl.arange(0, ROPE)[None, :]
    q_c = tl.load(q + head * (NOPE + ROPE) + column, mask=inside & (column < NOPE), other=0.0)
    q_r = tl.load(q + head * (NOPE + ROPE) + rotary, mask=inside, other=0.0)
    acc = tl.zeros([BLOCK_H, BLOCK_G * GROUP], tl.float32)
    acc_r = tl.zeros([BLOCK_H, ROPE], tl.float32)
    m = tl.full([BLOCK_H], MASKED, tl.float32)
    l = tl.zeros([BLOCK_H], tl.float32)
    kept = tl.full([BLOCK_H], 1.0, tl.float32)

    lanes, of_main = indices + t * INDICES_STRIDE, tl.cdiv(TOPK, CHUNK) * CHUNK
    # lanes of the next program do not count here: their bytes are not fetched ahead either
    counted = tl.minimum(_counted(topk_length, t, TOPK), end * CHUNK)
    last, extra_lanes, extra_counted = counted, extra_indices, 0
    if extra_cache is not None:
        extra_lanes = extra_indices + t * EXTRA_INDICES_STRIDE
        extra_counted = _counted(extra_topk_length, t, EXTRA_TOPK)
        extra_counted = tl.minimum(extra_counted, end * CHUNK - of_main)
        last = tl.where(extra_counted > 0, of_main + extra_counted, counted)
    start = first * CHUNK
    token, valid = _listed(lanes, extra_lanes, start, of_main, counted, extra_counted, TOKENS,
                           EXTRA_TOKENS, BLOCK_K)  # fmt: skip
    codes, scales, keys_r = _fetched(
        cache, extra_cache, token, valid, start, of_main, PAGE_STRIDE, ROW_STRIDE,
        EXTRA_PAGE_STRIDE, PAGE_SIZE, EXTRA_PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES, BLOCK_G,
    )  # fmt: skip
    rows, third = _rows(codes, scales, PASSES)
    token, then = _listed(lanes, extra_lanes, start + BLOCK_K, of_main, counted, extra_counted,
                          TOKENS, EXTRA_TOKENS, BLOCK_K)  # fmt: skip
    for start in range(first * CHUNK, last, BLOCK_K):
        # the bytes of the next tile, and the lanes of the one behind it, are on their way meanwhile
        codes, scales, next_r = _fetched(
            cache, extra_cache, token, then, start + BLOCK_K, of_main, PAGE_STRIDE, ROW_STRIDE,
            EXTRA_PAGE_STRIDE, PAGE_SIZE, EXTRA_PAGE_SIZE, NOPE, ROPE, GROUP, FOOTER_BYTES,
            BLOCK_G,
        )  # fmt: skip
        token, later = _listed(lanes, extra_lanes, start + 2 * BLOCK_K, of_main, counted,
                               extra_counted, TOKENS, EXTRA_TOKENS, BLOCK_K)  # fmt: skip
        acc, acc_r, m, l, kept = _folded(
            acc, acc_r, m, l, kept, q_c, q_r, rows, third, keys_r, valid, scale_log2, ROPE_IN_V,
            PASSES,
        )  # fmt: skip
        # carried as rows, not as codes: a product of what the loop carries reads shared memory,
        # one of what it has just computed holds it all in registers
        rows, third = _rows(codes, scales, PASSES)
        keys_r = next_r
        valid, then = then, later
    safe = tl.where(l == 0.0, 1.0, l)
    whole = (1.0 / (safe * kept))[:, None]  # without a lane, acc is 0
    lse = tl.where(l == 0.0, -float("inf"), m + tl.log2(safe))
    return acc * whole, acc_r * whole, lse


@triton.jit
def store(
    out, row, inside, acc, acc_r,
    NOPE: tl.constexpr, ROPE: tl.constexpr, ROPE_IN_V: tl.constexpr, D_V: tl.constexpr,
):  # fmt: skip
    """Write the answers of the heads `row` of out [.., D_V] where `inside`."""
    column = tl.arange(0, acc.shape[1])[None, :]
    to = out + row[:, None] * D_V
    kind: tl.constexpr = out.dtype.element_ty
    tl.store(to + column, acc.to(kind), mask=inside[:, None] & (column < NOPE))
    if ROPE_IN_V:
        place = to + NOPE + tl.arange(0, ROPE)[None, :]
        tl.store(place, acc_r.to(kind), mask=inside[:, None])
