"""Every layout, byte by byte, against pages that are put together in plain Python from its table.

Nothing here is taken from the layouts' own constants: offsets are written out.
"""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench import layouts
from workbench.layouts import LAYOUTS, Tokens

torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other


class Table(NamedTuple):
    nope: int
    group: int
    rope: int
    d_v: int
    row: int  # bytes
    scales_at: int | None  # of the row; None: in the footer, 8 bytes a token
    rope_at: int
    formats: tuple[str, ...]


TABLES = {
    "inline_656": Table(512, 128, 64, 512, 656, 512, 528, ("pow2_fp32", "arbitrary_fp32")),
    "inline_528": Table(512, 128, 0, 512, 528, 512, 528, ("arbitrary_fp32",)),
    "footer_584": Table(448, 64, 64, 512, 576, None, 448, ("ue8m0",)),
    "footer_1160": Table(1024, 128, 64, 1024, 1152, None, 1024, ("ue8m0",)),
}
SIZES = (2, 53, 61, 64, 69, 128, 256)  # tokens of a page
STRIDES = [("inline_656", None), ("inline_656", 1088), ("inline_528", None), ("inline_528", 656),
           ("footer_584", None), ("footer_1160", None)]  # fmt: skip
POISON = 0xA5


def drawn(name: str, pages: int, size: int, seed: int = 0) -> Tokens:
    """Tokens whose bytes are noise, NaN codes and scales that are no numbers included."""
    table, gen = TABLES[name], torch.Generator().manual_seed(seed)

    def noise(width: int) -> torch.Tensor:
        return torch.randint(256, (pages, size, width), generator=gen, dtype=torch.uint8)

    groups = table.nope // table.group
    scales = noise(groups) if table.scales_at is None else noise(4 * groups).view(torch.float32)
    rope = torch.empty(pages, size, 0, dtype=torch.bfloat16)
    if table.rope:
        rope = noise(2 * table.rope).view(torch.bfloat16)
    return Tokens(noise(table.nope).view(torch.float8_e4m3fn), rope, scales)


def raw(field: torch.Tensor) -> list:
    """Bytes of each token [pages][P], whatever the type."""
    if not field.shape[-1]:
        return [[b""] * field.shape[1]] * field.shape[0]
    return [[bytes(t) for t in page] for page in field.contiguous().view(torch.uint8).tolist()]


def written(name: str, tokens: Tokens, stride: int, row_stride: int, fill: int) -> list[bytes]:
    """The pages, each piece put where the table says it stands."""
    table, pages = TABLES[name], []
    for nope, rope, scales in zip(*map(raw, tokens), strict=True):
        page, size = bytearray([fill]) * stride, len(nope)
        for t in range(size):
            at = t * row_stride
            page[at : at + table.nope] = nope[t]
            page[at + table.rope_at : at + table.rope_at + 2 * table.rope] = rope[t]
            where = size * table.row + 8 * t if table.scales_at is None else at + table.scales_at
            page[where : where + len(scales[t])] = scales[t]
        assert len(page) == stride
        pages.append(bytes(page))
    return pages


def same(a: Tokens, b: Tokens) -> bool:
    return all(raw(x) == raw(y) and x.dtype == y.dtype for x, y in zip(a, b, strict=True))


def packed(name: str, tokens: Tokens, padded=True, row_stride=None, fill=POISON):
    scale_format = TABLES[name].formats[-1]  # any scale is one of these
    return layouts.pack(LAYOUTS[name], tokens, scale_format, padded=padded, row_stride=row_stride,
                        fill=fill)  # fmt: skip


def test_layouts_are_found_by_name_with_the_numbers_of_their_table():
    assert set(LAYOUTS) == set(TABLES)
    for name, table in TABLES.items():
        found = LAYOUTS[name]
        assert found.name == name and name.split("_")[1] == str(found.token_bytes)
        assert (found.nope, found.group, found.rope, found.d_v, found.row_bytes, found.formats) == (
            table.nope, table.group, table.rope, table.d_v, table.row, table.formats)  # fmt: skip
        assert found.d_qk == table.nope + table.rope


@pytest.mark.parametrize("name, size, row_stride, tight, padded", [
    ("footer_584", 2, None, 1168, 1728), ("footer_584", 64, None, 37376, 37440),
    ("footer_584", 128, None, 74752, 74880), ("footer_584", 256, None, 149504, 149760),
    ("footer_1160", 64, None, 74240, 74880), ("footer_1160", 2, None, 2320, 3456),
    ("inline_656", 64, None, 41984, 42640), ("inline_656", 53, 1088, 57664, 58752),
    ("inline_528", 64, None, 33792, 34320), ("inline_528", 64, 656, 41984, 42640),
])  # fmt: skip
def test_strides_of_pages(name, size, row_stride, tight, padded):
    layout = LAYOUTS[name]
    assert layouts.page_bytes(layout, size, row_stride) == tight
    assert layouts.page_stride(layout, size, False, row_stride) == tight
    assert layouts.page_stride(layout, size, True, row_stride) == padded


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name, row_stride", STRIDES)
def test_every_byte_stands_where_the_table_says(name, row_stride, padded, size):
    tokens = drawn(name, 2, size, seed=size)
    stride = layouts.page_stride(LAYOUTS[name], size, padded, row_stride)
    expected = written(name, tokens, stride, row_stride or TABLES[name].row, POISON)
    got = packed(name, tokens, padded, row_stride)
    assert got.dtype == torch.uint8 and got.shape == (2, stride)
    for page, want in zip(got, expected, strict=True):
        have = page.numpy().tobytes()
        differ = next((i for i in range(stride) if have[i] != want[i]), None)
        assert differ is None, f"byte {differ} is {have[differ]}, not {want[differ]}"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name, row_stride", STRIDES)
def test_unpack_reads_what_was_written_and_no_padding(name, row_stride, size):
    tokens = drawn(name, 2, size, seed=size + 1)
    stride = layouts.page_stride(LAYOUTS[name], size, True, row_stride)
    for fill in (0x00, 0xFF):
        pages = written(name, tokens, stride, row_stride or TABLES[name].row, fill)
        pool = torch.frombuffer(bytearray(b"".join(pages)), dtype=torch.uint8).view(2, stride)
        assert same(layouts.unpack(LAYOUTS[name], pool, size, row_stride), tokens)


@settings(deadline=None, max_examples=80)
@given(layout=st.sampled_from(STRIDES), pages=st.integers(0, 3), size=st.integers(1, 80),
       padded=st.booleans(), fill=st.integers(0, 255), seed=st.integers(0, 2**16))  # fmt: skip
def test_unpack_undoes_pack(layout, pages, size, padded, fill, seed):
    name, row_stride = layout
    tokens = drawn(name, pages, size, seed)
    pool = packed(name, tokens, padded, row_stride, fill)
    assert same(layouts.unpack(LAYOUTS[name], pool, size, row_stride), tokens)
    wide = torch.nn.functional.pad(pool, (0, 36), value=0xFF)[:, : pool.shape[1]]
    assert same(layouts.unpack(LAYOUTS[name], wide, size, row_stride), tokens)


@pytest.mark.parametrize("name, row_stride, told", [
    ("inline_656", 652, "652"), ("inline_528", 512, "512"), ("footer_584", 1088, "tightly packed"),
    ("footer_1160", 1160, "tightly packed"),
])  # fmt: skip
def test_rows_that_overlap_or_leave_their_footer_are_refused(name, row_stride, told):
    with pytest.raises(ValueError, match=told):
        packed(name, drawn(name, 1, 2), row_stride=row_stride)
    with pytest.raises(ValueError, match=told):
        layouts.unpack(LAYOUTS[name], torch.zeros(1, 9999, dtype=torch.uint8), 2, row_stride)


@pytest.mark.parametrize("name", TABLES)
def test_what_is_no_token_is_refused_by_name(name):
    tokens = drawn(name, 2, 3)
    wrong = [("nope", tokens.nope[..., 1:]), ("rope", tokens.rope.half())]
    wrong += [("scales", tokens.scales[:, :2]), ("scales", tokens.scales.double())]
    for field, tensor in wrong:
        with pytest.raises(ValueError, match=f"^{field} is torch"):
            packed(name, tokens._replace(**{field: tensor}))
    other = {"inline_656": "ue8m0", "inline_528": "pow2_fp32"}.get(name, "pow2_fp32")
    with pytest.raises(ValueError, match=other):
        layouts.quantise(LAYOUTS[name], torch.zeros(1, 1, LAYOUTS[name].d_qk), other)
    if name.startswith("footer"):
        with pytest.raises(ValueError, match="uint8"):
            layouts.pack(LAYOUTS[name], tokens, other)
    with pytest.raises(ValueError, match="'pow2'"):
        layouts.pack(LAYOUTS[name], tokens, "pow2")
    short = packed(name, tokens, padded=False)[:, 1:]
    with pytest.raises(ValueError, match=str(short.shape[1])):
        layouts.unpack(LAYOUTS[name], short, 3)
    with pytest.raises(ValueError, match="int8"):
        layouts.unpack(LAYOUTS[name], packed(name, tokens).view(torch.int8), 3)


def test_the_legacy_stride_of_inline_528_is_that_of_inline_656():
    """A pool of 656-byte rows read at 528 columns: whatever stood for rotary values is not read."""
    tokens = drawn("inline_656", 2, 5)
    pool = packed("inline_656", tokens, padded=False)
    found = layouts.unpack(LAYOUTS["inline_528"], pool, 5, layouts.inline_528.LEGACY_STRIDE)
    assert raw(found.nope) == raw(tokens.nope) and raw(found.scales) == raw(tokens.scales)
    assert found.rope.shape == (2, 5, 0)
