"""A recorded call is made again on the same memory, with all that the host decided as it was.

On a GPU the recording is a CUDA graph, without one a tape: the same tests tell both.
"""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl
from conftest import DEVICE

from workbench.compare import same_bits
from workbench.replay import Unreplayable, record

torch.set_num_threads(1)  # small tensors: on a busy machine threads wait for each other
on_a_tape = pytest.mark.skipif(DEVICE != "cpu", reason="a GPU records a graph, not a tape")


def numbers(seed: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@triton.jit
def _scale_kernel(x, y, factor, N, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + k, tl.load(x + k, mask=k < N) * factor, mask=k < N)


def scaled(x, factor=2.0, programs=3):
    y = torch.zeros_like(x)
    _scale_kernel[lambda meta: (programs,)](x, y, factor, x.numel(), BLOCK=8)
    return y


def in_place(x):
    y = torch.empty_like(x)
    y.copy_(x).mul_(x).add_(1, alpha=2)
    y[1:3] = 0
    y[:, torch.arange(2, device=DEVICE)] -= 5
    return y


def of_a_view(x):
    y = x.clone()
    y.t()[1:].neg_()
    return y.view(3, 8)[:, ::2]


def of_factories(x):
    y = torch.zeros(6, device=DEVICE)
    y += x.sum(1) + torch.arange(6, device=DEVICE) + torch.full((6,), 2.5, device=DEVICE)
    return y


CALLS = {
    "in place": in_place,
    "out of place": lambda x: (x @ x.mT).softmax(-1) * 2 + x.amax(),
    "of a view": of_a_view,
    "of factories": of_factories,
    "two results": lambda x: torch.cat([t.to(x.dtype) for t in x.sort(dim=1)]),
    "the input": lambda x: x.t(),
    "one row many times": lambda x: (x * 2)[:1].expand(6, 4),
    "a launch": scaled,
    "a launch between": lambda x: scaled(x * 3) - x,
    "written out": lambda x: torch.add(x, x, out=torch.empty_like(x)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_replay_computes_on_what_the_memory_holds_now(name):
    call, x = CALLS[name], numbers(0)
    output, replay = record(partial(call, x), DEVICE)
    assert same_bits(output, call(numbers(0)))
    for seed in (1, 2):
        x.copy_(numbers(seed))
        output = replay()
        where = output.data_ptr()
        assert same_bits(output, call(numbers(seed)))
    assert replay().data_ptr() == where


def test_a_replay_writes_what_was_there_before_and_nothing_of_the_recording_twice():
    state = torch.zeros(3, device=DEVICE)
    _, replay = record(lambda: state.add_(1), DEVICE)
    assert (state == 1).all()
    replay()
    replay()
    assert (state == 3).all()


def test_scalars_and_grids_stay_as_they_were_recorded():
    x, host = numbers(0), SimpleNamespace(factor=2.0, programs=1)

    def call():
        y = torch.zeros_like(x)
        _scale_kernel[lambda meta: (host.programs,)](x, y, host.factor, x.numel(), BLOCK=8)
        return y + host.factor

    _, replay = record(call, DEVICE)
    right = replay().clone()
    host.factor, host.programs = 3.0, 3
    assert same_bits(replay(), right) and not same_bits(call(), right)


@on_a_tape
@pytest.mark.parametrize("call, name", (
    (lambda x: x.sum().item(), "_local_scalar_dense"), (lambda x: torch.equal(x, x), "equal"),
    (lambda x: x.clone().resize_(2), "resize_"), (lambda x: x.clone().unsqueeze_(0), "unsqueeze_"),
), ids=("item", "equal", "resize_", "unsqueeze_"))  # fmt: skip
def test_what_no_tape_holds_is_refused_by_name(call, name):
    with pytest.raises(Unreplayable, match=f"aten.{name}"):
        record(partial(call, numbers(0)), DEVICE)


@on_a_tape
def test_another_count_of_results_is_refused_by_name():
    x = numbers(0)
    _, replay = record(lambda: (x > 0).nonzero(), DEVICE)
    x.fill_(1)
    with pytest.raises(Unreplayable, match=r"aten.nonzero.default returned shape .*\(24, 2\)"):
        replay()
