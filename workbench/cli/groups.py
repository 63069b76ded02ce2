"""selections best-group: how many tokens should share a gather, as the records say."""

from pathlib import Path
from typing import Annotated

import typer

from . import options as o

COLUMNS = ["H", "T", "context", "law", "churn", "group", "arm", "us", "next", "its time",
           "95 % interval", "blocks", "gain"]  # fmt: skip


def best_group(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders. Default: traces/records.")
    ] = None,
    to: Annotated[Path | None, typer.Option("--to", "-o", help="Write the table there, as JSON.")] =
    None,
    device: Annotated[str | None, typer.Option("--device-name", help="Of which device. Default: "
                                               "the only one.")] = None,
    clock: Annotated[str, typer.Option(help="Of which clock.")] = "graph_cold",
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """The fastest group of tokens at every place, the next best one, and how sure that is.

    Without an interval a place was timed in one process block. gain: the best arm of one token over
    the best of a larger group.
    """
    from ..evidence import derived, newest
    from ..fields import choose
    from ..models import group_table, grouping
    from ..record import load

    if to is not None and to.is_dir():
        raise ValueError(f"{to} is a folder")
    with o.waiting("reading records"):
        found = load(*(records or [Path("traces/records")]))
        best = grouping.best_group(newest(grouping.placed(derived(found))))
    devices = sorted(best["environment.device"].unique())
    if device is None and len(devices) != 1:
        raise ValueError(f"records of {', '.join(devices) or 'no device'} have times of two group "
                         "sizes: choose with --device-name")  # fmt: skip
    device = device or devices[0]
    choose("device", device, devices)
    told = group_table.table(best, device, clock)
    if to is not None:
        group_table.write(to, told)
    if json:
        o.print_json(told)
    else:
        o.out.print(o.grid(f"{device}, {clock}", COLUMNS, [_row(p) for p in told["places"]], 5))
    return 0


def _row(p: dict) -> list[str]:
    known = p["next_low"] is not None
    return [f"{p['heads']}", f"{p['tokens']:,}", f"{p['context']:,}", p["law"],
            "-" if p["churn"] is None else f"{p['churn']:g}", f"{p['group']}", p["arm"],
            f"{p['us']:,.1f}", f"{p['next_group']}", f"{p['next_ratio']:.2f}x",
            f"{p['next_low']:.2f}-{p['next_high']:.2f}" if known else "-", f"{p['blocks']}",
            "-" if p["gain"] is None else f"{p['gain']:.2f}x"]  # fmt: skip
