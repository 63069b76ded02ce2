"""Records of sparse decode with times of our own: by a chunk model, and of prefill kernels."""

from dataclasses import replace

from test_records import ENVIRONMENT, made

from workbench.models.makespan import Call, Constants, chunks_of, predicted_s
from workbench.ops import OPS

OP = OPS["sparse_decode"]
SMS = 132
GPU = replace(ENVIRONMENT, device="NVIDIA H200", capability="9.0", triton="3.6.0",
              l2_bytes=62914560, multiprocessors=SMS, interpreted=False)  # fmt: skip
# constants, heads of a program, the most heads
DECODE = {
    "split_k_swapped_wgmma": (Constants(2.4e-13, 3.6e-11, 5e-6), 16, 16),
    "split_k_wgmma": (Constants(2.4e-13, 4.2e-11, 5.5e-6), 64, 128),
    "split_k_mma": (Constants(2.3e-13, 3.2e-11, 4e-6), 16, 128),
    "split_k": (Constants(4e-13, 9e-11, 6e-6), 16, 128),
}
PREFILL = {"prefill_swapped": (1.25, 16, 16), "prefill_heads_on_m": (1.35, 64, 128)}
TOKENS = (1, 4, 8, 16, 24, 32, 48, 64, 65, 96, 128)
COUNTS = (1, 2, 3, 4, 6, 8, 11, 16, 32)


def rule_of(call: Call) -> int:
    """As many chunks as leave one program a multiprocessor."""
    return -(-call.chunks // max(1, min(call.chunks, SMS // call.pieces)))


def us_of(variant: str, tokens: int, heads: int, topk: int, count: int) -> float | None:
    """Microseconds, None where the variant does not take the heads; a merge is 1.5 and a share."""
    constants, block_h, most = DECODE[variant]
    if heads > most:
        return None
    call = Call(tokens, heads, chunks_of(topk), 64 * 656, block_h)
    count = min(count or rule_of(call), call.chunks)
    splits = -(-call.chunks // count)
    merge = 0.0 if splits == 1 else 1.5 + tokens * heads * splits * 1e-3
    return predicted_s(call, count, constants, SMS) * 1e6 + merge


def prefill_us(variant: str, tokens: int, heads: int) -> float | None:
    a_chunk, block_h, most = PREFILL[variant]
    waves = -(-tokens * -(-heads // block_h) // SMS)
    return None if heads > most else 4 + waves * 32 * a_chunk


def one(variant: str, us: float, block: int = 0, count: int | None = None, study="s", **place):
    v = OP.variants[variant]
    config = dict(vars(v.config)) if v.config is not None else {}
    config |= {} if count is None else {"chunks_per_block": count}
    place = {"padding": "mixed", "topk": 2048, **place}
    tokens, heads, topk = place["tokens"], place["heads"], place["topk"]
    cost = {"bytes": tokens * (topk * 656 + heads * 2176), "flops": tokens * heads * topk * 2176}
    samples = [us * (1 + 0.004 * (i % 5 - 2)) for i in range(10)]
    return made(
        op=OP.name, variant=variant, config=config, config_asked=config, workload=place, cost=cost,
        samples_us=samples, twin_us=[s * 1.002 for s in samples], environment=GPU, block=block,
        clock="graph_rotating", cache="rotating", reuse_bytes=10**9, study=study, ledger={},
        statistics={}, at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip


def crossover(heads=(16, 64, 128), tokens=TOKENS, blocks=3) -> list:
    """Every variant in turns, each by its own rule."""
    out = []
    for block in range(blocks):
        for h in heads:
            for t in tokens:
                times = {v: us_of(v, t, h, 2048, 0) for v in DECODE}
                times |= {v: prefill_us(v, t, h) for v in PREFILL}
                for i, (v, us) in enumerate(times.items()):
                    if us is not None:
                        count = 0 if v in DECODE else None
                        off = 1 + 0.006 * ((block * 7 + i * 3 + t) % 5 - 2) / 2
                        out.append(one(v, us * off, block, count, tokens=t, heads=h))
    return out


def splits(variants=tuple(DECODE), tokens=(1, 2, 4, 16, 24, 48, 96, 128), topks=(256, 768, 2048),
           counts=(0, *COUNTS)) -> list:  # fmt: skip
    """Sweeps over the number of chunks, each time up to 6 % off."""
    out = []
    for v in variants:
        for h in (16, 64, 128):
            for t in tokens:
                for k in topks:
                    for n in counts:
                        us = us_of(v, t, h, k, n) if n <= chunks_of(k) else None
                        if us is not None:
                            off = 1 + 0.06 * ((t * 31 + h * 7 + k + n * 13) % 11 - 5) / 5
                            out.append(one(v, us * off, 0, n, "sweep", tokens=t, heads=h, topk=k))
    return out
