"""Tensors in safetensors files, each named by the path and key that a workload gives."""

from pathlib import Path

import torch

LFS = b"version https://git-lfs.github.com/spec/"  # how a file begins whose content is elsewhere
ABOUT = "sparse_mla_workbench"  # key of what we add to a file's own metadata


def placed(root: Path, path: str) -> Path:
    """Where a workload's `path` is below `root`. Raises ValueError where it leads out of there."""
    found = (root / path).resolve()
    if not found.is_relative_to(root.resolve()):
        raise ValueError(f"the blob path {path!r} leads out of its folder")
    return found


def read(file: Path, key: str) -> torch.Tensor:
    """The tensor `key` of a safetensors file, on the CPU.

    Raises FileNotFoundError where the file is missing or a Git LFS pointer, ValueError where it is
    broken or has no such tensor.
    """
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        raise FileNotFoundError(f"blob missing: {file.name}")
    with file.open("rb") as opened:
        if opened.read(len(LFS)) == LFS:
            raise FileNotFoundError(f"blob missing: {file.name} is a Git LFS pointer to it")
    try:
        with safe_open(file, framework="pt") as opened:
            names = list(opened.keys())
            if key not in names:
                held = ", ".join(names) or "nothing"
                raise ValueError(f"{file.name} holds no {key!r}, but {held}")
            return opened.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file.name} is no whole safetensors file: {error}") from None


def about(file: Path) -> str:
    """What `write` was told of the file's tensors; empty of a file that others wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            return (opened.metadata() or {}).get(ABOUT, "")
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{file.name} is no whole safetensors file: {error}") from None


def write(file: Path, tensors: dict[str, torch.Tensor], about: str) -> int:
    """Write tensors, with `about` in the file's metadata; return the size in bytes."""
    from safetensors.torch import save

    file.parent.mkdir(parents=True, exist_ok=True)
    # not save_file: what that writes is for nobody else to read
    return file.write_bytes(save(tensors, {ABOUT: about}))
