"""How long reading many records for a figure takes, and the memory that it needs.

Makes records of schema 2 in a temporary folder; a fresh process then loads them and draws one
latency figure. Exits with 1 above 8 s or 2 GB. Records and limits are for 2 cores; the load average
beside the numbers says whether they were free.
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
sys.path.insert(0, str(ROOT))  # runs from a checkout that is not installed
SECONDS, GB = 8.0, 2.0
FILES = 4
POOL = 1000  # lists of samples are drawn once and then used in turn: writing would take minutes
VARIANTS = ("eager", "per_token", "union")


def template() -> str:
    """A record's line; what differs from one to the next stands as <name>."""
    from workbench.machine import Environment
    from workbench.op import Verdict
    from workbench.ops import sparse_prefill as op
    from workbench.record import Measurement, as_row

    environment = Environment(
        device="NVIDIA H200", uuid="GPU-01234567-89ab-cdef-0123-456789abcdef", capability="9.0",
        driver="580.159.04", cuda="13.0", torch="2.11.0+cu130", triton="3.6.0", python="3.12.3",
        l2_bytes=62914560, multiprocessors=132, commit="0123456", source="369bbde87a96",
        interpreted=False,
    )  # fmt: skip
    reading = {"sm_mhz": 1980, "memory_mhz": 3201, "power_w": "<power>", "temperature_c": 41,
               "throttles": [], "others": 0}  # fmt: skip
    row = as_row(Measurement(
        op=op.name, variant="<variant>", config={"block_k": 64}, config_asked={"block_k": 64},
        workload=vars(op.Workload()) | {"tokens": "<tokens>", "seed": "<seed>"},
        verdict=Verdict("passed", 0.0, 0.0033), cost={"bytes": "<bytes>", "flops": 36525047808},
        statistics={"union_ratio": {"2": 1.25, "4": 1.5}}, ledger={"rows": 4096, "lanes": 4096},
        clock="graph_cold", cache="cold", calls_per_sample=1, samples_us=["<samples>"], twin_us=[],
        floor_us=1.75, index_sets=1, reuse_bytes=None,
        profile={"span_us": "<power>", "kernels": {"_kernel": [1, "<power>"]}},
        state={"before": reading, "during": [], "after": reading}, flags=[], study="<study>",
        block="<block>", environment=environment,
    ))  # fmt: skip
    row["verdict"]["error"] = "<error>"
    text = json.dumps(row, separators=(",", ":")) + "\n"
    for name in ("power", "tokens", "seed", "bytes", "samples", "block", "error"):
        text = text.replace(f'"<{name}>"', f"<{name}>")  # numbers
    return text


def write(folder: Path, records: int, samples: int) -> int:
    """Write the records as some files; their bytes."""
    import numpy as np

    random = np.random.default_rng(0)
    line = template().replace("%", "%%").replace("<", "%(").replace(">", ")s")
    pool = [",".join(map(repr, row)) for row in random.normal(1000, 3, (POOL, samples)).tolist()]
    errors = random.random(records).tolist()
    paths = [folder / f"part{i}.jsonl" for i in range(FILES)]
    for first, path in enumerate(paths):
        with path.open("w") as file:
            for i in range(first * records // FILES, (first + 1) * records // FILES):
                size = 1024 << i % 8
                file.write(line % {
                    "variant": VARIANTS[i % 3], "tokens": size, "seed": i // 24 % 50,
                    "bytes": size * 4608, "samples": pool[i % POOL], "power": 400 + errors[i],
                    "block": i % 5, "error": errors[i] / 1000, "study": f"study{i // 1000}",
                })  # fmt: skip
    return sum(path.stat().st_size for path in paths)


def pooled(table):
    """One row for each arm and size, over all seeds and blocks: what a figure can show."""
    keys = ["arm", "workload.tokens"]
    times = ["low_us", "median_us", "high_us"]
    return table.assign(**table.groupby(keys)[times].transform("median")).drop_duplicates(keys)


def measured(folder: Path) -> dict:
    """Seconds and peak memory of loading and drawing, in this process."""
    import matplotlib

    matplotlib.use("Agg")
    from workbench import figures, reader

    began = time.perf_counter()
    table = reader.load(folder)
    loaded = time.perf_counter()
    figures.latency(pooled(table)).savefig(folder / "latency.png")
    drawn = time.perf_counter()
    return {"records": len(table), "seconds": drawn - began, "load_s": loaded - began,
            "draw_s": drawn - loaded, "peak_gb": peak_gb()}  # fmt: skip


def peak_gb() -> float:
    """Most memory that this process held; getrusage would count the parent's before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(x.split()[1] for x in lines if x.startswith("VmHWM"))) * 1024 / 1e9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)  # the fresh process's
    asked = parser.parse_args()
    if asked.folder:
        print(json.dumps(measured(asked.folder)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        size = write(Path(folder), asked.records, asked.samples)
        command = [sys.executable, __file__, "--folder", folder]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found = json.loads(done.stdout) | {
        "samples": asked.samples, "megabytes": size / 1e6, "load_average": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
    }  # fmt: skip
    good = found["seconds"] <= SECONDS and found["peak_gb"] <= GB
    if asked.json:
        print(json.dumps(found | {"within_limits": good}))
    else:
        print("{records:,} records of {samples} samples, {megabytes:.0f} MB: {seconds:.1f} s "
              "({load_s:.1f} reading, {draw_s:.1f} drawing), {peak_gb:.2f} GB at most, {cores} "
              "cores, load average {load_average:.1f}".format(**found))  # fmt: skip
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
