"""Workloads of fp8 prefill: what a model's attention reads, in which layout, and the suites."""

from dataclasses import dataclass, replace

import torch

from ... import layouts, selections
from ...layouts import LAYOUTS
from ..sparse_prefill.workload import SINKS

EXTRA_SEED = 1 << 20  # added to the seed: the extra cache's lanes are drawn on their own


@dataclass(frozen=True, kw_only=True)
class Workload:
    tokens: int = 2048  # T, query tokens of the call
    heads: int = 16  # H, query heads of this rank
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
    layout: str = "inline_656"  # one of layouts.LAYOUTS, of both caches
    scale_format: str = "pow2_fp32"  # one of the layout's
    page_size: int = 64  # tokens of a page
    row_stride: int | None = None  # bytes from row to row; none: rows side by side
    padded: bool = False  # pages end in padding
    null_page: bool = False  # page 0 is a server's own: no token selects of it
    zeros: float = 0.0  # share of the groups that hold zeros
    extra_topk: int = 0  # slots of a token in a second cache; 0: there is none
    extra_rows: int = 0  # of the second cache; it spans the same context as the first one
    extra_page_size: int = 64
    extra_law: str = "walk"

    def __post_init__(self):
        selections.check(self)
        for name in ("heads", "position_stride", "page_size", "extra_page_size", "extra_topk",
                     "extra_rows"):  # fmt: skip
            least = 0 if name in ("extra_topk", "extra_rows") else 1
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} is below {least}")
        for name, known in (("sink", SINKS), ("layout", LAYOUTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is none of {', '.join(known)}")
        if not 0.0 <= self.zeros <= 1.0:
            raise ValueError(f"zeros={self.zeros} is outside [0, 1]")
        layout = LAYOUTS[self.layout]
        if self.scale_format not in layout.formats:
            raise ValueError(f"scale_format={self.scale_format!r} is none of {layout.name}'s: "
                             f"{', '.join(layout.formats)}")  # fmt: skip
        layouts.page_bytes(layout, self.page_size, self.row_stride)
        if self.row_stride and self.row_stride % 4:
            raise ValueError(f"row_stride={self.row_stride} is no multiple of 4, a scale's bytes")
        if self.extra_topk:
            if not layout.footer_bytes:
                raise ValueError(f"extra_topk={self.extra_topk}: no model with {layout.name} has a "
                                 "second cache")  # fmt: skip
            selections.check(self.extra())
        elif self.extra_rows:
            raise ValueError(f"extra_rows={self.extra_rows}, but extra_topk=0 selects none of them")

    @property
    def cache_rows(self) -> int:
        before = self.requests * self.context
        return before + self.tokens if self.rows is None else self.rows

    def extra(self) -> "Workload":
        """The second cache as if it were the only one."""
        return replace(
            self, topk=self.extra_topk, rows=self.extra_rows, page_size=self.extra_page_size,
            law=self.extra_law, seed=self.seed + EXTRA_SEED, extra_topk=0, extra_rows=0,
        )  # fmt: skip

    def extra_positions(self, positions: torch.Tensor) -> torch.Tensor:
        """The last row of the second cache that stands for rows up to each of `positions` [T].

        Rows 0 to p of the main cache are behind (p + 1) * extra_rows / rows compressed ones; a
        query before the end of the first one sees that one.
        """
        seen = (positions.long() + 1) * self.extra_rows // max(1, self.cache_rows)
        return (seen.clamp(min=1) - 1).to(torch.int32)


V32 = Workload()
GLM = replace(V32, scale_format="arbitrary_fp32")
GLM53 = replace(GLM, layout="inline_528", topk=2176)  # 2,048 and the indexer's tail of 128
# A window of 128 rows loses one of them a token; here the walk swaps one
V4 = replace(V32, layout="footer_584", scale_format="ue8m0", topk=128, law="walk:churn=0.0078125",
             page_size=64, padded=True)  # fmt: skip
V4_C4 = replace(V4, extra_topk=512, extra_page_size=64)
V4_C128 = replace(V4, extra_topk=64, extra_page_size=2)
DOTS3 = replace(V4, layout="footer_1160", topk=576, law="walk:churn=0.001953125")


def _dual(model: Workload, ratio: int, tokens: int, **changes) -> Workload:
    """A DeepSeek-V4 layer whose extra cache holds a row for `ratio` of the main one."""
    return replace(model, tokens=tokens, extra_rows=-(-tokens // ratio), **changes)


_tiny = replace(V32, tokens=4, heads=8, topk=40, rows=150, churn=0.3)
_glm = replace(_tiny, scale_format="arbitrary_fp32")
_nope = replace(_glm, layout="inline_528")
_v4 = replace(_tiny, layout="footer_584", scale_format="ue8m0", padded=True)
_dual_tiny = replace(_v4, topk=20, extra_topk=30, extra_rows=60)
_dots = replace(_v4, layout="footer_1160", tokens=3)
_edges = (
    _tiny,
    replace(_tiny, tokens=1, topk=1),
    replace(_tiny, tokens=0),
    replace(_tiny, topk=64, heads=16),  # a whole number of tiles
    replace(_tiny, heads=12, page_size=53, padded=True),  # off the grid
    replace(_tiny, heads=1, row_stride=1088, page_size=61),
    replace(_tiny, heads=24, tokens=2, zeros=0.3),
    replace(_tiny, heads=64, tokens=2, sink="random"),
    replace(_tiny, heads=80, tokens=2, page_size=2),
    replace(_tiny, padding="head", holes=0.9),  # the first tile is fully masked
    replace(_tiny, holes=1.0, sink="random", length="ragged"),  # nobody selects anything
    replace(_tiny, padding="mixed", holes=0.4, law="uniform", null_page=True),
    replace(_tiny, length="ragged", law="uniform", wild=True, holes=0.2, tokens=6),
    replace(_tiny, rows=20, length="counted", sink="-inf"),  # fewer rows than topk
    replace(_tiny, sm_scale=1.0, sink="+inf"),
    _glm,
    replace(_glm, tokens=2, topk=1, heads=16),  # no other row averages what rounding leaves
    replace(_glm, zeros=0.5, null_page=True, holes=0.3, padding="mixed"),
    replace(_glm, sm_scale=1.0, page_size=256),  # a sharp softmax
    replace(_glm, rows=8, sink="random", heads=32, tokens=2),
    replace(_glm, row_stride=1088, padded=True, length="ragged", law="uniform", wild=True),
    _nope,
    replace(_nope, row_stride=656, null_page=True, holes=0.3, padding="mixed"),
    replace(_nope, topk=70, page_size=69, zeros=0.3, sm_scale=1.0, heads=4),
    _v4,
    replace(_v4, padded=False, page_size=53, zeros=0.3, heads=16),
    replace(_v4, page_size=256, null_page=True, holes=0.4, padding="mixed", wild=True),
    replace(_v4, page_size=2, length="ragged", law="uniform", sink="random"),
    _dual_tiny,
    replace(_dual_tiny, extra_page_size=2, extra_topk=64, padded=False, sink="random"),
    replace(
        _dual_tiny,
        page_size=128,
        extra_page_size=128,
        length="ragged",
        law="uniform",
        extra_law="uniform",
        wild=True,
        holes=0.3,
        null_page=True,
        tokens=6,
    ),
    replace(_dual_tiny, extra_page_size=61, padding="head", holes=0.9, heads=12),
    replace(_dual_tiny, holes=1.0, tokens=2),
    _dots,
    replace(_dots, padded=False, page_size=61, heads=16, holes=0.4, padding="mixed", zeros=0.3),
    replace(_dots, topk=64, page_size=2, sink="random", length="ragged", law="uniform"),
)

SUITES = {
    "edges": _edges,
    "tokens": (
        *(replace(model, tokens=tokens, heads=heads) for model in (V32, GLM)
          for tokens in (128, 512, 2048, 8192) for heads in (64, 128)),
        *(replace(model, tokens=2048, heads=heads) for model in (V32, GLM)
          for heads in (8, 16, 32)),
        *(replace(GLM53, tokens=tokens, heads=heads) for tokens in (512, 2048, 8192)
          for heads in (32, 64)),
        *(_dual(V4_C4, 4, tokens, heads=heads) for tokens in (2048, 8192)
          for heads in (8, 16, 64, 128)),
        *(_dual(V4_C128, 128, 8192, heads=heads) for heads in (64, 128)),
        *(replace(V4, tokens=2048, heads=heads) for heads in (64, 128)),
        *(replace(DOTS3, tokens=tokens, heads=heads) for tokens in (512, 2048)
          for heads in (8, 16, 64)),
    ),
    # what a pass over the whole pool costs: pools of T, 65,536 and 262,144 rows
    "pools": tuple(replace(V32, tokens=4096, heads=heads, rows=rows)
                   for rows in (None, 65536, 262144) for heads in (64, 128)),
    "tokens_small": tuple(replace(V32, tokens=tokens, rows=1024 + tokens, topk=256)
                          for tokens in (32, 64, 128)),
}  # fmt: skip
