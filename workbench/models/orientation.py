"""Why the orientation that wins differs between architectures: what warps do for one cache row.

From the partition alone follow the sums that a thread holds, how often each code is read and made
a 16-bit number, and the weights that go through shared memory. From compiled rows come the
instructions. Per cache row and 64 heads of a token, all warps of the program together. Seed 002;
flashinfer-ai/flashinfer#4751, #4802.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..layouts import ARBITRARY, LAYOUTS
from ..ops import OPS

HEADS = 64  # of a program
LANES = 32  # threads of a warp
MOST = 255  # registers that a thread may have
FP8_MMA = ("sm_89", "sm_120", "sm_121")  # whose warps multiply e4m3: sm_90 has wgmma alone for it
CONVERSIONS = ("F2FP", "HADD2", "PRMT", "F2F")  # instructions that make a number another one
LOCAL = ("LDL", "STL")


@dataclass(frozen=True)
class Partition:
    """What the warps of a program share, for one tile of cache rows."""

    warps: int
    keys_read: int  # how many warps read a row's codes as keys
    values_read: int  # and as values
    queries_read: int  # warps that read a head's query for each tile
    handed_to: int  # warps that read a weight out of shared memory; 0: it stays in its warp


def partition(orientation: str, block_k: int = 64, layout: str = "inline_656") -> Partition:
    """The partition of `swapab`, `mg` or `heads_on_warps`. Raises ValueError on another name."""
    if orientation == "swapab":  # a warp owns 8 heads
        return Partition(8, 8, 8, 1, 0)
    if orientation == "heads_on_warps":  # 16, the least of a product's rows
        return Partition(4, 4, 4, 1, 0)
    if orientation != "mg":
        raise ValueError(f"{orientation!r} is none of swapab, mg, heads_on_warps")
    columns = LAYOUTS[layout].group // 16  # warps side by side over a group's values
    across = min(block_k // 8, columns)  # over a tile's rows
    return Partition(8, 8 // across, 8 // columns, across, columns)


@dataclass(frozen=True)
class Account:
    """One orientation on one architecture; counts are of a cache row unless said otherwise."""

    variant: str
    arch: str
    heads: int
    native: bool  # the architecture has the products that the text asks for
    sums: int  # float32 sums that a thread holds
    registers: int  # of a thread, of MOST
    local: int  # local loads and stores in the hot loop, of a warp
    widened: int  # times that a code is made a 16-bit number
    shared_bytes: int  # that warps read: codes, rotary values, queries
    handed_bytes: int  # of weights, written and read
    barriers: float  # of the whole program, for 64 rows
    instructions: float  # of warps
    conversions: float  # of them


def accounts(rows: Iterable[Mapping]) -> list[Account]:
    """An account for each row of `compiled.table` that is an orientation's kernel."""
    names = ("swapab", "mg", "heads_on_warps")
    known = {name + suffix: name for name in names for suffix in ("", "_fp8")}
    return [_account(known[_variant(row)], row) for row in rows
            if _variant(row) in known and row.get("hot_loop")]  # fmt: skip


def _variant(row: Mapping) -> str:
    return row["variant"].split(" ")[0]


def _account(orientation: str, row: Mapping) -> Account:
    config, w, loop = row["config"], row["workload"], row["hot_loop"]
    layout, block_k, fp8 = LAYOUTS[w["layout"]], config["block_k"], row["variant"].endswith("_fp8")
    share, size = partition(orientation, block_k, w["layout"]), 1 if fp8 else 2
    passes = config["passes"] or (2 if fp8 or w["scale_format"] == ARBITRARY else 1)
    d_q = 2 * layout.rope + size * layout.nope
    if fp8 and orientation == "swapab":
        d_q = 2 * layout.rope  # a warp's codes stay in its registers
    queries = share.queries_read * HEADS * d_q // block_k
    keys = share.keys_read * (layout.nope + 2 * layout.rope)
    values = share.values_read * layout.nope
    weights = HEADS * size * layout.groups * passes
    if layout.d_v > layout.nope:  # rotary values are values, too, with weights of their own
        values += share.values_read * 2 * layout.rope
        weights += HEADS * 2
    per_row = share.warps / block_k

    def issued(names: Iterable[str]) -> float:
        return per_row * sum(loop.get(name, 0) for name in names)

    return Account(
        row["variant"], row["arch"], w["heads"], not fp8 or row["arch"] in FP8_MMA,
        HEADS * layout.d_v // (LANES * share.warps), row["registers"],
        sum(loop.get(name, 0) for name in LOCAL),
        0 if fp8 else share.keys_read + share.values_read,
        keys + values + queries,
        weights * (1 + share.handed_to) if share.handed_to else 0,
        64 / block_k * loop.get("BAR", 0), issued(loop), issued(CONVERSIONS),
    )  # fmt: skip


def pairs(found: Sequence[Account], heads: int = 64) -> dict[str, tuple[Account, Account]]:
    """(mg, swapab) by architecture, of the arithmetic that its warps have; others are left out."""
    out = {}
    for arch in dict.fromkeys(a.arch for a in found):
        suffix = "_fp8" if arch in FP8_MMA else ""
        mine = {a.variant: a for a in found if a.arch == arch and a.heads == heads}
        if {f"mg{suffix}", f"swapab{suffix}"} <= mine.keys():
            out[arch] = mine[f"mg{suffix}"], mine[f"swapab{suffix}"]
    return out


def told(
    found: Sequence[Account], seen: Mapping[str, tuple[str, Sequence[float]]], heads: int = 64
) -> list[str]:
    """The account as sentences. `seen`: by architecture, whose times, and their MG / swapAB."""
    sums = {a.variant.removesuffix("_fp8"): a.sums for a in found}
    said = []
    if {"heads_on_warps", "mg"} <= sums.keys():
        local = max(a.local for a in found if a.variant.startswith("heads_on_warps"))
        said.append(f"A thread of heads_on_warps has {sums['heads_on_warps']} sums to hold in "
                    f"{MOST} registers, and its hot loop shows it: up to {local} local loads and "
                    f"stores. mg and swapab halve them to {sums['mg']}.")  # fmt: skip
    for arch, (mg, swapped) in pairs(found, heads).items():
        said.append(_of(arch, mg, swapped))
        if arch in seen:
            who, ratios = seen[arch]
            said.append(_beside(mg.instructions / swapped.instructions, who, ratios))
    return said


def _of(arch: str, mg: Account, swapped: Account) -> str:
    """What decides between the two on an architecture."""
    crossing = (f"mg waits at {mg.barriers:g} barriers for 64 rows and passes {mg.handed_bytes:,} "
                f"bytes of weights a row through shared memory, swapab at {swapped.barriers:g} "
                f"and {swapped.handed_bytes:,}")  # fmt: skip
    issued = f"{mg.instructions:,.0f} warp instructions a row (mg) and {swapped.instructions:,.0f}"
    if swapped.widened:
        extra = swapped.conversions - mg.conversions
        more = swapped.instructions - mg.instructions
        share = f"{extra / more:.0%} of what" if more else "all between"
        return (f"{arch} has no e4m3 product for warps: swapab makes each code a 16-bit number "
                f"{swapped.widened} times, mg {mg.widened} times. That is {share} {issued} "
                f"(swapab) differ by, though {crossing}.")  # fmt: skip
    return (f"{arch} multiplies codes as they are, so that reading them in each warp costs swapab "
            f"loads alone; {crossing}. In all: {issued} (swapab).")  # fmt: skip


def _beside(expected: float, who: str, ratios: Sequence[float]) -> str:
    """A ratio of instructions beside ratios of times."""
    low, high = min(ratios), max(ratios)
    span = f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}"
    agree = (expected < 1) == (low < 1) == (high < 1)
    return (f"Instructions alone would make MG / swapAB {expected:.2f} there; {who}: {span}"
            + (", of the same sign." if agree else ", not of one sign with it."))  # fmt: skip


def head_rows(heads: Sequence[int], **fields) -> list[dict]:
    """Rows of heads that each variant's programs compute over those that there are, by H.

    A product of a Hopper warp group has 64 rows, a program for `mma` has HEADS of them. A variant
    without a tile, and a width that it does not take, are left out.
    """
    op, out = OPS["fp8_prefill"], []
    for v in op.variants.values():
        found = {}
        for count in heads:
            w = replace(op.Workload(**fields), heads=count)
            tile = None if v.requires(w, v.config) else v.tile(w, v.config)
            if tile is not None:
                found[f"H={count}"] = tile.rows * tile.programs / count
        if found:
            out.append({"variant": v.name} | found)
    return out
