"""Reports of compiled kernels and traces of variants, in the user's cache folder.

An entry is written whole or not at all, so that processes may share the folder. One that cannot be
read or holds something else is as good as absent.
"""

import json
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

KINDS: dict[str, Any] = {
    "kernel": str, "warps": int, "registers": int, "stack_bytes": int, "spill_store_bytes": int,
    "spill_load_bytes": int, "shared_bytes": int, "blocks_per_sm": int, "warps_per_sm": int,
    "occupancy_limit": str, "mma": dict | None, "instructions": dict | None,
    "looped": dict | None, "hot_loop": dict | None, "sass": str,
}  # fmt: skip


def folder() -> Path:
    """Where entries go unless another folder is named: XDG_CACHE_HOME, or ~/.cache."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = base if base.is_absolute() else Path.home() / ".cache"
    return home / "sparse-mla-workbench" / "compiled"


def get(where: Path, name: str, whole: Callable[[Any], bool]) -> Any:
    """What is kept under `name`; None where there is nothing, or nothing that is `whole`."""
    try:
        entry = json.loads((where / f"{name}.json").read_text())
        kept = entry["kept"] if entry["name"] == name else None
        return kept if whole(kept) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def is_report(kept: Any) -> bool:
    """Whether `kept` is what `kernel.report` makes."""
    return set(kept) == set(KINDS) and all(isinstance(kept[k], kind) for k, kind in KINDS.items())


def is_trace(kept: Any) -> bool:
    """Whether `kept` is the names of reports with a count each, or why there are none."""
    if isinstance(kept, str):
        return True
    return all(isinstance(name, str) and isinstance(count, int) for name, count in kept)


def put(where: Path, name: str, kept: Any) -> None:
    """Keep `kept` under `name`. Raises OSError where the folder cannot be written."""
    where.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(prefix=f".{name[:16]}.", dir=where)
    try:
        with os.fdopen(handle, "w") as file:
            json.dump({"name": name, "kept": kept}, file)
        os.replace(partial, where / f"{name}.json")
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
