"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write(path: Path, content: bytes | str) -> None:
    """Write `path`, text as UTF-8; what stood there stays until all is written. Raises OSError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
