"""Workloads of sparse decode: a step of some requests, each over its own pages of one pool."""

from dataclasses import dataclass, fields, replace

from ..fp8_prefill import workload as prefill

LAYOUTS = ("inline_656", "footer_584")
MOST_HEADS = 128
OWN = ("tokens_per_request", "gap")  # fields that a prefill does not have


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 32  # T, query tokens of the step
    heads: int = 16  # H, query heads of this rank
    topk: int = 2048  # slots of a token
    rows: int = 262144  # of the pool; the requests share them evenly, in pages here and there
    tokens_per_request: int = 1  # above 1: drafted tokens are checked; a request's last rows
    law: str = "walk"  # how rows are selected, of a request's own
    churn: float = 0.10  # share of its rows that a walk swaps from token to token of a request
    padding: str = "tail"  # where invalid lanes stand; mixed: lanes in no order
    holes: float = 0.0  # share of the selected lanes that are made invalid
    wild: bool = False  # invalid lanes hold any number outside the cache, not only -1
    length: str = "none"  # topk_length: one of selections.LENGTHS
    sink: str = "none"  # attn_sink: one of sparse_prefill's SINKS
    sm_scale: float = 1 / 16  # (192 + 64) ** -0.5, from the head width before absorption
    seed: int = 0
    layout: str = "inline_656"  # one of LAYOUTS, of both caches
    scale_format: str = "pow2_fp32"  # one of the layout's
    page_size: int = 64  # tokens of a page
    row_stride: int | None = None  # bytes from row to row; none: rows side by side
    padded: bool = False  # pages end in padding
    null_page: bool = False  # page 0 is a server's own: no token selects of it
    zeros: float = 0.0  # share of the groups that hold zeros
    extra_topk: int = 0  # slots of a token in a second cache; 0: there is none
    extra_rows: int = 0  # of the second cache; it spans the same contexts as the first one
    extra_page_size: int = 64
    extra_law: str = "walk"
    gap: int = 0  # numbers between the rows of indices and of out_lse: views of wider tensors

    def __post_init__(self):
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout={self.layout!r} is none of {', '.join(LAYOUTS)}")
        if self.heads > MOST_HEADS:
            raise ValueError(f"heads={self.heads} exceeds {MOST_HEADS}")
        if self.tokens_per_request < 1 or self.tokens % self.tokens_per_request:
            raise ValueError(f"tokens={self.tokens} is no multiple of tokens_per_request="
                             f"{self.tokens_per_request}")  # fmt: skip
        if self.gap < 0:
            raise ValueError(f"gap={self.gap} is below 0")
        self.prefill()

    def prefill(self) -> prefill.Workload:
        """The same tokens and rows as one call of `fp8_prefill`, which says what is wrong."""
        same = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in OWN}
        requests = max(1, self.tokens // self.tokens_per_request)
        return prefill.Workload(**same, requests=requests)


V32 = Workload()
GLM = replace(V32, scale_format="arbitrary_fp32")
V4 = replace(V32, layout="footer_584", scale_format="ue8m0", topk=128, padded=True)
V4_C4 = replace(V4, extra_topk=512, extra_rows=65536)  # C4A: a row for four of the main cache

_tiny = replace(V32, tokens=2, heads=8, topk=60, rows=320)
_glm = replace(_tiny, scale_format="arbitrary_fp32", topk=64)
_v4 = replace(_tiny, layout="footer_584", scale_format="ue8m0", padded=True)
_dual = replace(_v4, topk=64, extra_topk=70, extra_rows=240)
_edges = (
    _tiny,
    replace(_tiny, tokens=0),
    replace(_tiny, tokens=1, topk=1, heads=1),
    replace(_tiny, tokens=1, topk=64, heads=16),  # one whole chunk
    replace(_tiny, tokens=1, topk=500, rows=640, heads=12),  # a ragged tail behind seven chunks
    replace(_tiny, tokens=2, heads=40, sink="random", gap=3),
    replace(_tiny, tokens=1, heads=80, page_size=53, padded=True),
    replace(_tiny, tokens=1, heads=128, sink="random"),
    replace(_tiny, tokens=4, tokens_per_request=2, churn=0.3, gap=1, length="ragged"),
    replace(_tiny, tokens=3, topk=70, law="uniform", length="ragged", wild=True, holes=0.2, gap=64),
    replace(_tiny, topk=200, padding="head", holes=0.9),  # the first chunks are fully masked
    replace(_tiny, holes=1.0, sink="random", length="ragged"),  # nobody selects anything
    replace(_tiny, padding="mixed", holes=0.4, null_page=True, page_size=256),
    replace(_tiny, rows=40, length="counted", sink="-inf"),  # fewer rows than topk
    replace(_tiny, sm_scale=1.0, sink="+inf", row_stride=1088),  # a sharp softmax
    replace(_tiny, heads=16, zeros=0.3, page_size=2),
    _glm,
    replace(_glm, tokens=2, topk=1, heads=16),  # no other row averages what rounding leaves
    replace(_glm, sm_scale=1.0, zeros=0.5, holes=0.3, padding="mixed", topk=130),
    _v4,
    replace(_v4, tokens=1, padded=False, page_size=53, zeros=0.3, heads=16, topk=1),
    replace(_v4, tokens=1, page_size=256, null_page=True, holes=0.4, padding="mixed", wild=True,
            heads=64),
    _dual,
    replace(_dual, tokens=0),
    replace(_dual, extra_page_size=2, padded=False, sink="random", heads=16, gap=8),
    replace(_dual, tokens=4, tokens_per_request=2, length="ragged", wild=True, holes=0.3,
            law="uniform", extra_law="uniform", null_page=True, extra_page_size=128),
    replace(_dual, topk=20, extra_topk=130, padding="head", holes=0.9, heads=12),
    replace(_dual, holes=1.0, tokens=2),
)  # fmt: skip

# An indexer names rows in no order; a walk that selects all of a context would name them in turn
_step = replace(V32, padding="mixed")
SUITES = {
    "edges": _edges,
    "requests": tuple(replace(_step, tokens=tokens, heads=heads) for heads in (16, 64, 128)
                      for tokens in (1, 32, 128)),
    "crossover": tuple(replace(_step, tokens=tokens, heads=heads) for heads in (16, 64, 128)
                       for tokens in (1, 4, 8, 16, 24, 32, 48, 64, 65, 96, 128)),
    # none of them is a point that the chunk model is fitted on
    "splits": tuple(replace(_step, tokens=tokens, heads=heads, topk=topk)
                    for tokens in (1, 4, 16, 48, 96) for heads in (16, 64, 128)
                    for topk in (256, 768, 1536, 2048)),
}  # fmt: skip
