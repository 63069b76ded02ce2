"""How far is `actual` from `expected`? Words for writing an op's contract."""

import torch

SLACK = 2.0  # times the unavoidable rounding; an honest bf16 kernel with fp32 scores sits near 1.1
ROW_SLACK = 3.0  # the same for the worst single row, which averages over fewer elements
LSE_TOLERANCE = 2e-5  # of max(1, |lse|), base 2; of 2,048 slots each moves an lse of 12 by 7e-4


def relative_l2(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """||actual - expected|| / ||expected||, or ||actual|| where nothing is expected."""
    expected = expected.double()
    norm = expected.norm().item()
    return (actual.double() - expected).norm().item() / (norm or 1.0)


def storage_rounding(expected: torch.Tensor, dtype: torch.dtype) -> float:
    """What storing the exact answer in `dtype` costs: a relative L2 error (bf16: about 0.17 %)."""
    floor = torch.finfo(dtype).eps / 8  # an answer that `dtype` holds exactly still was summed
    return max(relative_l2(expected.to(dtype), expected), floor)


def worst_row(actual: torch.Tensor, expected: torch.Tensor) -> tuple[float, tuple[int, ...]]:
    """The largest relative L2 error of a last-dimension row, and which row it is."""
    difference = (actual.double() - expected.double()).norm(dim=-1)
    norm = expected.double().norm(dim=-1)
    error = difference / torch.where(norm > 0, norm, 1.0)
    if not error.numel():
        return 0.0, ()
    where = int(error.argmax())
    row = tuple(int(i) for i in torch.unravel_index(torch.tensor(where), error.shape))
    return error.flatten()[where].item(), row


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bitwise equality, NaN equal to itself; shapes and dtypes must agree."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    a, b = (t.contiguous().flatten().view(torch.uint8) for t in (a, b))
    step = 1 << 30  # torch.equal makes a boolean of the whole comparison: bound it
    return all(torch.equal(a[i : i + step], b[i : i + step]) for i in range(0, a.numel(), step))
