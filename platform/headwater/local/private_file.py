"""Files that only their owner may read: keys, passwords, and properties that may be such."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically by one that only its owner may read."""
    scratch = path.with_name(f"{path.name}.new")
    scratch.unlink(missing_ok=True)  # of a crash: its mode would be kept
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(os.open(scratch, flags, FILE_MODE), "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    os.replace(scratch, path)
