"""Keys and certificates, read again when one of their files has changed: they are replaced while
brokers run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from headwater.errors import HeadwaterError

T = TypeVar("T")
Stamp = tuple[int, int, int]
"""Time of change in ns, inode and size of a file."""

logger = logging.getLogger(__name__)


def stamp(path: str) -> Stamp:
    """The present stamp of a file. Raises OSError."""
    stat = os.stat(path)
    return stat.st_mtime_ns, stat.st_ino, stat.st_size


class CertificateFiles(Generic[T]):
    """The value made of the files."""

    def __init__(self, where: str, paths: Sequence[str], read: Callable[[], T]) -> None:
        """`where`: their use, for log lines. Raises what `read` raises."""
        self._where = where
        self._paths = paths
        self._read = read
        self._stamps = self._present()
        self._value = read()

    def now(self) -> T:
        """The value: the same object while no file changes, and while a changed one is bad."""
        stamps = self._present()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._value = self._read()
                logger.info("the certificates %s are read again", self._where)
            except HeadwaterError as error:
                logger.error("the former certificates stay in use %s: %s", self._where, error)
        return self._value

    def _present(self) -> list[Stamp | None]:
        found: list[Stamp | None] = []
        for path in self._paths:
            try:
                found.append(stamp(path))
            except OSError:
                found.append(None)  # it is being replaced: the next look finds it
        return found
