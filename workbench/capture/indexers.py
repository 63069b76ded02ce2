"""What each kind of indexer returns, read as rows of its requests.

Seen in transformers 5.17, the same for prefill and for steps with a cache:

* `GlmMoeDsaIndexer`, `DeepseekV32Indexer`: int32 [B, S, min(index_topk, T)], slots of the cache's
  T, best first. A query that sees fewer rows than that gets slots it cannot see, and a token of the
  padding any slots. The attention mask [B, S, T] (bool with SDPA, 0 and the least number with eager
  attention) says what each query sees; it is what the indexer itself masks by.
* `DeepseekV4Indexer`: int64 [B, S, min(index_topk, entries)], entries of the compressed cache, best
  first, -1 where fewer exist for the query. It knows positions and no mask: entries are pooled from
  `compress_rate` slots each, whatever the slots hold, so padding would be pooled with tokens.
"""

from typing import NamedTuple

import torch


class Part(NamedTuple):
    """One request's tokens in one call of an indexer."""

    request: tuple[int, int]  # (row of the batch, its first slot in the cache)
    places: torch.Tensor  # [tokens] int32, of each query in its request
    indices: torch.Tensor  # [tokens, index_topk] int32, from the request's first row on; -1: no row
    masked: torch.Tensor  # [tokens] int32, lanes that named a row the query cannot see


def masked_slots(module, call: dict, output: torch.Tensor) -> list[Part]:
    """Parts of an indexer that is given an attention mask.

    A request begins at the first slot that its queries see: left padding is before it, and of
    packed sequences each is one. The place of a query is how many slots it sees before its own,
    the last of them. Queries that see nothing, or no slot more than the query before them (right
    padding), are padding and left out. Raises ValueError on a mask with holes.
    """
    mask = call["attention_mask"]
    open_ = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    batch, queries, _ = output.shape
    open_ = open_.expand(batch, queries, -1)  # [B, S, T]
    slots = open_.shape[2]
    count = open_.sum(2)
    first = open_.int().argmax(2)
    last = (slots - 1 - open_.flip(2).int().argmax(2)).masked_fill(count == 0, -1)
    if ((last - first + 1 != count) & (count > 0)).any():
        raise ValueError("the attention mask has holes: a query sees rows that do not follow one "
                         "another, so its place in a request is not defined")  # fmt: skip
    real = count > 0
    real[:, 1:] &= last[:, 1:] != last[:, :-1]
    sees = open_.gather(2, output.long())
    rows = torch.where(sees, output - first[..., None], -1)
    masked = (~sees).sum(2)
    found = []
    for b in range(batch):
        for begins in first[b][real[b]].unique().tolist():
            mine = real[b] & (first[b] == begins)
            found.append(_part((b, begins), (last - first)[b, mine], rows[b, mine],
                               masked[b, mine], module.index_topk))  # fmt: skip
    return found


def compressed_entries(module, call: dict, output: torch.Tensor) -> list[Part]:
    """Parts of an indexer that selects from a compressed cache; its places are `position_ids`."""
    batch, queries, _ = output.shape
    places = call["position_ids"].expand(batch, queries)
    exist = (places + 1) // module.compress_rate
    late = output >= exist[..., None]
    rows = output.masked_fill(late, -1)
    return [_part((b, 0), places[b], rows[b], late[b].sum(1), module.index_topk)
            for b in range(batch)]  # fmt: skip


def _part(request, places, rows, masked, topk: int) -> Part:
    rows = torch.nn.functional.pad(rows.int(), (0, topk - rows.shape[1]), value=-1)
    return Part(request, *(t.int().cpu() for t in (places, rows, masked)))


def refuse_padding(module, args, kwargs) -> None:
    """Before an attention with a compressed cache runs: raise ValueError on a token of padding."""
    mask = kwargs.get("attention_mask")
    if mask is None:
        return
    own = mask[:, 0].diagonal(mask.shape[3] - mask.shape[2], 1, 2)  # of each query on itself
    if (~own if own.dtype == torch.bool else own < 0).any():
        raise ValueError("padded tokens: this model pools them with the others into its compressed "
                         "cache; run requests of one length, or one by one")  # fmt: skip


class Kind(NamedTuple):
    read: object  # (module, call, output) -> list[Part]
    pools: bool = False  # selects from a compressed cache


KINDS = {
    "GlmMoeDsaIndexer": Kind(masked_slots),
    "DeepseekV32Indexer": Kind(masked_slots),
    "DeepseekV4Indexer": Kind(compressed_entries, pools=True),
}
