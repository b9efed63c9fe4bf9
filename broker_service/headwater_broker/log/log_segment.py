"""One segment of a log: the `.log` file and its indexes (Kafka's LogSegment)."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.files import File, Files
from headwater.records.batch import (
    AT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    BatchHeader,
    read_header,
)
from headwater_broker.log.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex
from headwater_broker.log.results import EMPTY, LogSlice
from headwater_broker.log.retention import SegmentAge
from headwater_broker.log.transaction_index import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
"""Files of a compacted segment that is being written."""
SWAP_SUFFIX = ".swap"
"""Files of a complete compacted segment that is replacing older ones."""

SCAN_BYTES = 8192
"""Size of one read of a header scan: an index interval of small batches fits."""
NO_TIMESTAMP = -1
LENGTH_MIN = HEADER_BYTES - LOG_OVERHEAD_BYTES
"""The smallest valid batch_length."""

logger = logging.getLogger(__name__)

_PLACE = struct.Struct(">qi11xi")
"""base offset, batch length, last offset delta."""
_TIMES = struct.Struct(">qi11xi8xq")
"""as above, then max timestamp."""
_make = tuple.__new__
"""Makes a named tuple from a tuple faster than its class does; for objects made per request."""


class DamagedLogError(KafkaError):
    """CORRUPT_MESSAGE: there is no batch where one must begin.

    It fails the request that reads there. It is no disk error: the rest of the log stays in use.
    """

    def __init__(self, path: str, position: int) -> None:
        super().__init__(
            ErrorCode.CORRUPT_MESSAGE,
            f"{path}: no whole batch at byte {position}; the file is damaged there",
        )


class BatchPosition(NamedTuple):
    """Position, size and offsets of a batch in its file."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


def file_name(offset: int, suffix: str) -> str:
    """The name of a segment's file: its base offset in 20 digits, then the suffix."""
    return f"{offset:020d}{suffix}"


class LogSegment:
    """One segment. Only the last segment of a log is appended to."""

    __slots__ = (
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "file",
        "first_timestamp",
        "folder",
        "hint_offset",
        "hint_position",
        "is_damage_logged",
        "last_write_ms",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "roll_at_bytes",
        "roll_at_ms",
        "roll_at_offset",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        base_offset: int,
        *,
        has_txn_index: bool,
        now_ms: int,
        mark: str = "",
    ) -> None:
        """`mark` ends the names of all its files, such as CLEANED_SUFFIX."""
        stem = f"{folder}/{base_offset:020d}"
        self.folder = folder
        self.base_offset = base_offset
        self.file: File = files.open(stem + LOG_SUFFIX + mark)
        self.offset_index = OffsetIndex(files, stem + INDEX_SUFFIX + mark, base_offset)
        self.time_index = TimeIndex(files, stem + TIME_INDEX_SUFFIX + mark, base_offset)
        self.txn_index = TransactionIndex(
            files, stem + TXN_INDEX_SUFFIX + mark, exists=has_txn_index
        )
        self.bytes_since_index = 0
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.created_ms = now_ms
        self.last_write_ms = now_ms
        self.roll_at_bytes = 0
        self.roll_at_ms = 0
        self.roll_at_offset = 0
        """Bounds of this segment, see `roll_policy`."""
        self.hint_offset = -1
        self.hint_position = 0
        self.is_damage_logged = False

    def relocate(self, folder: str) -> None:
        """The log's folder was renamed: open files there from now on."""
        stem = f"{folder}/{self.base_offset:020d}"
        self.folder = folder
        self.offset_index.path = stem + INDEX_SUFFIX
        self.time_index.path = stem + TIME_INDEX_SUFFIX
        self.txn_index.path = stem + TXN_INDEX_SUFFIX

    def create_indexes(self) -> None:
        """Create both index files of a new segment: a missing one is always an error."""
        self.offset_index.create()
        self.time_index.create()

    def open_indexes(self) -> None:
        """Load and open the indexes: until they are released no call needs a descriptor for them,
        or their names."""
        self.offset_index.load()
        self.time_index.load()
        self.offset_index.hold()
        self.time_index.hold()
        if self.txn_index.entries:  # without any it has no file
            self.txn_index.hold()

    def headers(self, at: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of every batch from byte `at` on. Raises DamagedLogError."""
        end = self.file.size_bytes
        while at < end:
            chunk = self.file.read_at(at, SCAN_BYTES)
            position, last = 0, len(chunk) - HEADER_BYTES
            if last < 0:
                raise self._damaged(at)
            while position <= last:
                header = read_header(chunk, position)
                following = at + position + header.size_bytes
                if (
                    header.batch_length < LENGTH_MIN
                    or following > end
                    or header.magic != MAGIC_V2
                    or not 0 <= header.base_offset - self.base_offset <= RELATIVE_OFFSET_MAX
                    or header.last_offset_delta < 0
                ):
                    raise self._damaged(at + position)
                yield at + position, header
                position += header.size_bytes
            at += position

    def _damaged(self, position: int) -> DamagedLogError:
        """The error to raise. It is logged once per segment, as clients ask again and again."""
        error = DamagedLogError(
            f"{self.folder}/{file_name(self.base_offset, LOG_SUFFIX)}", position
        )
        if not self.is_damage_logged:
            self.is_damage_logged = True
            logger.error("%s", error.detail)
        return error

    def batch(self, position: int, size: int) -> memoryview:
        """The bytes of one batch."""
        return memoryview(self.file.read_at(position, size))

    def reset_indexes(self) -> None:
        """Empty all indexes, before they are filled again from the log."""
        self.offset_index.truncate(self.base_offset)
        self.time_index.truncate(self.base_offset)
        self.txn_index.truncate(self.base_offset)
        self.bytes_since_index = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset

    def load_times(self) -> None:
        """Read first and largest timestamp from the time index and the batches after its last one.

        Raises DamagedLogError when these cannot be read to the end; those before the damage count.
        """
        header = self.file.read_at(0, _TIMES.size)
        if len(header) == _TIMES.size:
            self.first_timestamp = _TIMES.unpack(header)[3]
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        at = self.offset_index.floor(self.max_timestamp_offset)
        for last_offset, timestamp in self._scan_times(at):
            if timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = timestamp, last_offset

    def note(
        self, position: int, size: int, last_offset: int, max_timestamp: int, interval_bytes: int
    ) -> bool:
        """Record a batch appended at `position` in the largest timestamp and the sparse indexes.

        As in Kafka an entry is due after more than index.interval.bytes since the last one, so the
        first batch of a segment never gets one. Returns whether an entry was added.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index = size
            return True
        self.bytes_since_index += size
        return False

    def can_hold(self, last_offset: int, position: int, size: int) -> bool:
        """Whether the relative offset and the position fit into 31 bits."""
        return (
            last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and position + size <= RELATIVE_OFFSET_MAX
        )

    def locate(self, offset: int, at: int) -> BatchPosition | None:
        """The first batch from byte `at` on whose last offset is >= `offset`. Raises
        DamagedLogError."""
        found = self._locate(offset, at)
        return None if found is None else BatchPosition(*found[:4])

    def _locate(self, offset: int, at: int) -> tuple[int, int, int, int, bytes, int] | None:
        """As `locate`: the fields of the BatchPosition, the chunk read last, and its position."""
        read_at, unpack, need = self.file.read_at, _PLACE.unpack_from, _PLACE.size
        end, length = self.file.size_bytes, 0
        while at < end:
            chunk = read_at(at, SCAN_BYTES)
            position, last = 0, len(chunk) - need
            if last < 0:
                raise self._damaged(at)
            while position <= last:
                base, length, delta = unpack(chunk, position)
                if length < LENGTH_MIN:
                    raise self._damaged(at + position)
                if base + delta >= offset:
                    if (
                        base < self.base_offset
                        or delta < 0
                        or chunk[position + AT_MAGIC] != MAGIC_V2
                        or at + position + length + 12 > end
                    ):
                        raise self._damaged(at + position)
                    return at + position, length + 12, base, base + delta, chunk, at
                position += length + 12
            at += position
        if at > end:  # a length beyond the end of the file would hide all batches after it
            raise self._damaged(max(at - length - 12, 0))
        return None

    def _scan_times(self, at: int) -> Iterator[tuple[int, int]]:
        """(last offset, max timestamp) of every batch from byte `at` on."""
        end = self.file.size_bytes
        while at < end:
            chunk = self.file.read_at(at, SCAN_BYTES)
            position, last = 0, len(chunk) - _TIMES.size
            if last < 0:
                raise self._damaged(at)
            while position <= last:
                base, length, delta, timestamp = _TIMES.unpack_from(chunk, position)
                if length < LENGTH_MIN or at + position + length + 12 > end:
                    raise self._damaged(at + position)
                yield base + delta, timestamp
                position += length + 12
            at += position

    def find(self, offset: int) -> BatchPosition | None:
        """The batch that holds `offset`, or the next one; None when the segment ends before it."""
        return self.locate(offset, self._start_of_scan(offset))

    def _start_of_scan(self, offset: int) -> int:
        if offset == self.hint_offset:
            return self.hint_position
        return self.offset_index.floor(offset)

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, next_offset: int, *, min_one: bool
    ) -> LogSlice | None:
        """Whole batches below `upper_offset`, from the one that holds `offset` on.

        `next_offset` is the segment's end offset. The slice is empty when no batch fits; None when
        the segment ends before `offset`. Raises DamagedLogError.
        """
        size = self.file.size_bytes
        if offset == self.hint_offset and upper_offset >= next_offset:
            position = self.hint_position
            if size - position <= max_bytes and position < size:
                self.hint_offset, self.hint_position = next_offset, size
                return _make(LogSlice, (self.file, position, size - position, offset, None))
        found = self._locate(offset, self._start_of_scan(offset))
        if found is None:
            return None
        position, first_bytes, base, last, chunk, chunk_at = found
        if last >= next_offset:
            raise self._damaged(position)
        if last >= upper_offset:
            return EMPTY
        end = position + first_bytes
        if max_bytes < first_bytes:
            if not min_one:
                return EMPTY
        elif max_bytes > first_bytes:
            end = self._end(position, max_bytes, upper_offset, next_offset)
        if end == size:
            self.hint_offset, self.hint_position = next_offset, size
        start, stop = position - chunk_at, end - chunk_at
        data = chunk[start:stop] if stop <= len(chunk) else None
        return _make(LogSlice, (self.file, position, end - position, base, data))

    def _end(self, start: int, max_bytes: int, upper_offset: int, next_offset: int) -> int:
        """The last batch boundary within `max_bytes` of `start`, below `upper_offset` and before
        damage, which the next read meets."""
        size = self.file.size_bytes
        limit = min(start + max_bytes, size)
        at = size
        if limit < size:
            at = self.offset_index.floor_position(limit)
        if upper_offset < next_offset:
            at = min(at, self.offset_index.floor(upper_offset - 1))
        at = max(at, start)
        while at < size:
            chunk = self.file.read_at(at, SCAN_BYTES)
            position, last = 0, len(chunk) - _PLACE.size
            if last < 0:
                return at
            while position <= last:
                base, length, delta = _PLACE.unpack_from(chunk, position)
                if (
                    at + position + length + 12 > limit
                    or base + delta >= upper_offset
                    or length < LENGTH_MIN
                ):
                    return at + position
                position += length + 12
            at += position
        return size

    def truncate(self, offset: int) -> int:
        """Truncate from the batch that holds `offset` on; returns the new end offset."""
        place = self.find(offset)
        self.hint_offset = -1
        if place is None:
            return offset
        end = min(place.base_offset, offset)
        # The log goes last: after a failure the next try finds the batch, and cuts the rest.
        self.offset_index.truncate(end)
        self.time_index.truncate(end)
        self.txn_index.truncate(end)
        self.file.truncate(place.position)
        try:
            self.load_times()
        except DamagedLogError as e:
            logger.warning("timestamps after the damage are not known: %s", e.detail)
        return end

    def seal(self) -> list[File]:
        """Close the segment for appends: the time index gets its last, largest entry.

        Returns the index files as `release` does; the caller fsyncs them too.
        """
        if self.max_timestamp >= 0:
            self.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
        if not self.txn_index.is_empty:
            # After a crash it was rebuilt and closed. Below the recovery point nobody would miss a
            # .txnindex that a power cut took, and readers would see aborted records.
            self.txn_index.hold()
        return self.release()

    def release(self) -> list[File]:
        """Detach and return the open index files, which the caller closes, perhaps in another
        thread. Reads nothing. Raises OSError.
        """
        self.offset_index.write()
        self.time_index.write()  # an error comes before any file is detached
        detached = (
            self.offset_index.detach(),
            self.time_index.detach(),
            self.txn_index.detach(),
        )
        return [file for file in detached if file is not None]

    def write_indexes(self) -> None:
        """Write the index entries that the files lack."""
        self.offset_index.write_briefly()
        self.time_index.write_briefly()

    def fsync(self) -> None:
        """Fsync the log and its indexes. Waits for the disk."""
        self.file.fsync()
        self.offset_index.fsync()
        self.time_index.fsync()
        self.txn_index.fsync()

    def unload_indexes(self) -> None:
        """Free the memory of a closed segment's indexes; the next lookup loads them again."""
        self.offset_index.unload()
        self.time_index.unload()

    def close_indexes(self) -> None:
        """Write pending entries and close the index files; the next use opens them again."""
        for file in self.release():
            file.close()

    def close(self) -> None:
        """Write pending index entries and close all files."""
        self.close_indexes()
        self.file.close()

    def age(self, next_offset: int) -> SegmentAge:
        """The segment as retention sees it."""
        return SegmentAge(self.base_offset, next_offset, self.file.size_bytes, self.newest_ms)

    @property
    def newest_ms(self) -> int:
        """The largest timestamp; of records without timestamps, the time of the last write."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.last_write_ms

    def names(self) -> list[str]:
        """All possible names of its files."""
        suffixes = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX)
        return [file_name(self.base_offset, suffix) for suffix in suffixes]
