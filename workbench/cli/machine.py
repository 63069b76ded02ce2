"""doctor: what this machine can do."""

import shutil
from dataclasses import asdict

import typer

from . import options as o

PACKAGES = ("torch", "triton", "numpy", "scipy", "pandas", "matplotlib", "seaborn", "duckdb",
            "papermill", "nvtx", "nvidia-ml-py", "pydantic", "jupyterlab", "typer",
            "rich")  # fmt: skip


def register(app: typer.Typer) -> None:
    app.command("doctor")(o.told(doctor))


def doctor(json: o.AsJson = False) -> int:
    """Say what is installed, which device is used, and what is missing for what.

    Exit code 0 when variants can be checked here: torch, Triton and numpy work together.
    """
    from .. import study
    from ..arms import arms_of
    from ..machine import environment, installed, resolve_device
    from ..monitor import reader
    from ..ops import OPS

    device = resolve_device("auto")
    versions = {name: installed(name) for name in PACKAGES}
    op = OPS["sparse_prefill"]
    small = op.suites["edges"][:1]
    arms = arms_of(op, ["per_token"])
    with o.waiting("running a kernel"):
        ((_, probe),) = study.check(arms, small, device=device)
    found = {
        "device": device,
        "environment": vars(environment(device)),
        "packages": versions,
        "reading": asdict(read()) if (read := reader(device)) else None,
        "nsys": shutil.which("nsys") or "",
        "probe": {"variant": "sparse_prefill per_token", "status": probe.verdict.status,
                  "why": probe.verdict.why},
    }  # fmt: skip
    if json:
        o.print_json(found)
    else:
        _print(found)
    return int(not probe.verdict.passed)


def _print(found: dict) -> None:
    e = found["environment"]
    l2 = f"{e['l2_bytes'] >> 20} MiB L2"
    gpu = f"compute capability {e['capability']}, driver {e['driver']}, {l2}"
    probe, now = found["probe"], found["reading"]
    rows = [
        ["device", f"{found['device']}: {e['device']}" + (f" ({gpu})" if e["capability"] else "")],
        ["python", e["python"]],
        *([name, version or "absent"] for name, version in found["packages"].items()),
        ["nsys", found["nsys"] or "absent: `nsys profile` a notebook elsewhere"],
        ["kernels", "compiled for the GPU" if e["capability"] else
         "run in Triton's CPU interpreter: right or wrong can be seen, speed cannot"],
        ["gpu now", "not read" if now is None else
         f"{now['sm_mhz']} MHz, {now['power_w']} W, {now['temperature_c']} C, "
         f"{now['others']} other processes, {', '.join(now['throttles']) or 'not throttled'}"],
        ["probe", f"{probe['variant']}: {probe['status']} {probe['why']}"],
    ]  # fmt: skip
    o.out.print(o.grid("", ["", ""], rows, right=2), highlight=False)
