"""Steps shared by at least two variants. No kernel of its own lives here."""

import triton
import triton.language as tl


@triton.jit
def load_query(q, th, inside, D: tl.constexpr, DC: tl.constexpr, DR: tl.constexpr):
    """Latent and rotary part of the query rows `th` of q [T * H, D]; rows not `inside` are zero."""
    row = q + th[:, None] * D
    latent = tl.load(row + tl.arange(0, DC)[None, :], mask=inside[:, None], other=0.0)
    rotary = tl.load(row + DC + tl.arange(0, DR)[None, :], mask=inside[:, None], other=0.0)
    return latent, rotary


@triton.jit
def attend(
    acc, m, l, q_c, q_r, kv, rows, read, counts, scale_log2,
    KV_STRIDE, DC: tl.constexpr, DR: tl.constexpr,
):  # fmt: skip
    """Fold cache rows into the online softmax state (acc, m, l), in base 2.

    `read` [BLOCK_K] says which rows are fetched at all (the others are zeros, never row 0);
    `counts`, broadcast to [queries, BLOCK_K], which of them count for which query row.
    """
    row = kv + rows.to(tl.int64)[:, None] * KV_STRIDE
    keys_c = tl.load(row + tl.arange(0, DC)[None, :], mask=read[:, None], other=0.0)
    keys_r = tl.load(row + DC + tl.arange(0, DR)[None, :], mask=read[:, None], other=0.0)
    scores = tl.dot(q_c, tl.trans(keys_c))  # [queries, BLOCK_K]
    scores = tl.dot(q_r, tl.trans(keys_r), scores)
    scores = tl.where(counts, scores * scale_log2, -float("inf"))
    m_new = tl.maximum(m, tl.max(scores, 1))
    # a query that has met no valid lane keeps m = -inf; shifting by 0 keeps exp2 finite
    shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    p = tl.exp2(scores - shift[:, None])
    alpha = tl.exp2(m - shift)
    acc = tl.dot(p.to(keys_c.dtype), keys_c, acc * alpha[:, None])
    return acc, m_new, l * alpha + tl.sum(p, 1)


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
