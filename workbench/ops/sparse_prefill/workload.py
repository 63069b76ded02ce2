"""Workloads of sparse prefill: numbers and strings alone, and the suites of them."""

from dataclasses import dataclass, replace

from ... import selections

SINKS = ("none", "random", "-inf", "+inf")


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 2048  # T, query tokens of the call
    heads: int = 8  # H, query heads of this rank
    topk: int = 2048  # slots of a token
    rows: int | None = None  # S, of the cache; none: context + tokens
    context: int = 0  # rows of a request before its first query token, where `rows` is none
    law: str = "walk"  # how rows are selected: `boundary`, `boundary:core=0.9`, a preset's name
    churn: float = 0.10  # share of its rows that a walk swaps from token to token
    padding: str = "tail"  # where invalid lanes stand: one of selections.PADDINGS
    holes: float = 0.0  # share of the selected lanes that are made invalid
    wild: bool = False  # invalid lanes hold any number outside the cache, not only -1
    length: str = "none"  # topk_length: one of selections.LENGTHS
    sink: str = "none"  # attn_sink: one of SINKS
    first_position: int | None = None  # of token 0; none: the queries are the cache's last rows
    position_stride: int = 1  # above 1: a context-parallel rank's share of the tokens
    sm_scale: float = 1 / 16  # (192 + 64) ** -0.5, from the head width before absorption
    seed: int = 0
    requests: int = 1  # of the batch; they share tokens and cache rows evenly, one after another

    def __post_init__(self):
        selections.check(self)
        if self.heads < 1:
            raise ValueError(f"heads={self.heads} is below 1")
        if self.position_stride < 1:
            raise ValueError(f"position_stride={self.position_stride} is below 1")
        if self.sink not in SINKS:
            raise ValueError(f"sink={self.sink!r} is none of {', '.join(SINKS)}")

    @property
    def cache_rows(self) -> int:
        before = self.requests * self.context
        return before + self.tokens if self.rows is None else self.rows


_tiny = Workload(tokens=5, heads=8, topk=70, rows=160, churn=0.3)
_edges = (
    _tiny,
    replace(_tiny, tokens=1),
    replace(_tiny, tokens=0),
    replace(_tiny, topk=1),
    replace(_tiny, topk=64),  # a whole number of tiles
    replace(_tiny, heads=4),
    replace(_tiny, heads=16),
    replace(_tiny, heads=12),  # no power of two
    replace(_tiny, heads=1),
    replace(_tiny, rows=32),  # fewer rows than topk: every token pads
    replace(_tiny, rows=5, first_position=0),  # token 0 sees one row
    replace(_tiny, padding="head", holes=0.9),  # the first tile is fully masked
    replace(_tiny, padding="mixed", holes=0.4, law="uniform"),
    replace(_tiny, holes=1.0),  # nobody selects anything
    replace(_tiny, holes=1.0, sink="random", length="ragged"),
    replace(_tiny, wild=True, holes=0.3, padding="mixed"),
    replace(_tiny, length="ragged", law="uniform", wild=True, holes=0.2, tokens=7),
    replace(_tiny, length="counted", rows=50),
    replace(_tiny, sink="random"),
    replace(_tiny, sink="-inf"),
    replace(_tiny, sink="+inf"),
    replace(_tiny, position_stride=3, rows=90),  # a context-parallel rank
    replace(_tiny, tokens=6, churn=0.0, law="walk"),  # neighbours select the same rows
    replace(_tiny, sm_scale=1.0),  # a sharp softmax
    replace(_tiny, tokens=9, topk=1, law="uniform", holes=0.5),  # empty tokens beside others
    replace(_tiny, tokens=9, topk=64, length="ragged", seed=3),  # whole tiles, cut short
    replace(_tiny, tokens=4, topk=128, rows=600, length="counted", holes=0.6, law="uniform"),
    replace(_tiny, rows=8, sink="random"),  # few lanes: the sink takes much of the weight
    replace(_tiny, tokens=7, rows=300, requests=3),  # groups across requests, some rows padded
    replace(_tiny, tokens=9, rows=700, churn=1.0),  # neighbours share no row
    replace(_tiny, tokens=3, heads=32, topk=200, rows=400),  # two tokens of a group, then one
    replace(_tiny, tokens=2, heads=64, length="counted", sink="random"),  # a tile of one token
    # a tile and a part of one
    replace(_tiny, tokens=2, heads=80, padding="mixed", holes=0.4, sink="random"),
)

SUITES = {
    "edges": _edges,
    "tokens": tuple(
        Workload(tokens=tokens, rows=rows, heads=heads, churn=churn)
        for tokens, rows in ((2048, None), (4096, None), (8192, None), (2048, 10240))
        for heads in (8, 16)
        for churn in (0.02, 0.10, 0.25)
    ),
    # a tile of 64 query rows filled by a group of tokens, and by one token alone
    "full_tiles": (
        *(Workload(tokens=tokens) for tokens in (2048, 4096, 8192)),
        *(Workload(tokens=8192, heads=heads) for heads in (16, 32)),
        *(Workload(tokens=4096, heads=heads) for heads in (64, 128)),
        *(Workload(rows=10240, churn=churn) for churn in (0.02, 0.10, 0.25)),
    ),
    # how large a group pays: neighbours that are alike, and in how long a context
    "groups": tuple(
        Workload(context=context, churn=churn)
        for context in (0, 2048, 8192, 30720)
        for churn in (0.02, 0.10, 0.25, 1.00)
    ),
    "tokens_8_heads": tuple(Workload(tokens=tokens) for tokens in (2048, 4096, 8192)),
    "tokens_small": tuple(
        Workload(tokens=tokens, rows=1024 + tokens, topk=256) for tokens in (32, 64, 128)
    ),
}
