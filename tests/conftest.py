"""Without a GPU, Triton interprets the kernels; it reads this variable when it is imported."""

import os

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
    from workbench.interpreter import repair

    repair()
