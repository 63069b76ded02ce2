"""The least time that counts allow at measured rates: a floor, with the limit that sets it named.

A limit whose count or ceiling is unknown is left out, and so is a limit of nothing. A floor says
what no kernel of these counts can beat, not what one will reach: latency and order are not in it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..op import Cost
from .ceilings import GIGA, TERA, US


@dataclass(frozen=True)
class Floor:
    """The longest of the known limits."""

    us: float
    limit: str  # its name, a key of LIMITS
    limits_us: Mapping[str, float]  # every known limit


def _l2_gather(ceilings: Any, counts: Mapping[str, int]) -> float | None:
    """GB/s of a gather whose rows stand in the L2; rates hold for one row width only."""
    return (ceilings.gather_l2_gb_per_s or {}).get(counts.get("row_bytes"))


def memory_gb_per_s(ceilings: Any) -> float | None:
    """The best rate that memory gave to anything: a gather that only reads may beat a copy."""
    gathers = (ceilings.gather_memory_gb_per_s or {}).values()
    return max((r for r in (ceilings.copy_gb_per_s, *gathers) if r), default=None)


# name: (count, ceiling in units of `unit` a second, unit)
LIMITS: dict[str, tuple[str, Callable[[Any, Mapping[str, int]], float | None], float]] = {
    "memory": ("least_bytes", lambda c, counts: memory_gb_per_s(c), GIGA),
    "l2_gather": ("gathered_bytes", _l2_gather, GIGA),
    # reads only, of one warp group: gathered rows x (576 as K + 512 as V) x 2 bytes
    "shared_memory": ("shared_read_bytes", lambda c, counts: c.shared_gb_per_s, GIGA),
    "useful_arithmetic": ("useful_flops", lambda c, counts: c.bf16_tflop_per_s, TERA),
    "fp8_arithmetic": ("useful_fp8_flops", lambda c, counts: c.fp8_tflop_per_s, TERA),
    "executed_arithmetic": ("executed_flops", lambda c, counts: c.bf16_tflop_per_s, TERA),
}


def floor(counts: Mapping[str, int] | Cost, ceilings: Any) -> Floor | None:
    """The floor of a ledger, or of an op's cost; None where no limit is known.

    `ceilings` has the fields `copy_gb_per_s`, `gather_l2_gb_per_s` and `gather_memory_gb_per_s`
    ({row bytes: rate}),
    `shared_gb_per_s`, `bf16_tflop_per_s` and `fp8_tflop_per_s`, each None where it was not
    measured.
    """
    if isinstance(counts, Cost):
        counts = {"least_bytes": counts.bytes, "useful_flops": counts.flops}
    limits_us = {}
    for name, (count, ceiling, unit) in LIMITS.items():
        rate, amount = ceiling(ceilings, counts), counts.get(count)
        if rate and amount:
            limits_us[name] = amount / (rate * unit) / US
    if not limits_us:
        return None
    limit = max(limits_us, key=limits_us.get)
    return Floor(limits_us[limit], limit, limits_us)


def share(median_us: float, least: Floor | None) -> float:
    """How much of a measured time the floor explains, 1.0 at the floor; nan without a floor.

    Raises ValueError on a time that is not above 0.
    """
    if not median_us > 0:
        raise ValueError(f"median_us={median_us} is not above 0")
    return least.us / median_us if least else float("nan")
