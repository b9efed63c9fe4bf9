"""The copy of one log into a future log (KIP-113): what to read next, and where to truncate.

It does no I/O on the loop, besides appending, truncating, and the end of a move; slices are read by
`Slice.run`, in any thread.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import HEADER_BYTES, read_header
from headwater_broker.log.log_segment import LogSegment
from headwater_broker.log.unified_log import UnifiedLog
from headwater_broker.replica.fetcher import BATCHES_PER_TURN
from headwater_broker.replica.truncation import EpochEnd, divergence, truncation

SLICE_BYTES = 512 * 1024
"""One read of a copy, in a disk thread."""
NOTHING_KEPT = 0
"""Retention by time and size is the log's; from a copy only records below the log start go."""


class Slice:
    """Bytes of a segment from the start of a batch on, as read by `run`."""

    def __init__(self, segment: LogSegment, position: int, size: int) -> None:
        self.segment = segment
        self.position = position
        self.size = size
        self.data = memoryview(b"")
        self.error: OSError | None = None

    def run(self) -> None:
        """Read the bytes; may wait for the disk."""
        try:
            self.data = memoryview(self.segment.file.read_at(self.position, self.size))
        except OSError as e:
            self.error = e


class LogDirCopy:
    """`align`, then copy a slice (`next_slice`, `append`) or end the move (`catch_up`, `flush`)."""

    def __init__(self, log: UnifiedLog, future: UnifiedLog, slice_bytes: int = SLICE_BYTES) -> None:
        self.log = log
        self.future = future
        self.is_near = False
        """The log end was reached once: later records are still in the page cache."""
        self._segment: LogSegment | None = None
        self._position = 0
        self._offset = -1
        """The log end of the copy that `_segment` and `_position` belong to."""
        self._truncations = -1
        self._default_slice_bytes = self._slice_bytes = slice_bytes
        self._flushed: LogSegment | None = None

    # -- follow the log

    def align(self, now_ms: int) -> None:
        """Follow config, truncations and log start of the log. Raises KafkaError."""
        log, future = self.log, self.future
        future.apply_finished_flushes()
        if future.config is not log.config:
            future.update_config(log.config)
        end = future.log_end_offset
        if end < log.bases[0] or (
            end < log.log_start_offset and not self._is_within_first_segment(end)
        ):
            self._restart()
        self._truncate()
        start = log.log_start_offset
        if future.log_start_offset < start <= future.log_end_offset:
            future.delete_records_before(start)
            if future.retain(now_ms, None, high_watermark=NOTHING_KEPT):
                self._flushed = None
        self._find_position()

    def _is_within_first_segment(self, end: int) -> bool:
        """True below the log start but in the first segment, which is copied from its start."""
        log = self.log
        return self.future.bases[0] == log.bases[0] <= end < log.log_start_offset

    def _restart(self) -> None:
        """Start again where the first segment does, with producer state and epochs of there."""
        log, future, base = self.log, self.future, self.log.bases[0]
        future.truncate_fully_and_start_at(base, min(log.log_start_offset, base))
        future.load_epochs([(epoch, start) for epoch, start in log.epochs.entries if start <= base])
        future.load_producer_snapshot(log.producer_snapshot_bytes(base), base)
        future.first_dirty_offset = log.first_dirty_offset

    def _truncate(self) -> None:
        """Truncate the copy where the log was truncated, by leader epochs (KIP-279)."""
        log, future = self.log, self.future
        while True:
            epoch, end = future.latest_epoch, future.log_end_offset
            common = min(epoch, log.latest_epoch)
            diverging = divergence(EpochEnd(*log.end_offset_for_epoch(common)), epoch, end)
            if diverging is None:
                break
            cut = truncation(diverging, end, log.bases[0], self._own_epoch_end)
            if cut.offset <= log.bases[0]:
                self._restart()
                break
            future.truncate_to(cut.offset)
            if (future.latest_epoch, future.log_end_offset) == (epoch, end):
                self._restart()
                break
        if future.log_end_offset > log.log_end_offset:
            self._restart()

    def _own_epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.future.end_offset_for_epoch(epoch))

    # -- read and append

    def _find_position(self) -> None:
        log, end = self.log, self.future.log_end_offset
        if (
            self._segment not in log.segments
            or self._offset != end
            or self._truncations != log.truncations
        ):
            segment = log.segments[max(bisect_right(log.bases, end) - 1, 0)]
            place = segment.find(end)
            self._segment = segment
            self._position = segment.file.size_bytes if place is None else place.position
            self._offset, self._truncations = end, log.truncations
        while self._position >= self._segment.file.size_bytes and self._segment is not log.active:
            self._segment = log.segments[log.segments.index(self._segment) + 1]
            self._position = 0

    def bytes_left(self) -> int:
        """Bytes of the log that are not copied yet."""
        log = self.log
        assert self._segment is not None
        later = log.segments[log.segments.index(self._segment) + 1 :]
        left = self._segment.file.size_bytes - self._position
        return left + sum(segment.file.size_bytes for segment in later)

    def next_slice(self) -> Slice:
        """The next bytes to read."""
        segment = self._segment
        assert segment is not None
        size = min(self._slice_bytes, segment.file.size_bytes - self._position)
        return Slice(segment, self._position, size)

    def append(self, read: Slice) -> bool:
        """Append batches of a slice, for one turn of the loop; True when some are left. Raises
        KafkaError."""
        log, future = self.log, self.future
        if (
            read.segment not in log.segments
            or self._truncations != log.truncations
            or self._offset != future.log_end_offset
        ):
            return False  # truncated or removed meanwhile: the bytes may be anything
        if read.error is not None:
            raise log.storage_error(read.error)
        appended = future.append_as_follower(read.data, BATCHES_PER_TURN)
        if not appended and len(read.data):
            self._enlarge_slice(read)
            return False
        self._slice_bytes = self._default_slice_bytes
        self._position += appended
        self._offset = future.log_end_offset
        read.data = read.data[appended:]
        return len(read.data) >= HEADER_BYTES

    def _enlarge_slice(self, read: Slice) -> None:
        """The next batch is larger than a slice: read all of it."""
        size = read_header(read.data).size_bytes if len(read.data) >= HEADER_BYTES else HEADER_BYTES
        if size <= len(read.data) or read.position + size > read.segment.file.size_bytes:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.log.path}: no batch at byte {read.position}"
            )
        self._slice_bytes = size

    # -- end of the move

    def catch_up(self) -> None:
        """Copy the rest in this turn of the loop. Raises KafkaError."""
        while self.bytes_left():
            read = self.next_slice()
            read.run()
            while self.append(read):
                continue
            self._find_position()
        if self.future.log_end_offset != self.log.log_end_offset:
            # Truncated within a hole that compaction left: the log ends beyond its last batch.
            self.future.allow_gaps()
            self.future.log_end_offset = self.log.log_end_offset
        self._offset = self.future.log_end_offset

    @property
    def is_flushed(self) -> bool:
        """True when all but the last moments is durable, and no flush is under way."""
        return self._flushed is self.future.active

    async def flush(self) -> None:
        """Make the copy durable, with the present producer state; after `catch_up`, in one turn.

        Runs after all jobs of the copy in the logs' disk thread. Raises KAFKA_STORAGE_ERROR.
        """
        future, end = self.future, self.future.log_end_offset
        self.copy_epochs()
        segments, context = list(future.segments), future.context
        path, data = future.snapshots.path(end), self.log.producer_snapshot_bytes(end)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[OSError | None] = loop.create_future()

        def resolve(error: OSError | None) -> None:
            if not done.done():
                done.set_result(error)

        def job() -> None:
            try:
                for segment in segments:
                    segment.file.fsync()
                context.files.write_atomic(path, data)
            except OSError as e:
                loop.call_soon_threadsafe(resolve, e)
            else:
                loop.call_soon_threadsafe(resolve, None)

        context.offload(job)
        error = await done
        if future.is_closed:
            return
        if error is not None:
            raise future.storage_error(error)
        future.snapshots.added(end)
        if future.log_end_offset >= end:
            future.flusher.recovery_point = max(future.recovery_point, end)
            self._flushed = segments[-1]

    def copy_epochs(self) -> None:
        """Copy the log's leader epochs, also one without records yet."""
        if self.future.epochs.entries != self.log.epochs.entries:
            self.future.load_epochs(list(self.log.epochs.entries))
