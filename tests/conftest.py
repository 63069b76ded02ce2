"""Without a GPU, Triton interprets the kernels; it reads this variable when it is imported."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    from workbench.interpreter import repair

    repair()


def runs_here(v) -> bool:
    """Whether variant `v` runs on this machine's device: Gluon needs a GPU."""
    return DEVICE != "cpu" or v.interpretable


def each(variants, name=lambda v: v.name):
    """A test's parameter `v`: every variant, those that do not run here skipped."""

    def marks(v):
        return pytest.mark.skipif(not runs_here(v), reason="Gluon needs a GPU")

    return pytest.mark.parametrize(
        "v", [pytest.param(v, id=name(v), marks=marks(v)) for v in variants]
    )
