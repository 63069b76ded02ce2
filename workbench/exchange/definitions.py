"""Sparse attention as FlashInfer-Bench defines it: the document, and what a document says of ours.

One definition for each number of heads, slots and rows a page; tokens and pages vary. Its names,
axes and tensors are those of `dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64`
(flashinfer-ai/flashinfer-bench, docs/op-types/dsa-paged); the reference is our own text.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from ..ops.sparse_prefill.definition import DC, DR

OP_TYPE = "dsa_paged"
REFERENCE = Path(__file__).with_name("reference.py")
AXES = {  # name -> what it is
    "num_tokens": "query tokens of the call, of prefill and decode alike",
    "num_qo_heads": "query heads of this rank",
    "head_dim_ckv": "latent width: of a value, and of a key's first part",
    "head_dim_kpe": "rotary width: of a key's second part",
    "page_size": "rows of a page",
    "topk": "slots of a token",
    "num_pages": "pages of the cache",
}
VARIABLE = ("num_tokens", "num_pages")
INPUTS = {  # name -> shape, dtype, what it is; a shape of None is a Python number
    "q_nope": (("num_tokens", "num_qo_heads", "head_dim_ckv"), "bfloat16",
               "latent part of the queries"),
    "q_pe": (("num_tokens", "num_qo_heads", "head_dim_kpe"), "bfloat16",
             "rotary part of the queries"),
    "ckv_cache": (("num_pages", "page_size", "head_dim_ckv"), "bfloat16",
                  "latent part of the cache rows; these are the values, too"),
    "kpe_cache": (("num_pages", "page_size", "head_dim_kpe"), "bfloat16",
                  "rotary part of the cache rows"),
    "sparse_indices": (("num_tokens", "topk"), "int32",
                       "rows that each token reads: page * page_size + offset; -1 is padding"),
    "sm_scale": (None, "float32", "softmax scale"),
}  # fmt: skip
OUTPUTS = {
    "output": (("num_tokens", "num_qo_heads", "head_dim_ckv"), "bfloat16",
               "attention output; 0 for a token without a row"),
    "lse": (("num_tokens", "num_qo_heads"), "float32",
            "2-based log-sum-exp of the scaled scores; -inf for a token without a row"),
}  # fmt: skip
CONSTRAINTS = (
    "sparse_indices.shape == (num_tokens, topk)",
    "ckv_cache.shape[1] == page_size",
    "kpe_cache.shape[:2] == ckv_cache.shape[:2]",
)
NAME = re.compile(rf"dsa_sparse_attention_h(\d+)_ckv{DC}_kpe{DR}_topk(\d+)_ps(\d+)")
BASES = {"2": r"\b2-based\b|\bbase[- ]2\b|\blog2\b", "e": r"\bnatural\b|\bbase[- ]e\b|\be-based\b"}


@dataclass(frozen=True, kw_only=True)
class Contract:
    """What a definition of sparse attention fixes."""

    heads: int
    topk: int
    page_size: int
    lse_base: str = "2"  # "2" or "e", a tag: what the definition says, not what a kernel did
    padding: int = -1  # lanes of this number are no rows
    empty_lse: float = -math.inf  # of a token without a row

    def __post_init__(self):
        for name in ("heads", "topk", "page_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} is below 1")

    @property
    def name(self) -> str:
        return (f"dsa_sparse_attention_h{self.heads}_ckv{DC}_kpe{DR}"
                f"_topk{self.topk}_ps{self.page_size}")  # fmt: skip

    @property
    def constants(self) -> dict[str, int]:
        return {"num_qo_heads": self.heads, "head_dim_ckv": DC, "head_dim_kpe": DR,
                "page_size": self.page_size, "topk": self.topk}  # fmt: skip


def shape(c: Contract, name: str, tokens: int, pages: int) -> tuple[int, ...]:
    """The shape of the input tensor `name` at these variable axes."""
    sizes = c.constants | {"num_tokens": tokens, "num_pages": pages}
    return tuple(sizes[axis] for axis in INPUTS[name][0])


def document(c: Contract) -> dict:
    """The definition as it stands in a file. Raises ValueError on another base than ours."""
    if c.lse_base != "2":
        raise ValueError(f"lse_base={c.lse_base!r}: what is exported here is base 2")
    sizes = c.constants
    axes = {
        name: {"type": "var", "description": told} if name in VARIABLE else
        {"type": "const", "value": sizes[name], "description": told}
        for name, told in AXES.items()
    }  # fmt: skip
    return {
        "name": c.name,
        "description": "Each query token attends to its own selected rows of one latent cache "
        "(DeepSeek-V3.2, GLM-5); prefill and decode differ in the number of tokens only.",
        "op_type": OP_TYPE,
        "tags": ["sparse:topk", f"lse_base:{c.lse_base}", f"padding:{c.padding}",
                 f"empty_lse:{c.empty_lse}"],
        "axes": axes,
        "constraints": list(CONSTRAINTS),
        "inputs": _tensors(INPUTS),
        "outputs": _tensors(OUTPUTS),
        "reference": REFERENCE.read_text(),
    }  # fmt: skip


def _tensors(specs: dict) -> dict:
    return {name: {"shape": shape and list(shape), "dtype": dtype, "description": told}
            for name, (shape, dtype, told) in specs.items()}  # fmt: skip


def named(name: str) -> Contract | None:
    """What a name of the contract's form says; None of another name, or one that says nothing."""
    found = NAME.fullmatch(name)
    sizes = [int(digits) for digits in found.groups()] if found else [0]
    return Contract(heads=sizes[0], topk=sizes[1], page_size=sizes[2]) if all(sizes) else None


def contract(definition: dict) -> Contract:
    """What a valid definition fixes. Raises ValueError where it is not of `sparse_prefill`."""
    name = definition["name"]
    if definition["op_type"] != OP_TYPE:
        raise ValueError(f"{name} is of op_type {definition['op_type']!r}, not {OP_TYPE!r}")
    for part, known in (("inputs", INPUTS), ("outputs", OUTPUTS)):
        if list(definition[part]) != list(known):
            raise ValueError(f"{name} has the {part} {', '.join(definition[part])}, not "
                             f"{', '.join(known)}")  # fmt: skip
        for tensor, (axes, dtype, _) in known.items():
            found = definition[part][tensor]
            if (found["shape"], found["dtype"]) != (axes and list(axes), dtype):
                raise ValueError(f"{name}: {tensor} is {found['dtype']} {found['shape']}, not "
                                 f"{dtype} {axes and list(axes)}")  # fmt: skip
    axes = definition["axes"]
    if odd := [axis for axis in VARIABLE if axes[axis]["type"] != "var"]:
        raise ValueError(f"{name}: the axis {odd[0]} is constant, not variable")
    sizes = {axis: axes[axis].get("value") for axis in AXES if axis not in VARIABLE}
    for axis, size in {"head_dim_ckv": DC, "head_dim_kpe": DR}.items():
        if sizes[axis] != size:
            raise ValueError(f"{name}: {axis}={sizes[axis]}, not {size}")
    if odd := [axis for axis, size in sizes.items() if not size]:
        raise ValueError(f"{name}: {odd[0]}={sizes[odd[0]]} is no constant above 0")
    return Contract(heads=sizes["num_qo_heads"], topk=sizes["topk"], page_size=sizes["page_size"],
                    lse_base=lse_base(definition))  # fmt: skip


def lse_base(definition: dict) -> str:
    """The base of the log-sum-exp: "2" or "e" as its tag or description says, else the op type's.

    Every definition of `dsa_paged` is base 2 by that op type's own page. The reference is not run:
    text of others is read, never executed.
    """
    tags = [tag.removeprefix("lse_base:") for tag in definition.get("tags") or []]
    said = (definition["outputs"]["lse"].get("description") or "").lower()
    told = [base for base, words in BASES.items() if base in tags or re.search(words, said)]
    if len(told) > 1:
        raise ValueError(f"{definition['name']} says of lse both base 2 and base e: {said!r}")
    return told[0] if told else "2"
