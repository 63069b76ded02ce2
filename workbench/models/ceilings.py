"""What a device reaches at best, derived from records of the ops that measure nothing else.

A ceiling is the highest rate of any variant, config, clock and size that was measured: a floor made
of it must hold for kernels that are yet to be written. Where nothing was measured there is none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from ..columns import column

COPY, GATHER, SHARED, PRODUCT = "device_copy", "row_gather", "shared_read", "matrix_product"
RESIDENT = 0.5  # of the L2 that a pool may take: indices and sums stream through beside it
PAST = 4.0  # times the L2 that a copy moves, so that memory gives its rate
FAR = 16.0  # times the L2: of a pool as large, at most 1 row in 16 is still there by chance
GIGA, TERA = 1e9, 1e12
US = 1e-6  # seconds


@dataclass(frozen=True)
class Ceilings:
    """Measured rates of one device; None where no record tells."""

    device: str
    copy_gb_per_s: float | None = None  # read and written together
    gather_l2_gb_per_s: Mapping[int, float] | None = None  # by row bytes; pool within the L2
    gather_memory_gb_per_s: Mapping[int, float] | None = None  # by row bytes; pool far beyond it
    shared_gb_per_s: float | None = None  # read by all threads from shared memory
    bf16_tflop_per_s: float | None = None
    fp8_tflop_per_s: float | None = None


def ceilings(table, device: str) -> Ceilings:
    """The ceilings of `device` (as `environment.device` names it) by a table of `record.load`."""
    known = table[(table["environment.device"] == device) & table["median_us"].notna()]
    pools, l2 = _pool_bytes(known), column(known, "environment.l2_bytes")
    copies = known[(known["op"] == COPY) & (column(known, "cost.bytes") >= PAST * l2)]
    products = known[column(known, "op") == PRODUCT]
    dtypes = column(products, "workload.dtype")
    return Ceilings(
        device,
        copy_gb_per_s=_best(copies, "cost.bytes", GIGA),
        gather_l2_gb_per_s=_by_width(known[(l2 > 0) & (pools <= RESIDENT * l2)]),
        gather_memory_gb_per_s=_by_width(known[(l2 > 0) & (pools >= FAR * l2)]),
        shared_gb_per_s=_best(known[known["op"] == SHARED], "statistics.shared_bytes", GIGA),
        bf16_tflop_per_s=_best(products[dtypes == "bf16"], "cost.flops", TERA),
        fp8_tflop_per_s=_best(products[dtypes == "fp8"], "cost.flops", TERA),
    )


def as_rows(c: Ceilings) -> list[tuple[str, float, str]]:
    """(name, rate, unit) of every ceiling that was measured, in the order of the fields."""
    rows = []
    for name in (f.name for f in fields(c)[1:]):
        value, (what, unit) = getattr(c, name), _named(name)
        rates = value.items() if isinstance(value, Mapping) else [(None, value)]
        for width, rate in rates:
            if rate is not None:
                rows.append((f"{what}, rows of {width} bytes" if width else what, rate, unit))
    return rows


def _named(field: str) -> tuple[str, str]:
    """What a field measures and its unit: ("gather l2", "GB/s")."""
    what, _, amount = field.removesuffix("_per_s").rpartition("_")
    return what.replace("_", " "), f"{amount.upper()}/s" if amount == "gb" else "TFLOP/s"


def _pool_bytes(table):
    """Size of the pool of each row gather; missing for every other op."""
    size = column(table, "workload.rows") * column(table, "workload.row_bytes")
    return size.where(table["op"] == GATHER)


def _best(table, amount: str, unit: float) -> float | None:
    """The highest rate of `amount` over the median, in `unit` a second."""
    rates = (column(table, amount) / (table["median_us"] * US * unit)).dropna()
    return float(rates.max()) if len(rates) else None


def _by_width(table) -> dict[int, float] | None:
    """The highest rate of gathered bytes for each width of row, the widest first."""
    found = {}
    for width, rows in table.groupby("workload.row_bytes") if len(table) else ():
        rate = _best(rows, "statistics.gathered_bytes", GIGA)
        if rate is not None:
            found[int(width)] = rate
    return dict(sorted(found.items(), reverse=True)) or None
