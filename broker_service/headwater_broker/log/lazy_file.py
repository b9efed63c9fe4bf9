"""A file beside a segment's log that is opened at first use: most are never written again."""

from __future__ import annotations

from headwater.ports.files import File, Files


class LazyFile:
    """Holds the path, and the open file once there is one."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self.path = path

    def hold(self) -> None:
        """Open it now: later nothing is looked for by its path."""
        self._open()

    def fsync(self) -> None:
        """Make the file durable, if it was opened."""
        if self._file is not None:
            self._file.fsync()

    def detach(self) -> File | None:
        """Hand the open file over to whoever syncs and closes it."""
        file, self._file = self._file, None
        return file

    def close(self) -> None:
        """Release the descriptor."""
        file = self.detach()
        if file is not None:
            file.close()

    def _open(self) -> File:
        if self._file is None:
            self._file = self._files.open(self.path)
        return self._file
