"""What the GPU does while it is measured: clocks, power, heat, throttling, who else is on it.

Read through NVIDIA's management library (nvidia-ml-py); without the package, the library or the
right to ask, a reading is absent. Nothing is ever set.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

import torch

try:
    import pynvml
except ImportError:  # optional: a record then says nothing of clocks and throttling
    pynvml = None

# Why clocks are below what was asked of them; idling and a user's own limits are no throttling.
THROTTLES = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Reading:
    """One look at a GPU; None where a number could not be had."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttles: tuple[str, ...] = ()  # values of THROTTLES
    others: int | None = None  # processes on the GPU beside this one


class Monitor:
    """Readings before, during and after a measurement; `None` each where nothing can be read."""

    def __init__(self, device: str):
        self.read = reader(device)
        self.taken: list[dict] = []

    def look(self) -> None:
        """Take a reading; some hundred microseconds."""
        if self.read is not None:
            self.taken.append(asdict(self.read()))

    def state(self) -> dict | None:
        """{"before", "during" (a list), "after"} of the readings so far; None without any."""
        if not self.taken:
            return None
        first, *middle = self.taken
        return {"before": first, "during": middle[:-1], "after": self.taken[-1]}


def reader(device: str) -> Callable[[], Reading] | None:
    """A function that reads the GPU of `device`, or None where there is none to read."""
    if pynvml is None or torch.device(device).type != "cuda":
        return None
    uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None
    return lambda: _reading(handle)


def _reading(handle) -> Reading:
    asked = {
        "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(
            handle, pynvml.NVML_TEMPERATURE_GPU),
        "throttles": lambda: throttles(
            pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        "others": lambda: others(
            [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]),
    }  # fmt: skip
    found = {}
    for name, ask in asked.items():
        with suppress(pynvml.NVMLError):
            found[name] = ask()
    return Reading(**found)


def throttles(bits: int) -> tuple[str, ...]:
    """The names of the throttle reasons in NVML's bit mask."""
    return tuple(name for bit, name in THROTTLES.items() if bits & bit)


def others(pids: list[int]) -> int:
    """How many of the processes on a GPU are not this one.

    In a container the library tells the host's numbers, among which this process is not found: then
    one of them is taken for it.
    """
    pids = set(pids)
    return len(pids - {os.getpid()}) if os.getpid() in pids else max(0, len(pids) - 1)
