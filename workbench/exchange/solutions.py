"""A variant with a config and a clock as a solution: who made it, and a text that calls it.

A solution is one thing that was timed. Its traces must not mix clocks: FlashInfer-Bench takes the
least latency of a solution on a workload, so a warm time would stand for a cold one. So variant,
config, clock, cache state and source digest together are a solution of their own.
"""

import re
from hashlib import sha256
from json import dumps

from ..fields import choose, replaced
from ..ops import OPS
from .definitions import INPUTS
from .paged import Paged, joined

AUTHOR = "sparse-mla-workbench"  # the name that its package index would know
PREFILL = OPS["sparse_prefill"]
ENTRY = '''"""A variant of the sparse-MLA workbench behind the definition's signature."""

from workbench.exchange import answer


def run({arguments}):
    return answer({variant!r}, {config!r}, {arguments})
'''


def name_of(row: dict, definition: str) -> str:
    """The name of what a record timed: its variant, clock, and a digest of all that sets it apart.

    The rows of a record's variant and clock may hold anything: what is no letter, digit or `_` is
    left out, for a name becomes a file.
    """
    source = row["environment"].get("source", "")
    apart = [definition, row["variant"], row["config"], row["clock"], row["cache"], source]
    digest = sha256(dumps(apart, sort_keys=True).encode()).hexdigest()[:8]
    words = re.sub(r"\W+", "_", f"{row['variant']}_{row['clock']}", flags=re.ASCII)
    return f"{words[:80]}_{digest}"


def solution(row: dict, definition: str) -> dict:
    """The solution of a record, as it stands in a file.

    Its text calls the variant of an installed workbench. What was timed is the variant on one
    cache of [rows, 576]; the text joins the definition's two halves first, and that takes longer.
    """
    known = PREFILL.variants.get(row["variant"])
    config = " ".join(f"{k}={v}" for k, v in row["config"].items()) or "no config"
    source = row["environment"].get("source") or "unknown"
    told = f"{known.idea} " if known else ""
    text = ENTRY.format(arguments=", ".join(INPUTS), variant=row["variant"], config=row["config"])
    return {
        "name": name_of(row, definition),
        "definition": definition,
        "author": AUTHOR,
        "description": f"{told}{row['variant']} with {config}, timed by {row['clock']} at source "
        f"{source}. The times are those of the variant on one joined cache, without this text's "
        "joining of its halves.",
        "spec": {
            "language": "python",
            "target_hardware": [row["environment"]["device"]],
            "dependencies": [AUTHOR],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": text}],
    }


def answer(variant: str, config: dict, *arguments):
    """(output, lse) of a variant of `sparse_prefill` on a definition's arguments, in its order.

    Raises ValueError on an unknown variant or config field, and on tensors that are not as defined.
    """
    v = PREFILL.variants[choose("variant", variant, PREFILL.variants)]
    out = v(joined(Paged(*arguments)), replaced(v.config, config, f"config of {variant}"))
    return out.out, out.lse
