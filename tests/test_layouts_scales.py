"""Codes and scales of every layout, bit for bit, against numbers worked out in plain Python.

Codes and scales are decoded from their bits, and a code is found as the nearest one of a table.
"""

import math
import struct
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_layouts_bytes import TABLES, packed, raw, same

from workbench import layouts
from workbench.layouts import LAYOUTS, Tokens

torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
FORMATS = [(name, scale_format) for name, t in TABLES.items() for scale_format in t.formats]


def e4m3(code: int) -> float:
    """Sign, 4 bits of exponent with bias 7, 3 of fraction; all ones are NaN, there is no inf."""
    sign, exponent, fraction = -1.0 if code & 0x80 else 1.0, code >> 3 & 15, code & 7
    if code & 0x7F == 0x7F:
        return math.nan
    if not exponent:
        return sign * fraction * 2.0**-9
    return sign * (1 + fraction / 8) * 2.0 ** (exponent - 7)


@cache
def positive_codes() -> list[float]:
    return [e4m3(code) for code in range(0x7F)]


def nearest(value: float) -> int:
    """The code of the number of the table next to `value`, the even code of two."""
    table, size = positive_codes(), abs(value)
    code = min(range(len(table)), key=lambda c: (abs(table[c] - size), c & 1))
    return code | (0x80 if math.copysign(1, value) < 0 else 0)


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def slow_scale(values: list[float], scale_format: str) -> tuple[float, bytes]:
    """(scale of a group, its bytes)."""
    largest = max(map(abs, values))
    if scale_format == "arbitrary_fp32":
        scale = float32(max(largest, float32(1e-4)) / 448)
        return scale, struct.pack("<f", scale)
    power = math.ceil(math.log2(max(float32(largest / 448), float32(1e-4))))
    if scale_format == "ue8m0":
        return 2.0**power, bytes([power + 127])
    return 2.0**power, struct.pack("<f", 2.0**power)


def values_of(name: str, kind: str) -> torch.Tensor:
    """Two tokens' values [2, d_qk] float32."""
    gen = torch.Generator().manual_seed(len(kind))
    values = torch.randn(2, LAYOUTS[name].d_qk, generator=gen)
    if kind == "zeros":
        values[:, : TABLES[name].group] = 0
        values[1] = -0.0
    elif kind == "large":
        values *= 1e6
    elif kind == "small":
        values *= 2e-5
    elif kind == "on the grid":  # scales that need no rounding, codes between two others
        values = torch.randint(-28, 29, values.shape, generator=gen) / 4.0
        values[:, :: TABLES[name].group] = 448.0
    return values


@pytest.mark.parametrize("kind", ["normal", "zeros", "large", "small", "on the grid"])
@pytest.mark.parametrize("name, scale_format", FORMATS)
def test_quantising_bit_for_bit(name, scale_format, kind):
    table, values = TABLES[name], values_of(name, kind)
    found = layouts.quantise(LAYOUTS[name], values[None], scale_format)
    codes, ropes, scales = map(raw, found)
    for t, row in enumerate(values.tolist()):
        for g in range(table.nope // table.group):
            mine = row[g * table.group : (g + 1) * table.group]
            scale, stored = slow_scale(mine, scale_format)
            width = len(stored)
            assert scales[0][t][g * width : (g + 1) * width] == stored, f"scale {g}"
            want = [nearest(max(-448.0, min(448.0, float32(v / scale)))) for v in mine]
            assert list(codes[0][t][g * table.group : (g + 1) * table.group]) == want, f"group {g}"
        rope = values[t, table.nope :].bfloat16()
        assert ropes[0][t] == (bytes(rope.view(torch.uint8).tolist()) if table.rope else b"")


@pytest.mark.parametrize("name, scale_format", FORMATS)
def test_a_group_of_zeros_has_a_scale_to_divide_by(name, scale_format):
    tokens = layouts.quantise(LAYOUTS[name], torch.zeros(1, 1, LAYOUTS[name].d_qk), scale_format)
    least = {"pow2_fp32": 2.0**-13, "arbitrary_fp32": float32(float32(1e-4) / 448), "ue8m0": 114}
    assert tokens.scales.unique().tolist() == [least[scale_format]]
    assert not tokens.nope.view(torch.uint8).any()
    assert not layouts.dequantise(tokens).any()


@pytest.mark.parametrize("name, scale_format", FORMATS)
def test_dequantising_is_exact(name, scale_format):
    table = TABLES[name]
    gen = torch.Generator().manual_seed(3)
    tokens = layouts.quantise(LAYOUTS[name], torch.randn(1, 3, LAYOUTS[name].d_qk, generator=gen),
                              scale_format)  # fmt: skip
    found = layouts.dequantise(tokens)
    assert found.dtype == torch.float64 and found.shape == (1, 3, LAYOUTS[name].d_qk)
    codes, ropes, scales = map(raw, tokens)
    for t in range(3):
        want = []
        for i, code in enumerate(codes[0][t]):
            g = i // table.group
            if scale_format == "ue8m0":
                scale = 2.0 ** (scales[0][t][g] - 127)
            else:
                (scale,) = struct.unpack("<f", scales[0][t][4 * g : 4 * g + 4])
            want.append(e4m3(code) * scale)
        bits = struct.unpack(f"<{table.rope}H", ropes[0][t])
        want += [struct.unpack("<f", struct.pack("<I", b << 16))[0] for b in bits]
        assert found[0, t].tolist() == want


def test_every_scale_byte_and_every_code():
    """0x00 is 2**-127, which float32 holds as a subnormal; 0xFF is NaN."""
    ones = torch.ones(1, 256, 448).to(torch.float8_e4m3fn)
    scales = torch.arange(256, dtype=torch.uint8)[None, :, None].expand(1, 256, 7).contiguous()
    tokens = Tokens(ones, torch.zeros(1, 256, 64, dtype=torch.bfloat16), scales)
    read = layouts.unpack(LAYOUTS["footer_584"], packed("footer_584", tokens), 256)
    for dtype in (torch.float64, torch.float32):
        found = layouts.dequantise(read, dtype)[0, :, :448]
        assert found[:255, 0].tolist() == [2.0 ** (b - 127) for b in range(255)]
        assert (found[:255] == found[:255, :1]).all() and found[255].isnan().all()
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    wide = torch.cat((codes, codes))[None, None]
    scale = torch.tensor([[[0.75, 1.0, 3.0, 1.0]]])
    tokens = Tokens(wide, torch.zeros(1, 1, 0, dtype=torch.bfloat16), scale)
    found = layouts.dequantise(tokens)[0, 0].tolist()
    want = [e4m3(i % 256) * scale[0, 0, i // 128].item() for i in range(512)]
    assert all(
        a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, want, strict=True)
    )


@pytest.mark.parametrize("scale", [0.75, 1.0000001, 0.0, -1.0, math.inf, math.nan, 2.0**-130])
def test_a_scale_that_is_no_power_of_two_is_refused_or_kept_exactly(scale):
    layout = LAYOUTS["inline_656"]
    tokens = layouts.quantise(layout, torch.ones(2, 3, 576), "pow2_fp32")
    tokens.scales[1, 2, 3] = scale
    with pytest.raises(ValueError) as error:
        layouts.pack(layout, tokens, "pow2_fp32")
    said = str(error.value)
    assert repr(tokens.scales[1, 2, 3].item()) in said and "(1, 2, 3)" in said, said
    kept = layouts.unpack(layout, layouts.pack(layout, tokens, "arbitrary_fp32", padded=False), 3)
    assert same(kept, tokens)
    if math.isfinite(scale):
        last = layouts.dequantise(kept)[1, 2, 511].item()
        assert last == tokens.nope[1, 2, 511].double().item() * float32(scale)


@pytest.mark.parametrize("power", [-126, -13, 0, 127])
def test_a_power_of_two_is_taken(power):
    layout = LAYOUTS["inline_656"]
    tokens = layouts.quantise(layout, torch.ones(1, 1, 576), "pow2_fp32")
    tokens.scales[:] = 2.0**power
    assert same(layouts.unpack(layout, layouts.pack(layout, tokens, "pow2_fp32"), 1), tokens)


@settings(deadline=None, max_examples=60)
@given(which=st.sampled_from(FORMATS), seed=st.integers(0, 2**16), power=st.integers(-12, 30))
def test_quantising_loses_half_a_step_of_e4m3(which, seed, power):
    name, scale_format = which
    table, gen = TABLES[name], torch.Generator().manual_seed(seed)
    values = torch.randn(2, 2, LAYOUTS[name].d_qk, generator=gen) * 2.0**power
    tokens = layouts.quantise(LAYOUTS[name], values, scale_format)
    nope = values[..., : table.nope].double()
    lost = (layouts.dequantise(tokens)[..., : table.nope] - nope).abs()
    scales = tokens.scales.double()
    if scale_format == "ue8m0":
        scales = 2.0 ** (scales - 127)
    subnormal = scales.repeat_interleave(table.group, -1) * 2.0**-10
    assert (lost <= torch.maximum(nope.abs() / 16, subnormal) * 1.000001).all()
