"""Files as a port: the operations on a disk that the log needs.

Real: `headwater.system_files.SystemFiles`; double with torn writes and lost fsyncs:
`headwater.testing.memory_files.MemoryFiles`. One conformance suite runs over both
(`tests/conformance/test_files.py`). Paths are absolute strings. Errors are OSError with errno.
"""

from __future__ import annotations

from typing import Protocol


class File(Protocol):
    """An open file. Appends go to its end, reads anywhere. Only `fsync` waits for the disk."""

    size_bytes: int
    """The current length. This object keeps it and never asks the disk."""

    def append(self, view: memoryview | bytes) -> None:
        """Write all of `view` at `size_bytes`. After an OSError the file is as long as before."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer at the end of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Make everything appended so far durable. It may wait for the disk."""
        ...

    def fileno(self) -> int:
        """The descriptor for `os.sendfile`; -1 if there is none (memory files)."""
        ...

    def close(self) -> None:
        """Release the descriptor, without fsync."""
        ...


class Files(Protocol):
    """A file system: open files, whole small files, names, locks."""

    def open(self, path: str, *, must_exist: bool = False) -> File:
        """Open a file for reading and appending. Create it and its folders if it does not exist.

        With `must_exist` it raises FileNotFoundError instead.
        """
        ...

    def read(self, path: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError."""
        ...

    def write_atomic(self, path: str, data: bytes) -> None:
        """Replace a small file atomically: temporary file, fsync, rename, fsync of the folder."""
        ...

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; none if it does not exist."""
        ...

    def modified_ms(self, path: str) -> int:
        """A file's modification time, in ms since 1970. Raises FileNotFoundError."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set a file's modification time. Raises FileNotFoundError."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder atomically, then fsync the target's folder. After EMFILE and
        ENFILE only the fsync has failed."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a whole folder. It need not exist."""
        ...

    def lock(self, path: str) -> object | None:
        """Take an exclusive lock (flock), held while the result lives; None if it is taken."""
        ...
