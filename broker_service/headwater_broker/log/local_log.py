"""The segments of one replica on disk: append, read, roll, flush, cut (Kafka's LocalLog).

It knows offsets and bytes; leader epochs, producers and tiered history are `unified_log`'s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log import aborted_transactions, offset_lookup
from headwater_broker.log.checkpoint_files import HAS_GAPS
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_context import LogContext
from headwater_broker.log.log_flusher import LogFlusher
from headwater_broker.log.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from headwater_broker.log.results import EMPTY, LogSlice, TimestampAndOffset
from headwater_broker.log.roll_policy import RollPolicy
from headwater_broker.log.segment_deletion import Released, SegmentDeletion, release

NEW_SEGMENT_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
TEMPORARY = ".tmp"
"""Ends the names of a segment that is made before its names are free; a start removes it."""


class Cut(NamedTuple):
    """A truncation that is prepared: nothing of it can fail for want of a descriptor any more."""

    offset: int
    end_offset: int
    """The log end afterwards: the base of the batch that holds `offset`."""
    kept: list[LogSegment]
    released: Released


class NewBeginning(NamedTuple):
    """An empty segment that is to replace all others, under temporary names."""

    segment: LogSegment
    released: Released


class LocalLog:
    """One replica's segments. `update_config` must be called before the first append."""

    def __init__(
        self,
        context: LogContext,
        topic: str,
        topic_id: UUID,
        partition: int,
        path: str,
        directory_id: UUID,
    ) -> None:
        self.context = context
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.path = path
        self.directory_id = directory_id
        self.config: LogConfig
        self.segments: list[LogSegment] = []
        self.bases: list[int] = []
        """Base offset of each segment."""
        self.active: LogSegment
        """The last segment, the only one that is appended to."""
        self.log_end_offset = 0
        self.local_log_start_offset = 0
        """Below it nothing is read here; it may lie inside of the first segment."""
        self._closed_bytes = 0
        """Size of all segments but the active one."""
        self.truncations = 0
        """How often the end was cut or the log begun anew."""
        self.is_closed = False
        self.is_gapless = False
        """A gap found at start is a loss (`recovery_rules`); `allow_gaps` ends it."""
        self.flusher = LogFlusher(context, self, 0)
        self.deletion = SegmentDeletion(context, self, self._folder_unsynced)
        self._roll_policy: RollPolicy
        self._interval_bytes = 0

    def update_config(self, config: LogConfig) -> None:
        """Replace the settings; they count from the next append or tick on."""
        self.config = config
        self._interval_bytes = config.index_interval_bytes
        self._roll_policy = RollPolicy(config, self.context.entropy)
        self._roll_policy.arm(self.active)

    @property
    def size_bytes(self) -> int:
        """Size of all segments, without their indexes."""
        return self._closed_bytes + self.active.file.size_bytes

    @property
    def recovery_point(self) -> int:
        """Everything below it is on disk."""
        return self.flusher.recovery_point

    @property
    def index_entries_max(self) -> int:
        """How many entries the indexes of a segment may hold."""
        return self._roll_policy.index_entries_max

    def next_offset_of(self, index: int) -> int:
        """The end offset of segment number `index`."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else self.log_end_offset

    def spans(self) -> Iterator[tuple[LogSegment, int]]:
        """Every segment with its end offset."""
        return zip(self.segments, [*self.bases[1:], self.log_end_offset], strict=True)

    def replace_segments(self, segments: list[LogSegment]) -> None:
        """Set the list of segments; the last one is active."""
        self._set_segments(segments)
        self._roll_policy.arm(self.active)

    def _set_segments(self, segments: list[LogSegment]) -> None:
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._closed_bytes = sum(segment.file.size_bytes for segment in segments[:-1])

    def allow_gaps(self) -> None:
        """Offsets will be missing, from compaction here or at the leader: a start must not take
        them for lost. Repeats do nothing. Raises KAFKA_STORAGE_ERROR."""
        if not self.is_gapless:
            return
        with self.touching_files():
            self.context.files.write_atomic(f"{self.path}/{HAS_GAPS}", b"version: 0\n")
        self.is_gapless = False

    def relocate(self, path: str) -> None:
        """The folder was renamed; no earlier flush or deletion may still be under way."""
        self.path = path
        for segment in self.segments:
            segment.relocate(path)

    def _where(self) -> str:
        return f"{self.topic}-{self.partition}"

    # -- errors

    @contextmanager
    def touching_files(self) -> Iterator[None]:
        """An OSError in here is the disk's. Raises KAFKA_STORAGE_ERROR."""
        try:
            yield
        except OSError as e:
            raise self.storage_error(e) from e

    def storage_error(self, error: OSError) -> KafkaError:
        """The error to answer with. The data folder goes offline, which closes this log, unless
        the process is only out of descriptors."""
        self.context.failed(self.path, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._where()}: {error}")

    def _folder_unsynced(self) -> None:
        """A rename may not be durable yet."""

    # -- append and roll

    def _append(self, view: memoryview, size: int, last: int, timestamp: int, now_ms: int) -> None:
        """Write the bytes of one batch to the active segment, or to a new one."""
        segment = self.active
        position = segment.file.size_bytes
        if (
            position + size > segment.roll_at_bytes
            or (timestamp if segment.first_timestamp >= 0 <= timestamp else now_ms)
            > segment.roll_at_ms
            or last > segment.roll_at_offset
        ) and self._roll_policy.is_due(segment, size, last, timestamp, now_ms):
            segment = self._roll(now_ms)
            position = 0
        try:
            segment.file.append(view)
            if position == 0:  # its age counts from its first batch's timestamp, else from now
                segment.first_timestamp = timestamp
                segment.created_ms = now_ms
                self._roll_policy.arm(segment)
            if segment.note(position, size, last, timestamp, self._interval_bytes):
                self.context.index_flusher.add(self)
        except OSError as e:  # of the index, too: the batch is there, and its offsets are not taken
            raise self.storage_error(e) from e
        segment.last_write_ms = now_ms
        self.log_end_offset = last + 1
        flusher = self.flusher
        if flusher.unflushed_since_ms < 0:
            flusher.unflushed_since_ms = now_ms

    def roll(self, now_ms: int) -> None:
        """Start a new segment, unless the active one is empty."""
        if self.active.file.size_bytes:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> LogSegment:
        """Seal the active segment and start one at the log end.

        The flush of the sealed one runs off the loop; the recovery point follows.
        """
        old, end = self.active, self.log_end_offset
        with self.touching_files():
            index_files = old.seal()
            try:
                segment = self._new_segment(end, now_ms)
            except OSError:  # the old one stays active: it opens them again when it needs them
                for file in index_files:
                    file.close()
                raise
        self.replace_segments([*self.segments, segment])
        self.flusher.flush_sealed(old, index_files, end, self._state_snapshot(end))
        return segment

    def _state_snapshot(self, end_offset: int) -> tuple[str, bytes] | None:
        """Path and content of a file to write for a segment that begins at `end_offset`."""
        return None

    def _new_segment(self, offset: int, now_ms: int, mark: str = "") -> LogSegment:
        """An empty segment. After an OSError no file of it is left: a later start would find a
        segment inside of another."""
        files = self.context.files
        segment = LogSegment(
            files, self.path, offset, has_txn_index=False, now_ms=now_ms, mark=mark
        )
        try:
            segment.create_indexes()
        except OSError:
            segment.close()
            for suffix in NEW_SEGMENT_SUFFIXES:
                files.remove(f"{self.path}/{file_name(offset, suffix)}{mark}")
            raise
        return segment

    # -- read

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, *, min_one: bool = True
    ) -> LogSlice:
        """Whole batches below `upper_offset`, from the one that holds `offset` on.

        `min_one`: the first batch is returned even when it is larger than `max_bytes`. Raises
        OFFSET_OUT_OF_RANGE outside [local log start, log end].
        """
        end = self.log_end_offset
        if not self.local_log_start_offset <= offset <= end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._where()}: offset {offset} is outside "
                f"[{self.local_log_start_offset}, {end}]",
            )
        if offset == end:
            active = self.active
            active.hint_offset, active.hint_position = end, active.file.size_bytes
            return EMPTY
        if offset >= upper_offset:
            return EMPTY
        bases = self.bases
        count = len(bases)
        try:
            for index in range(bisect_right(bases, offset) - 1, count):
                following = bases[index + 1] if index + 1 < count else end
                found = self.segments[index].read(
                    offset, max_bytes, upper_offset, following, min_one=min_one
                )
                if found is not None:
                    return found
        except OSError as e:
            raise self.storage_error(e) from e
        return EMPTY

    # -- lookups

    def offset_for_timestamp(self, timestamp: int, upper_offset: int) -> TimestampAndOffset | None:
        """The first record below `upper_offset` with at least this timestamp."""
        with self.touching_files():
            return offset_lookup.offset_for_timestamp(self, timestamp, upper_offset)

    def max_timestamp_offset(self, upper_offset: int) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (ListOffsets -3, KIP-734)."""
        with self.touching_files():
            return offset_lookup.max_timestamp_offset(self, upper_offset)

    def offset_at_bytes(self, start: int, max_bytes: int) -> int:
        """The end offset of the whole batches that `max_bytes` from `start` on hold (>= one)."""
        with self.touching_files():
            return offset_lookup.offset_at_bytes(self, start, max_bytes)

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, upper)."""
        with self.touching_files():
            return aborted_transactions.overlapping(self, start, upper)

    def aborted_in_slice(self, start: int, part: LogSlice, stable: int) -> list[tuple[int, int]]:
        """As `aborted_transactions`, for the records of a slice that was read from `start` on."""
        with self.touching_files():
            return aborted_transactions.in_slice(self, start, part, stable)

    # -- flush

    def fsync_now(self) -> None:
        """Flush everything appended so far. Waits for the disk. Raises KAFKA_STORAGE_ERROR."""
        point = self.flusher.recovery_point
        unflushed = [s for i, s in enumerate(self.segments) if self.next_offset_of(i) > point]
        with self.touching_files():
            self.flusher.flush(unflushed, self.log_end_offset)

    def flush_later(self, now_ms: int) -> None:
        """Flush off the loop when flush.ms is due."""
        self.flusher.flush_if_due(self.active, self.log_end_offset, now_ms, self.config.flush_ms)

    def apply_finished_flushes(self) -> None:
        """Move the recovery point to what flushes off the loop have reached."""
        self.flusher.apply_finished()

    def write_indexes(self) -> None:
        """Write the index entries that the active segment's files lack; a disk error takes the
        data folder offline."""
        if self.is_closed:
            return
        try:
            self.active.write_indexes()
        except OSError as e:
            self.context.failed(self.path, e)

    def unload_indexes(self) -> None:
        """Give back the memory of closed segments' indexes."""
        for segment in self.segments[:-1]:
            segment.unload_indexes()

    # -- cut

    def _prepare_cut(self, offset: int) -> Cut:
        """Prepare to cut from `offset` on; the batch that holds it goes whole.

        What meets damage, or lacks a descriptor, does so here, before anything is changed: half a
        cut would leave segments in use whose files are renamed, and closed soon. Raises OSError,
        and CORRUPT_MESSAGE when damage hides where that batch lies.
        """
        kept = [s for s in self.segments if s.base_offset <= offset]
        place = kept[-1].find(offset)
        end = offset if place is None else min(place.base_offset, offset)
        kept[-1].open_indexes()
        return Cut(offset, end, kept, release(self.segments[len(kept) :]))

    def _apply_cut(self, cut: Cut) -> None:
        self.truncations += 1
        self.context.truncated()
        with self.touching_files():
            if cut.released:
                self.deletion.discard_now(cut.released)
            cut.kept[-1].truncate(cut.offset)
        self.replace_segments(cut.kept)
        end = cut.end_offset
        self.log_end_offset = end
        self.local_log_start_offset = min(self.local_log_start_offset, end)
        self.flusher.recovery_point = min(self.flusher.recovery_point, end)

    def _prepare_beginning(self, offset: int) -> NewBeginning:
        """Prepare to drop all segments and start at `offset`. Raises OSError, and then nothing has
        changed."""
        released = release(self.segments)
        segment = self._new_segment(offset, self.context.clock.now_ms(), TEMPORARY)
        return NewBeginning(segment, released)

    def _begin_anew(self, beginning: NewBeginning) -> None:
        self.truncations += 1
        self.context.truncated()
        segment = beginning.segment
        offset = segment.base_offset
        with self.touching_files():
            self.deletion.discard_now(beginning.released)
            self.deletion.free_name(offset)
            for suffix in NEW_SEGMENT_SUFFIXES:
                path = f"{self.path}/{file_name(offset, suffix)}"
                self.deletion.rename(path + TEMPORARY, path)
        segment.relocate(self.path)
        self.replace_segments([segment])
        self.log_end_offset = self.local_log_start_offset = offset
        self.flusher.recovery_point = offset

    def _remove_oldest(self, count: int, now_ms: int) -> Released:
        """Remove the oldest segments from the log; the caller discards them. When all of them are
        removed, a new one is started."""
        if count == len(self.segments):
            self._roll(now_ms)
        gone, kept = self.segments[:count], self.segments[count:]
        with self.touching_files():
            released = release(gone)
        self.replace_segments(kept)
        self.local_log_start_offset = max(self.local_log_start_offset, kept[0].base_offset)
        return released

    # -- end

    def _close_segments(self) -> None:
        """Flush everything and release the files."""
        active = self.active
        active.time_index.maybe_add(active.max_timestamp, active.max_timestamp_offset)
        self.fsync_now()
        for segment in self.segments:
            segment.close()

    def delete(self) -> None:
        """End the use of the log; the caller renames its folder. Jobs off the loop stop writing."""
        with self.deletion.stopped():
            self.is_closed = True
            self.truncations += 1
