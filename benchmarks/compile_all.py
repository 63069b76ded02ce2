"""How long compiling every variant for three GPUs takes, from nothing and again from the cache.

Exits with 1 above 4 minutes for the first run or 10 s for the second, on 2 cores, or where the
second run is not the same. Triton's own cache takes no part: compiling processes have their own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLD_S, CACHED_S = 240.0, 10.0
ARCHS = "sm_90,sm_100,sm_120"


def compiled(cache: str, arch: str) -> tuple[float, list[dict]]:
    """Seconds of the command, and its rows."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "workbench", "compile", "--arch", arch, "--cache", cache, "--json"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return time.perf_counter() - began, json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--arch", default=ARCHS)
    arch = parser.parse_args().arch
    with tempfile.TemporaryDirectory() as cache:
        cold_s, first = compiled(cache, arch)
        cached_s, second = compiled(cache, arch)
    kernels = [row for row in second if "kernel" in row]
    same = [row | {"cached": True} for row in first] == [row | {"cached": True} for row in second]
    whole = all(row["cached"] for row in kernels)
    cores = len(os.sched_getaffinity(0))
    print(f"{len(kernels)} kernels for {arch}, {cores} cores: {cold_s:.1f} s "
          f"from nothing (at most {COLD_S:g}), {cached_s:.1f} s again (at most {CACHED_S:g})")
    if not same or not whole:
        print("the second run differs from the first, or compiled again")
    return int(cold_s > COLD_S or cached_s > CACHED_S or not same or not whole)


if __name__ == "__main__":
    sys.exit(main())
