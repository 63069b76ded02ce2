"""step: what the page splits of a decode step cost, and how much of a server's step that is."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

OP = "decode_split_step"


def register(app: typer.Typer) -> None:
    app.command("step")(o.told(step))


def step(
    records: Annotated[
        list[Path] | None, typer.Argument(help="Record files or folders. Default: traces/records.")
    ] = None,
    total_us: Annotated[float | None, typer.Option("--total-us", min=0.0, help="GPU time of one "
                                                   "decode step of your server.")] = None,
    profile: Annotated[Path | None, typer.Option(help="Or a profile of it: Nsight Systems SQLite "
                                                 "or a torch.profiler trace.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Decode steps in the profile.")] = 1,
    base: Annotated[str | None, typer.Option(help="The variant whose splits are in that time. "
                                             "Default: full.")] = None,
    clock: Annotated[str | None, typer.Option(help="Only times by this clock.")] = None,
    json: o.AsJson = False,
) -> int:  # fmt: skip
    """Page splits of a decode step: microseconds, and their share of your server's step.

    `split us` is what a variant takes beyond reading alone. `of step`: its share of the step that
    it would leave; `saved`: what the step as it was measured loses with it.
    """
    from ..evidence import CASE, load, pooled
    from ..fields import choose
    from ..models.step import FLOOR, splits
    from ..record import found, plain

    total = _total(total_us, profile, steps, base)
    table = load(*(records or [found("traces/records")]))
    table = pooled(table[(table["op"] == OP) & table["median_us"].notna()])
    if clock is not None:
        table = table[table["clock"] == choose("clock in these records", clock,
                                               table["clock"].unique())]  # fmt: skip
    if not len(table):
        raise ValueError(f"these records hold no time of {OP}: `workbench measure {OP}`")
    rows, absent = [], []
    for case, part in table.groupby(CASE, sort=False, dropna=False):
        said = dict(zip(CASE, case, strict=True))
        arms = part.set_index("arm")  # a variant of two configs is two of them
        if FLOOR not in arms.index:
            absent.append(said["place"] or "default")
            continue
        for arm, each in splits(dict(arms["median_us"]), total).items():
            rows.append({"device": said["environment.device"], "clock": said["clock"],
                         "workload": said["place"] or "default", "variant": arm,
                         **asdict(each), "flags": list(arms["flags"][arm])})  # fmt: skip
    if not rows:
        raise ValueError(f"no time of {FLOOR!r} on any workload here: what reading alone takes is "
                         "unknown")  # fmt: skip
    if json:
        o.print_json(plain({"total": asdict(total) if total else None, "splits": rows}))
        return 0
    head = ["device", "clock", "workload", "variant", "step us", "split us"]
    body = [[*(r[n] for n in head[:4]), f"{r['step_us']:,.1f}", f"{r['split_us']:,.1f}",
             *([f"{r['share']:.1%}", f"{r['saved']:.1%}"] if total else []),
             ", ".join(dict.fromkeys(f.split(":")[0] for f in r["flags"]))]
            for r in rows]  # fmt: skip
    title = f"step of {total.us:,.1f} us with {total.base}: {total.source}" if total else ""
    columns = [*head, *(["of step", "saved"] if total else []), ""]
    o.out.print(o.grid(title, columns, body, right=4))
    for place in absent:
        o.out.print(f"left out, without a time of {FLOOR!r}: {place}", highlight=False)
    return 0


def _total(us: float | None, profile: Path | None, steps: int, base: str | None):
    from ..models.step import Total

    if us is not None and profile is not None:
        raise ValueError(f"--total-us {us:g} and --profile {profile}: give one of them")
    if profile is None and steps != 1:
        raise ValueError(f"--steps {steps} counts the steps of a --profile, and none is given")
    if us is None and profile is None and base is not None:
        raise ValueError(f"--base {base} is of a step whose time is not given: --total-us or "
                         "--profile")  # fmt: skip
    base = base or "full"
    if us is not None:
        return Total(us, "given", base)
    if profile is None:
        return None
    from ..profiles import busy, read

    devices = busy(read(profile))
    if not len(devices):
        raise ValueError(f"{profile}: no GPU time in this profile")
    source = f"kernel time in {profile.name} over {steps} steps"
    if len(devices) > 1:
        source += f", mean of its {len(devices)} GPUs"
    return Total(devices["gpu_ns"].mean() / 1e3 / steps, source, base)
