"""Records of a decode kernel whose times are the chunk model's, with constants of our own."""

from dataclasses import replace

from test_dispatch_records import GPU, OP, one
from typer.testing import CliRunner

from workbench.cli import app
from workbench.models.makespan import Call, Constants, chunks_of, predicted_s
from workbench.models.splits import COUNTS, PLACES

SMS = 132
H200 = replace(GPU, multiprocessors=SMS)
REAL = {"split_k_wgmma": (Constants(6e-13, 5e-11, 3e-6), 64),
        "split_k": (Constants(1e-12, 9e-11, 5e-6), 16)}  # fmt: skip
ALL_COUNTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)


def us(variant: str, place: dict, count: int) -> float:
    constants, block_h = REAL[variant]
    call = Call(place["tokens"], place["heads"], chunks_of(place.get("topk", 2048)), 64 * 656,
                block_h)  # fmt: skip
    return predicted_s(call, min(count, call.chunks), constants, SMS) * 1e6


def timed(variant: str, place: dict, count: int, factor: float = 1.0, **changes):
    config = dict(vars(OP.variants[variant].config)) | {"chunks_per_block": count}
    place = {"padding": "mixed", **place}
    return one(variant, us(variant, place, count or 8) * factor, workload=place, config=config,
               environment=H200, **changes)  # fmt: skip


def swept(variant: str, place: dict, counts=ALL_COUNTS, noise: float = 0.0) -> list:
    return [timed(variant, place, n, 1 + noise * (-1) ** i) for i, n in enumerate(counts)]


SIX = [m for place in PLACES for m in swept("split_k_wgmma", place, COUNTS, 0.02)]
OTHERS = [{"tokens": tokens, "heads": heads, "topk": topk}
          for tokens in (1, 16, 96) for heads in (16, 128) for topk in (512, 2048)]  # fmt: skip


def call(*words):
    return CliRunner().invoke(app, ["dispatch", *map(str, words)])
