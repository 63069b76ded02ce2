"""Sparse-MLA workbench: which way of computing this is fastest, where, and why.

Everything a notebook needs is a name of this package; each is imported when it is first used, so
that `TRITON_INTERPRET` may be set before Triton is.
"""

from importlib import import_module

_HOMES = {
    "OPS": "ops",
    "registry": "modules",
    "Op": "op",
    "Variant": "op",
    "Verdict": "op",
    "Cost": "op",
    "Arm": "arms",
    "arms_of": "arms",
    "arm_named": "arms",
    "workloads_of": "arms",
    "run": "study",
    "check": "study",
    "load": "evidence",
    "append": "record",
    "Measurement": "record",
    "figures": "",
    "selections": "",
    "layouts": "",
}
__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'workbench' has no attribute {name!r}")
    if not _HOMES[name]:
        return import_module(f".{name}", __name__)
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def load_ipython_extension(shell) -> None:
    """`%load_ext workbench`: adds the cell magic %%gpu_profile."""
    import_module(".notebook", __name__).load(shell)
