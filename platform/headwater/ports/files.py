"""Files as a port: what the log needs of a disk, and no more.

Real: `headwater.system_files.SystemFiles`; double with torn writes and lost fsyncs:
`headwater.testing.memory_files.MemoryFiles`. One conformance suite runs over both
(`tests/conformance/test_files.py`). Paths are absolute strings. Errors are OSError with errno.
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """One open file, appended at its end and read anywhere. Calls touch the page cache only."""

    size_bytes: int
    """The current length; kept by this object, never asked of the disk."""

    def append(self, view: memoryview | bytes) -> None:
        """Write all of `view` at `size_bytes`. On OSError nothing counts as written."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Make everything appended so far durable. May wait for the disk."""
        ...

    def fileno(self) -> int:
        """The descriptor for `os.sendfile`, or -1 when there is none (memory files)."""
        ...

    def close(self) -> None:
        """Release the descriptor; does not fsync."""
        ...


class Files(Protocol):
    """A file system: names, whole small files, locks."""

    def open(self, path: str, *, must_exist: bool = False) -> File:
        """Open for reading and appending; create it, and its parent folders, when absent.

        `must_exist`: create nothing, raise FileNotFoundError.
        """
        ...

    def read(self, path: str) -> bytes:
        """A whole small file. Raises FileNotFoundError."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a whole small file: temporary file, fsync, rename, fsync of the folder."""
        ...

    def names(self, path: str) -> list[str]:
        """Sorted names in a folder; empty when the folder does not exist."""
        ...

    def modified_ms(self, path: str) -> int:
        """When a file was last written, in ms since 1970. Raises FileNotFoundError."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Have `modified_ms` tell this. Raises FileNotFoundError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically rename a file or folder, then fsync the target's folder. EMFILE and ENFILE
        tell that only the latter failed."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder; what does not exist is no error."""
        ...

    def lock(self, path: str) -> object | None:
        """Take an exclusive lock file (flock), held while the result lives; None when taken."""
        ...
