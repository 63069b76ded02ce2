"""The kernel of `_turns` over the unions of groups of tokens, for the variants that share it."""

from dataclasses import dataclass

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from ._hopper import ROWS, Registers, enough_registers, one_tile
from ._pieces import copied
from ._turns import turns


@dataclass(frozen=True)
class Config(Registers):
    """Of both variants over unions."""

    group: int = 0  # tokens that share a gather; 0: as many as fill the tile of 64 query rows
    longest_first: int = 1  # the last groups, which see the most rows, are computed first


@gluon.jit(do_not_specialize=["NEVER"])
def over_groups_kernel(
    q, kv, union_rows, owners, union_length, attn_sink, out, lse,
    scale_log2,
    T, H, WIDTH, NEVER,
    HAS_SINK: gl.constexpr, KV_STRIDE: gl.constexpr, D: gl.constexpr, DC: gl.constexpr,
    G: gl.constexpr, QUERIES: gl.constexpr, OVERLAP: gl.constexpr, REVERSED: gl.constexpr,
    PRODUCER: gl.constexpr, CONSUMER: gl.constexpr,
):  # fmt: skip
    """One group of tokens a program, over the union of their rows."""
    g = gl.program_id(0)
    if REVERSED:
        g = gl.num_programs(0) - 1 - g
    g = g.to(gl.int64)
    end = gl.minimum(T - g * G, G).to(gl.int32) * H
    count = gl.load(union_length + g)
    th = g * G * H
    turns(
        q, kv, union_rows + g * WIDTH, owners + g * WIDTH, attn_sink, out + th * DC, lse + th,
        scale_log2, th, 1, end, 0, count, H, 2147483647, NEVER,
        copied, KV_STRIDE, 0, True, OVERLAP, HAS_SINK, D, DC, QUERIES, 0, PRODUCER, CONSUMER,
    )  # fmt: skip


def requires(w, config: Config) -> str | None:
    return one_tile(w, config.group) or enough_registers(w, config)


def launched(config: Config) -> dict:
    """What the launch of the kernel is told."""
    registers = {"PRODUCER": config.producer_registers, "CONSUMER": config.consumer_registers}
    return {"QUERIES": ROWS, "REVERSED": bool(config.longest_first), "num_warps": 4, **registers}
