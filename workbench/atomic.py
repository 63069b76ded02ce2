"""Files that are there whole or not at all."""

import os
from pathlib import Path


def write(path: Path, content: bytes | str) -> None:
    """Write `path`, text as UTF-8; what stood there stays until all is written.

    Raises OSError, and ValueError where a pipe, a device or a folder stands there: a file in its
    place would take it from whoever reads it.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
