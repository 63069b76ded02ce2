"""What a range costs where no tool looks on: a push and a pop, at most 150 ns.

Prints nanoseconds for `with ranges.span(...)` as it stands in the code, for the same inside
`silenced`, and for NVTX's own push and pop with a prepared message where the package is installed:
the least of many rounds, since another process can only add to one. Exits with 1 above the limit.
"""

import json
import sys
import timeit
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # runs from a checkout that is not installed
LIMIT_NS = 150.0
CALLS, ROUNDS = 20_000, 60


def least_ns(statement: str, **names) -> float:
    """Nanoseconds of one run of a statement, less those of an empty loop."""
    taken = min(timeit.repeat(statement, globals=names, number=CALLS, repeat=ROUNDS))
    empty = min(timeit.repeat("pass", number=CALLS, repeat=ROUNDS))
    return (taken - empty) / CALLS * 1e9


def main() -> int:
    from workbench import ranges

    span = "with span('kernel'): pass"
    found = {"span": least_ns(span, span=ranges.span)}
    with ranges.silenced():
        found["silenced"] = least_ns(span, span=ranges.span)
    if ranges.nvtx is not None:
        domain = ranges.nvtx.get_domain(ranges.DOMAIN)
        message = domain.get_event_attributes(message="kernel", category="kernel", payload=1)
        found["nvtx alone"] = least_ns("push(message); pop()", push=domain.push_range,
                                       pop=domain.pop_range, message=message)  # fmt: skip
    print(json.dumps({name: round(ns) for name, ns in found.items()} | {"limit": LIMIT_NS}))
    return int(found["span"] > LIMIT_NS)


if __name__ == "__main__":
    sys.exit(main())
