"""The sparse offset and time indexes of a segment (Kafka's OffsetIndex and TimeIndex).

Offset index: 8-byte entries, int32 offset - base, int32 position of the batch that holds it.
Time index: 12-byte entries, int64 largest timestamp so far, int32 offset - base of its record.
Entries are kept in arrays and written later, several at a time: an index can always be rebuilt.
"""

from __future__ import annotations

import errno
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt

from headwater.ports.files import File, Files
from headwater_broker.log.lazy_file import LazyFile

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
PENDING_BYTES_MAX = 1024
"""Unwritten entries of one index stay below this."""
NO_TIMESTAMP = -1
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors that say nothing about the disk, and pass."""
RELATIVE_OFFSET_MAX = 2**31 - 1


class _IndexFile(LazyFile):
    """The file of an index: entries are appended at its end."""

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path)
        self.base_offset = base_offset
        self._is_loaded = False
        self._pending = bytearray()

    def _write_some(self) -> None:
        """Write pending entries, or leave them for later when the process is out of descriptors."""
        try:
            self.write()
        except OSError as e:
            if e.errno not in OUT_OF_DESCRIPTORS:
                raise

    def write(self) -> None:
        """Write pending entries."""
        if self._pending:
            self._open().append(bytes(self._pending))
            self._pending.clear()

    def write_briefly(self) -> None:
        """Write pending entries. A file that was closed is closed again: it is written seldom."""
        was_open = self._file is not None
        self._write_some()
        if not was_open:
            self.close()

    def fsync(self) -> None:
        """Write pending entries and fsync the file."""
        self.write()
        self._open().fsync()

    def create(self) -> None:
        """Create the empty file and close it: it is opened again for the first entry, so that
        thousands of quiet partitions hold one descriptor each, not three.
        """
        self._is_loaded = self._open().size_bytes == 0
        self.close()

    def detach(self) -> File | None:
        """Write pending entries; return the open file, which the caller fsyncs and closes."""
        self.write()
        return super().detach()


class OffsetIndex(_IndexFile):
    """Offset -> position. A lookup is a bisect over an array that is loaded at first use."""

    entry_bytes = OFFSET_ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._relatives = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        self.load()
        return len(self._relatives)

    def load(self) -> None:
        """Read the file, unless it is loaded."""
        if not self._is_loaded:
            self._relatives, self._positions = _read_pairs(self._files, self.path)
            self._is_loaded = True

    def unload(self) -> None:
        """Drop the arrays of a closed segment."""
        if self._is_loaded and not self._pending:
            self._relatives, self._positions, self._is_loaded = array("i"), array("i"), False

    def add(self, offset: int, position: int) -> None:
        """Add an entry at the end; offsets must rise."""
        if not self._is_loaded:
            self.load()
        relative = offset - self.base_offset
        self._relatives.append(relative)
        self._positions.append(position)
        self._pending += OFFSET_ENTRY.pack(relative, position)
        if len(self._pending) >= PENDING_BYTES_MAX:
            self._write_some()

    def floor(self, offset: int) -> int:
        """Position of the last entry whose offset is <= `offset`; 0 when there is none."""
        if not self._is_loaded:
            self.load()
        relative = offset - self.base_offset
        if relative > RELATIVE_OFFSET_MAX:
            relative = RELATIVE_OFFSET_MAX
        at = bisect_right(self._relatives, relative)
        return self._positions[at - 1] if at else 0

    def floor_position(self, position: int) -> int:
        """Position of the last entry at or before byte `position`; 0 when there is none."""
        self.load()
        at = bisect_right(self._positions, min(position, RELATIVE_OFFSET_MAX))
        return self._positions[at - 1] if at else 0

    def ceiling_offset(self, position: int) -> int | None:
        """Offset of the first entry at or after byte `position`; None when there is none."""
        self.load()
        at = bisect_left(self._positions, position)
        return self.base_offset + self._relatives[at] if at < len(self._relatives) else None

    def is_sane(self, log_bytes: int) -> bool:
        """Whether entries rise and lie within the log."""
        self.load()
        relatives, positions = self._relatives, self._positions
        return (
            all(map(lt, relatives, relatives[1:]))
            and all(map(lt, positions, positions[1:]))
            and (not positions or (relatives[0] >= 0 and positions[-1] < log_bytes))
        )

    def truncate(self, offset: int) -> None:
        """Keep entries of offsets below `offset`."""
        self.load()
        keep = sum(1 for relative in self._relatives if relative < offset - self.base_offset)
        self._cut(keep)

    def _cut(self, keep: int) -> None:
        self.write()
        del self._relatives[keep:], self._positions[keep:]
        self._open().truncate(keep * self.entry_bytes)


class TimeIndex(_IndexFile):
    """Largest timestamp so far -> offset of its record."""

    entry_bytes = TIME_ENTRY.size

    def __init__(self, files: Files, path: str, base_offset: int) -> None:
        super().__init__(files, path, base_offset)
        self._timestamps: list[int] = []
        self._relatives: list[int] = []

    def __len__(self) -> int:
        self.load()
        return len(self._timestamps)

    def load(self) -> None:
        """Read the file, unless it is loaded."""
        if not self._is_loaded:
            data = _read_or_empty(self._files, self.path)
            whole = memoryview(data)[: len(data) // TIME_ENTRY.size * TIME_ENTRY.size]
            entries = list(TIME_ENTRY.iter_unpack(whole))
            self._timestamps = [timestamp for timestamp, _ in entries]
            self._relatives = [relative for _, relative in entries]
            self._is_loaded = True

    def unload(self) -> None:
        """Drop the lists of a closed segment."""
        if self._is_loaded and not self._pending:
            self._timestamps, self._relatives, self._is_loaded = [], [], False

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) when empty."""
        self.load()
        if not self._timestamps:
            return NO_TIMESTAMP, self.base_offset
        return self._timestamps[-1], self.base_offset + self._relatives[-1]

    def maybe_add(self, timestamp: int, offset: int) -> None:
        """Add an entry, if its timestamp is larger than the last one's."""
        if not self._is_loaded:
            self.load()
        if timestamp <= (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            return
        relative = offset - self.base_offset
        self._timestamps.append(timestamp)
        self._relatives.append(relative)
        self._pending += TIME_ENTRY.pack(timestamp, relative)
        if len(self._pending) >= PENDING_BYTES_MAX:
            self._write_some()

    def floor(self, timestamp: int) -> int:
        """Offset of the last entry whose timestamp is < `timestamp`; the base when there is none.

        All records before that offset have smaller timestamps, so a search starts there.
        """
        self.load()
        at = bisect_right(self._timestamps, timestamp - 1)
        return self.base_offset + (self._relatives[at - 1] if at else 0)

    def is_sane(self) -> bool:
        """Whether entries rise."""
        self.load()
        rising = all(map(lt, self._timestamps, self._timestamps[1:]))
        return rising and all(r >= 0 for r in self._relatives)

    def truncate(self, offset: int) -> None:
        """Keep entries of offsets below `offset`."""
        self.load()
        keep = sum(1 for relative in self._relatives if relative < offset - self.base_offset)
        self.write()
        del self._timestamps[keep:], self._relatives[keep:]
        self._open().truncate(keep * TIME_ENTRY.size)


def _read_or_empty(files: Files, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        return b""


def _read_pairs(files: Files, path: str) -> tuple[array[int], array[int]]:
    """Two columns of big-endian int32 pairs; a torn last entry is dropped."""
    data = _read_or_empty(files, path)
    flat = array("i")
    flat.frombytes(data[: len(data) // OFFSET_ENTRY.size * OFFSET_ENTRY.size])
    if sys.byteorder == "little":
        flat.byteswap()
    return flat[0::2], flat[1::2]
