"""Which page sizes a reader takes as they lie, which after a split, which not at all.

The answer comes before a launch: a reader that meets a page size that it was not built for aborts
the server (sgl-project/sglang#38969, flashinfer-ai/flashinfer#5244), or reads at a wrong stride.
DeepSeek-V4 keeps its sliding window in pages of 256 tokens, and a layer's second cache in pages of
256 / ratio: 64 for C4A, 2 for C128A, 128 for ratio 2 (V4.1).
"""

from dataclasses import dataclass

from .definition import PAGE

AS_IT_IS, SPLIT = "as it is", "split"
ROUTES = (AS_IT_IS, SPLIT)

CACHES = {"window": 256, "C4A": 64, "C128A": 2, "ratio 2": 128}  # tokens of a page, by cache


class Uncovered(ValueError):
    """No way leads from this page size to this reader."""


@dataclass(frozen=True)
class Reader:
    """Page sizes that a kernel was built for, as its two caches may have them."""

    name: str
    main: frozenset[int] = frozenset({PAGE})
    extra: frozenset[int] | None = frozenset({PAGE})  # None: any, taken when it runs

    def takes(self, page_size: int, extra: bool = False) -> bool:
        sizes = self.extra if extra else self.main
        return sizes is None or page_size in sizes


# As read in FlashInfer's sparse_mla_sm120: its prefill kernels before and after #5244, its decode
READERS = (
    Reader("64 alone"),
    Reader("prefill", extra=frozenset({PAGE, 2})),
    Reader("prefill, from #5244 on", extra=frozenset({PAGE, 2, 128})),
    Reader("decode", extra=None),
)


def route(reader: Reader, page_size: int, extra: bool = False) -> str:
    """How pages of `page_size` tokens get to `reader`: AS_IT_IS or SPLIT.

    Raises Uncovered where neither works, naming the sizes that do.
    """
    if page_size < 1:
        raise Uncovered(f"page_size={page_size} is below 1")
    if reader.takes(page_size, extra):
        return AS_IT_IS
    if page_size % PAGE == 0 and reader.takes(PAGE, extra):
        return SPLIT
    sizes = sorted(reader.extra if extra else reader.main)
    which = "extra cache" if extra else "cache"
    raise Uncovered(
        f"{reader.name}: pages of {page_size} tokens of the {which} are neither of its "
        f"{', '.join(map(str, sizes))} nor whole pages of {PAGE}"
    )
