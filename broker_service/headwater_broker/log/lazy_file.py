"""A file of a segment that is opened at first use: most are never written again."""

from __future__ import annotations

from headwater.ports.files import File, Files


class LazyFile:
    """The path, and the open file once there is one."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._file: File | None = None
        self.path = path

    def hold(self) -> None:
        """Open the file now; later calls do not need its path."""
        self._open()

    def fsync(self) -> None:
        """Fsync the file, if it was opened."""
        if self._file is not None:
            self._file.fsync()

    def detach(self) -> File | None:
        """Return the open file, which the caller fsyncs and closes."""
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
