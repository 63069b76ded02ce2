"""What runs here: device, versions, source. Stored with every record."""

import functools
import hashlib
import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from .interpreter import active

PACKAGE = Path(__file__).parent


@dataclass(frozen=True)
class Environment:
    """The setup of a record. Times of two devices are never drawn on one axis."""

    device: str  # name of the GPU, or of the processor
    uuid: str  # of the GPU; empty on a CPU
    capability: str  # "9.0"; empty on a CPU
    driver: str  # empty on a CPU
    cuda: str  # CUDA that torch was built for; empty for a CPU build
    torch: str
    triton: str
    python: str
    l2_bytes: int  # 0 where unknown
    multiprocessors: int  # 0 on a CPU; its cores are in `device`
    commit: str  # of the checkout, "-dirty" behind it where files differ; empty outside of one
    source: str  # digest of the package's own files: equal source, equal digest
    interpreted: bool  # Triton kernels ran in the CPU interpreter


def resolve_device(device: str) -> str:
    """Return "cpu", "cuda" or "cuda:N" for `device`, which may be "auto".

    Raises ValueError where there is no such GPU or the name is none of these.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto":
        return "cuda" if count else "cpu"
    kind, _, number = device.partition(":")
    numbered = number.isascii() and number.isdecimal()
    if device != "cpu" and not (kind == "cuda" and (numbered or device == "cuda")):
        raise ValueError(f"device={device!r} is none of auto, cpu, cuda, cuda:N")
    if kind == "cuda" and count <= int(number or 0):
        raise ValueError(f"device={device!r} is not here: torch {torch.__version__} sees "
                         f"{count} CUDA devices")  # fmt: skip
    return device


def synchronize(device: str) -> None:
    """Wait for the device, so that a fault of a kernel is raised here."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


@functools.cache
def source_digest(modules: tuple[str, ...] = ()) -> str:
    """A short digest of the package's Python files, whatever their order on disk, and `modules`."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + path.read_bytes())
    for module in modules:
        digest.update(Path(module).read_bytes())
    return digest.hexdigest()[:12]


@functools.cache
def commit() -> str:
    """Commit of the checkout that the package stands in; empty where it stands in none."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=PACKAGE, capture_output=True, text=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def installed(package: str) -> str:
    """Version of an installed package, or an empty string."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def processor() -> str:
    """Name of the CPU and its cores, as the system gives it."""
    name = platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {len(os.sched_getaffinity(0))} cores"


def environment(device: str) -> Environment:
    """The environment of a run on `device`."""
    gpu = torch.device(device).type == "cuda"
    properties = torch.cuda.get_device_properties(device) if gpu else None
    return Environment(
        device=properties.name if gpu else processor(),
        uuid=f"GPU-{properties.uuid}" if gpu else "",
        capability=f"{properties.major}.{properties.minor}" if gpu else "",
        driver=_driver() if gpu else "",
        cuda=torch.version.cuda or "",
        torch=torch.__version__,
        triton=installed("triton"),
        python=platform.python_version(),
        l2_bytes=properties.L2_cache_size if gpu else 0,
        multiprocessors=properties.multi_processor_count if gpu else 0,
        commit=commit(),
        source=source_digest(),
        interpreted=active() and not gpu,
    )


@functools.cache
def _driver() -> str:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip().splitlines() or [""])[0]
