"""Bytes of a cache page: strides, where every byte of a token stands, what is refused.

`pack` is compared with a page built byte by byte from the layout's description, and a page that is
split into 64-token pages must hold the same token under the same token number.
"""

import pytest
import torch
from conftest import DEVICE
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.layouts.footer_584 import Tokens, pack, page_bytes, page_stride, unpack
from workbench.ops import OPS

SIZES = (1, 2, 53, 61, 64, 128)  # tokens of a page; odd ones occur in FlashMLA's own tests


def drawn(pages: int, size: int, seed: int = 0) -> Tokens:
    """Tokens whose bytes are noise: every e4m3 and bf16 code occurs, NaN included."""
    gen = torch.Generator().manual_seed(seed)

    def noise(width: int) -> torch.Tensor:
        return torch.randint(256, (pages, size, width), generator=gen, dtype=torch.uint8)

    nope, rope = noise(448).view(torch.float8_e4m3fn), noise(128).view(torch.bfloat16)
    return Tokens(nope, rope, noise(7))


def codes(tokens: Tokens) -> tuple[torch.Tensor, ...]:
    """The fields as integers, so that NaN codes compare too."""
    return tokens.nope.view(torch.uint8), tokens.rope.view(torch.int16), tokens.scales


def same(a: Tokens, b: Tokens) -> bool:
    return all(torch.equal(x, y) for x, y in zip(codes(a), codes(b), strict=True))


def byte_by_byte(tokens: Tokens, stride: int) -> list[bytes]:
    """The pages, written one byte at a time: rows of 448 + 64 * 2, then groups of 7 + 1."""
    nope, rope, scales = (field.tolist() for field in codes(tokens))
    pages = []
    for n, r, s in zip(nope, rope, scales, strict=True):
        page, size = bytearray(stride), len(n)
        for t in range(size):
            for i, byte in enumerate(n[t]):
                page[576 * t + i] = byte
            for i, code in enumerate(r[t]):  # little endian
                page[576 * t + 448 + 2 * i] = code & 0xFF
                page[576 * t + 448 + 2 * i + 1] = (code >> 8) & 0xFF
            for i, byte in enumerate(s[t]):
                page[576 * size + 8 * t + i] = byte
        pages.append(bytes(page))
    return pages


@pytest.mark.parametrize(
    "size, padded", [(2, 1728), (64, 37440), (128, 74880), (256, 149760), (1, 1152), (72, 42048)]
)
def test_padded_strides_are_whole_rows(size, padded):
    assert page_stride(size) == padded
    assert padded % 576 == 0 and 0 <= padded - page_bytes(size) < 576


@pytest.mark.parametrize("size, tight", [(2, 1168), (64, 37376), (256, 149504)])
def test_unpadded_strides_are_the_bytes_of_the_tokens(size, tight):
    assert page_stride(size, padded=False) == page_bytes(size) == tight


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("size", SIZES)
def test_every_byte_stands_where_the_layout_says(size, padded):
    tokens = drawn(2, size, seed=size)
    stride = page_stride(size, padded)
    expected = byte_by_byte(tokens, stride)
    packed = pack(tokens, padded)
    assert packed.dtype == torch.uint8 and packed.shape == (2, stride)
    for page, want in zip(packed, expected, strict=True):
        got = page.numpy().tobytes()
        differ = [i for i in range(stride) if got[i] != want[i]]
        assert not differ, f"byte {differ[0]} is {got[differ[0]]}, not {want[differ[0]]}"


@pytest.mark.parametrize("size", SIZES)
def test_unpack_reads_bytes_that_were_written_one_by_one(size):
    tokens = drawn(3, size, seed=size)
    stride = page_stride(size)
    raw = bytearray(b"".join(byte_by_byte(tokens, stride)))
    for page in range(3):  # pad bytes may hold anything: nothing of them is read
        for t in range(size):
            raw[page * stride + 576 * size + 8 * t + 7] = 0xFF
        raw[page * stride + page_bytes(size) : (page + 1) * stride] = b"\xff" * (
            stride - page_bytes(size)
        )
    assert same(unpack(torch.frombuffer(raw, dtype=torch.uint8).view(3, stride), size), tokens)


@settings(deadline=None, max_examples=60)
@given(
    pages=st.integers(0, 4),
    size=st.sampled_from(SIZES) | st.integers(1, 80),
    padded=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_unpack_undoes_pack(pages, size, padded, seed):
    tokens = drawn(pages, size, seed)
    packed = pack(tokens, padded)
    assert same(unpack(packed, size), tokens)
    assert same(unpack(torch.nn.functional.pad(packed, (0, 40), value=0xFF), size), tokens)
    footer = packed[:, 576 * size : 584 * size].reshape(pages, size, 8)
    assert not footer[..., 7].any(), "the pad byte of a scale group is not zero"
    assert not packed[:, 584 * size :].any(), "the pad of a page is not zero"


def test_strided_fields_pack_like_contiguous_ones():
    tokens = drawn(2, 64)
    wide = (torch.cat((t.view(torch.uint8), t.view(torch.uint8)), -1) for t in tokens)
    halves = [w[..., : w.shape[-1] // 2] for w in wide]
    views = Tokens(*(h.view(t.dtype) for h, t in zip(halves, tokens, strict=True)))
    assert not views.rope.is_contiguous()
    assert torch.equal(pack(views), pack(tokens))


@pytest.mark.parametrize("pages, size", [(2, 64), (1, 2), (2, 1), (1, 1)])
def test_unpack_returns_tensors_of_its_own(pages, size):
    packed = pack(drawn(pages, size))
    tokens = unpack(packed, size)
    kept = Tokens(*(t.clone() for t in tokens))
    packed.bitwise_not_()
    assert same(tokens, kept), "the tokens changed with the pages that they were read from"


@pytest.mark.parametrize(
    "field, wrong, said",
    [
        ("nope", lambda t: t.view(torch.uint8), ("nope", "torch.uint8")),
        ("nope", lambda t: t.view(torch.float8_e5m2), ("nope", "torch.float8_e5m2")),
        ("rope", lambda t: t.view(torch.float16), ("rope", "torch.float16")),
        ("rope", lambda t: t[..., :63], ("rope", "63")),
        ("scales", lambda t: t.int(), ("scales", "torch.int32")),
        ("scales", lambda t: t[:, :3], ("scales", "(2, 3, 7)")),
    ],
)
def test_pack_refuses_another_dtype_or_shape_by_name(field, wrong, said):
    tokens = drawn(2, 4)
    with pytest.raises(ValueError) as error:
        pack(tokens._replace(**{field: wrong(getattr(tokens, field))}))
    assert all(word in str(error.value) for word in said), str(error.value)


def test_unpack_refuses_what_is_not_bytes():
    packed = pack(drawn(2, 64))
    with pytest.raises(ValueError, match=r"torch\.bfloat16"):
        unpack(packed.view(torch.bfloat16), 64)


@pytest.mark.parametrize("size, width", [(64, 37375), (128, 37440), (2, 1167)])
def test_unpack_refuses_a_short_page_with_its_width(size, width):
    with pytest.raises(ValueError, match=f"{584 * size}.*{width}"):
        unpack(torch.zeros(2, width, dtype=torch.uint8), size)


@pytest.mark.parametrize("size", [128, 256])
@pytest.mark.parametrize("padded", [True, False])
def test_a_split_page_holds_the_same_tokens_under_the_same_numbers(size, padded):
    split = OPS["page_split"]
    tokens = drawn(3, size, seed=7)
    x = split.make_inputs(split.Workload(pages=3, page_size=size, touch="all"), DEVICE)
    x = x._replace(source=pack(tokens, padded).to(DEVICE))
    parts = unpack(split.variants["eager_full"](x).split.cpu(), 64)
    assert len(parts.nope) == 3 * size // 64
    for number in (0, 1, 63, 64, size - 1, size, 2 * size + 65, 3 * size - 1):
        for before, after in zip(codes(tokens), codes(parts), strict=True):
            assert torch.equal(
                after[number // 64, number % 64], before[number // size, number % size]
            ), f"token {number}"
    flat = Tokens(*(t.view(3, size, -1) for t in parts))
    assert same(flat, tokens)
