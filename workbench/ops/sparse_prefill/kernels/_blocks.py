"""Steps shared by at least two variants. No kernel of its own lives here."""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)
MASKED = tl.constexpr(-1e30)  # score of a lane that does not count, and the running maximum's start


@triton.jit
def load_query(q, th, inside, D: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr):
    """Latent and rotary part of the query rows `th` of q [T * H, D]; rows not `inside` are zero."""
    row = q + th[:, None] * D
    latent = tl.load(row + tl.arange(0, DC)[None, :], mask=inside[:, None], other=0.0)
    rotary = tl.load(row + DC + tl.arange(0, DR)[None, :], mask=inside[:, None], other=0.0)
    return latent, rotary


@triton.jit
def load_lanes(lanes, k, end, absent, WHOLE: tl.constexpr):
    """Entries `k` of a list; entries at or past `end` are whatever stands there, or `absent`.

    WHOLE: the list is whole tiles, so no mask is needed to stay inside of it. A mask on these loads
    about doubles the comparisons and the address arithmetic of the loop.
    """
    if WHOLE:
        found = tl.load(lanes + k)
    else:
        found = tl.load(lanes + k, mask=k < end, other=absent)
    return found


@triton.jit
def gather(kv, rows, read, KV_STRIDE: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr):
    """Latent and rotary part of cache rows [BLOCK_K]; zeros, and not row 0, where not `read`."""
    row = kv + rows.to(tl.int64)[:, None] * KV_STRIDE
    latent, rotary = row + tl.arange(0, DC)[None, :], row + DC + tl.arange(0, DR)[None, :]
    keys_c = tl.load(latent, mask=read[:, None], other=0.0)
    return keys_c, tl.load(rotary, mask=read[:, None], other=0.0)


@triton.jit
def attend(acc, m, l, q_c, q_r, keys_c, keys_r, counts, scale_log2):
    """Fold cache rows into the online softmax state (acc, m, l), in base 2.

    `counts`, broadcast to [queries, BLOCK_K], says which row counts for which query. A masked score
    is finite, so that a query which has met no valid lane yet does not compute -inf - -inf; its
    weights are then set to zero, since exp2(score - m) of nothing but masked lanes is one.
    """
    scores = tl.dot(q_c, tl.trans(keys_c))  # [queries, BLOCK_K]
    scores = tl.dot(q_r, tl.trans(keys_r), scores)
    scores = tl.where(counts, scores * scale_log2, MASKED)
    m_new = tl.maximum(m, tl.max(scores, 1))
    p = tl.exp2(scores - m_new[:, None])
    p = tl.where(counts, p, 0.0)
    alpha = tl.exp2(m - m_new)
    l = l * alpha + tl.sum(p, 1)  # before the product: the compiler schedules the loop by it
    acc = acc * alpha[:, None]
    acc = tl.dot(p.to(keys_c.dtype), keys_c, acc)
    return acc, m_new, l


@triton.jit
def finish(acc, m, l, sink_log2):
    """(out, base-2 lse) of the softmax state; no valid lane gives zeros and -inf.

    `sink_log2` is the attention sink as a base-2 logit, -inf for none; lse excludes it.
    """
    safe = tl.where(l == 0.0, 1.0, l)
    lse = tl.where(l == 0.0, -float("inf"), m + tl.log2(safe))
    kept = tl.where(l == 0.0, 0.0, 1.0 / (1.0 + tl.exp2(sink_log2 - tl.where(l == 0.0, 0.0, lse))))
    return acc * (kept / safe)[:, None], lse


@triton.jit
def store_result(out, lse, th, inside, row_out, row_lse, DC: tl.constexpr):
    """Write rows `th` of out [T * H, DC] and lse [T * H] where `inside`."""
    place = out + th[:, None] * DC + tl.arange(0, DC)[None, :]
    tl.store(place, row_out.to(out.dtype.element_ty), mask=inside[:, None])
    tl.store(lse + th, row_lse, mask=inside)
