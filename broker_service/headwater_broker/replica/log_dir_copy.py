"""One future log and the log it is copied from: what to read next, and where to cut.

Does no I/O of its own accord but what appends, cuts and the last turn of a move do on the loop;
slices are read by `Slice.run`, in any thread.
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
"""Retention by limits is the log's own: of a copy only what is below the log start goes."""


class Slice:
    """Bytes of a segment, from a batch's start on, as `run` has read them."""

    def __init__(self, segment: LogSegment, position: int, size: int) -> None:
        self.segment = segment
        self.position = position
        self.size = size
        self.data = memoryview(b"")
        self.error: OSError | None = None

    def run(self) -> None:
        """Read. May wait for the disk."""
        try:
            self.data = memoryview(self.segment.file.read_at(self.position, self.size))
        except OSError as e:
            self.error = e


class LogDirCopy:
    """`align`, then one of: a slice (`next_slice`, `take`), or the end (`catch_up`, `flush`)."""

    def __init__(self, log: UnifiedLog, future: UnifiedLog) -> None:
        self.log = log
        self.future = future
        self.is_near = False
        """The log's end was reached once: what comes after it is still in the page cache."""
        self._segment: LogSegment | None = None
        self._position = 0
        self._offset = -1
        """Where the copy must end for `_segment` and `_position` to count."""
        self._truncations = -1
        self._slice_bytes = SLICE_BYTES
        self._flushed: LogSegment | None = None

    # -- as the log is

    def align(self, now_ms: int) -> None:
        """Settings, cuts and the log's start are the copy's, too. Raises KafkaError."""
        log, future = self.log, self.future
        future.apply_finished_flushes()
        if future.config is not log.config:
            future.update_config(log.config)
        end = future.log_end_offset
        if end < log.bases[0] or (end < log.log_start_offset and not self._is_on_the_way(end)):
            self._begin()
        self._cut()
        start = log.log_start_offset
        if future.log_start_offset < start <= future.log_end_offset:
            future.delete_records_before(start)
            if future.retain(now_ms, None, high_watermark=NOTHING_KEPT):
                self._flushed = None
        self._find()

    def _is_on_the_way(self, end: int) -> bool:
        """Below the log's start, within its first segment, which is copied from its beginning."""
        log = self.log
        return self.future.bases[0] == log.bases[0] <= end < log.log_start_offset

    def _begin(self) -> None:
        """Start anew where the log's first segment does, with producers and epochs as there."""
        log, future, base = self.log, self.future, self.log.bases[0]
        future.truncate_fully_and_start_at(base, min(log.log_start_offset, base))
        future.load_epochs([(epoch, start) for epoch, start in log.epochs.entries if start <= base])
        future.load_producer_snapshot(log.producer_snapshot_bytes(base), base)
        future.first_dirty_offset = log.first_dirty_offset

    def _cut(self) -> None:
        """Where the log was cut, the copy is: by leader epochs, until both agree (KIP-279)."""
        log, future = self.log, self.future
        while True:
            epoch, end = future.latest_epoch, future.log_end_offset
            asked = min(epoch, log.latest_epoch)
            parted = divergence(EpochEnd(*log.end_offset_for_epoch(asked)), epoch, end)
            if parted is None:
                break
            cut = truncation(parted, end, log.bases[0], self._own_epoch_end)
            if cut.offset <= log.bases[0]:
                self._begin()
                break
            future.truncate_to(cut.offset)
            if (future.latest_epoch, future.log_end_offset) == (epoch, end):
                self._begin()
                break
        if future.log_end_offset > log.log_end_offset:
            self._begin()

    def _own_epoch_end(self, epoch: int) -> EpochEnd:
        return EpochEnd(*self.future.end_offset_for_epoch(epoch))

    # -- where to read

    def _find(self) -> None:
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
        """What the log holds beyond the copy."""
        log = self.log
        assert self._segment is not None
        later = log.segments[log.segments.index(self._segment) + 1 :]
        left = self._segment.file.size_bytes - self._position
        return left + sum(segment.file.size_bytes for segment in later)

    def next_slice(self) -> Slice:
        """What to read next."""
        segment = self._segment
        assert segment is not None
        size = min(self._slice_bytes, segment.file.size_bytes - self._position)
        return Slice(segment, self._position, size)

    def take(self, read: Slice) -> bool:
        """Append a turn's worth of what was read; True: there is more of it. Raises KafkaError."""
        log, future = self.log, self.future
        if (
            read.segment not in log.segments
            or self._truncations != log.truncations
            or self._offset != future.log_end_offset
        ):
            return False  # it was cut or removed meanwhile: what was read may be anything
        if read.error is not None:
            raise log.storage_error(read.error)
        taken = future.append_as_follower(read.data, BATCHES_PER_TURN)
        if not taken and len(read.data):
            self._ask_for_more(read)
            return False
        self._slice_bytes = SLICE_BYTES
        self._position += taken
        self._offset = future.log_end_offset
        read.data = read.data[taken:]
        return len(read.data) >= HEADER_BYTES

    def _ask_for_more(self, read: Slice) -> None:
        """A batch may be larger than a slice."""
        size = read_header(read.data).size_bytes if len(read.data) >= HEADER_BYTES else HEADER_BYTES
        if size <= len(read.data) or read.position + size > read.segment.file.size_bytes:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.log.path}: no batch at byte {read.position}"
            )
        self._slice_bytes = size

    # -- the end

    def catch_up(self) -> None:
        """The rest, in this turn of the loop. Raises KafkaError."""
        while self.bytes_left():
            read = self.next_slice()
            read.run()
            while self.take(read):
                continue
            self._find()
        if self.future.log_end_offset != self.log.log_end_offset:
            # A cut within a hole that compaction left: the log ends beyond its last batch.
            self.future.allow_gaps()
            self.future.log_end_offset = self.log.log_end_offset
        self._offset = self.future.log_end_offset

    @property
    def is_flushed(self) -> bool:
        """Durable but for what came in the last moments, and nothing waits to be written."""
        return self._flushed is self.future.active

    async def flush(self) -> None:
        """Make the copy durable, with the producers as they are; after `catch_up`, in one turn.

        Runs behind everything that the copy has handed to the logs' disk thread before.
        Raises KAFKA_STORAGE_ERROR.
        """
        future, end = self.future, self.future.log_end_offset
        self.take_epochs()
        segments, context = list(future.segments), future.context
        path, data = future.snapshots.path(end), self.log.producer_snapshot_bytes(end)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[OSError | None] = loop.create_future()

        def tell(error: OSError | None) -> None:
            if not done.done():
                done.set_result(error)

        def job() -> None:
            try:
                for segment in segments:
                    segment.file.fsync()
                context.files.write_atomic(path, data)
            except OSError as e:
                loop.call_soon_threadsafe(tell, e)
            else:
                loop.call_soon_threadsafe(tell, None)

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

    def take_epochs(self) -> None:
        """The leader epochs as the log knows them, also one without records yet."""
        if self.future.epochs.entries != self.log.epochs.entries:
            self.future.load_epochs(list(self.log.epochs.entries))
