"""Tables of profiles: time by range, the three totals, cases, and profiles beside records."""

from rich.text import Text

from ..profiles.attribution import OUTCOMES
from . import options as o

WIDTH = 60  # of a kernel's name in a table
ROWS = 30  # ranges of a table, where the caller does not say


def print_report(said: dict, most: int = ROWS) -> None:
    """The `most` longest ranges, then totals by kind, then notes."""
    o.out.print(_ranges(said["ranges"][:most]))
    if (more := len(said["ranges"]) - most) > 0:
        o.out.print(Text(f"and {more:,} shorter ranges: --rows shows more", "dim"))
    o.out.print(_totals(said["totals"]))
    gpu = any(row["rows"] for row in said["totals"])
    notes = said["notes"] if gpu else ["no GPU rows: this is the CPU side alone", *said["notes"]]
    for note in notes:
        o.out.print(Text(f"note: {note}", "dim"))


def _ranges(rows: list[dict]):
    several = len({row["process"] for row in rows}) > 1
    cells = [
        [row["name"], *[row["process"]] * several, f"{row['ranges']:,}", _ms(row["inclusive_ns"]),
         _ms(row["self_ns"]), f"{row['rows']:,}", f"{row['calls']:,}",
         "" if row["share"] is None else f"{row['share']:.1%}", _ms(row["cpu_ns"])]
        for row in rows
    ]  # fmt: skip
    columns = ["range", *["process"] * several, "times", "GPU ms incl", "self", "GPU rows", "calls",
               "share", "CPU ms"]  # fmt: skip
    return o.grid("", columns, cells)


def _totals(rows: list[dict]):
    """A row for each kind that there is: rows and nanoseconds by outcome, and in all."""
    cells = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        of = {row["outcome"]: (row["rows"], row["gpu_ns"]) for row in rows if row["kind"] == kind}
        every = tuple(map(sum, zip(*of.values(), strict=True)))
        if every[0]:
            cells.append([kind, *(_said(*of[name]) for name in OUTCOMES), _said(*every)])
    return o.grid("", ["kind", *OUTCOMES, "in all"], cells) if cells else ""


def print_cases(said: dict) -> None:
    """A line for each case with kernels, and under it each kernel that ran."""
    for case in said.get("cases", ()):
        if (middle := case["middle"]) is None:
            continue
        low, high = min(case["span_us"]), max(case["span_us"])
        how = "replays" if case["replayed"] else "calls launched by the host"
        o.out.print(f"{case['label']}: {middle['span_us']:,.1f} us from first start to last end "
                    f"({low:,.1f} to {high:,.1f}, {case['passes']} {how})",
                    highlight=False, markup=False)  # fmt: skip
        for name, us in middle["ranges"].items():
            o.out.print(f"  {name}: {us:,.1f} us", highlight=False, markup=False)
        _print_kernels(middle["kernels"])


def print_compared(rows: list[dict]) -> None:
    """Each case beside its record, and the kernels that ran."""
    cells = [
        [row["label"], _us(row["span_us"]), _us(row["record_us"]), row["blocks"],
         _percent(row["difference"]), _us(row["allowed_us"]), _percent(row["noise"])]
        for row in rows
    ]  # fmt: skip
    columns = ["arm", "profile us", "record us", "blocks", "difference", "allowed us", "A/A"]
    o.out.print(o.grid("", columns, cells))
    for row in rows:
        o.out.print(f"{row['label']}: {row['said']}", highlight=False, markup=False)
        _print_kernels(row["kernels"])


def _print_kernels(kernels: dict) -> None:
    for name, (count, us) in kernels.items():
        o.out.print(Text(f"  {us:10,.1f} us  {count:3}x  {name[:WIDTH]}", "dim"))


def _said(rows: int, ns: int) -> str:
    return f"{rows:,} ({ns:,} ns)"


def _ms(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1e6:,.3f}"


def _us(us: float | None) -> str:
    return "" if us is None else f"{us:,.1f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:+.2%}"
