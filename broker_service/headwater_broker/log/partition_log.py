"""One replica's log on disk: append, read, truncate, retain (Kafka's UnifiedLog).

Owned by the broker's loop; only `fsync_now` and what flush.messages asks for wait for a disk.
Appending costs per batch, never per record, unless the topic's config demands to look inside.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from crc32c import crc32c

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    read_header,
)
from headwater.records.compression import Compression
from headwater_broker.log import log_maintenance, offset_lookup
from headwater_broker.log import log_validator as validator
from headwater_broker.log.log_state import LogState
from headwater_broker.log.producer_snapshot import decode_snapshot, encode_snapshot
from headwater_broker.log.producer_state import ProducerBatch
from headwater_broker.log.producer_state_manager import apply_header
from headwater_broker.log.record_validation import (
    check_magic,
    check_timestamps,
    corrupt,
    invalid,
    mend_max_timestamp,
    too_large,
)
from headwater_broker.log.results import (
    EMPTY,
    AppendOrigin,
    AppendResult,
    LogSlice,
    TimestampAndOffset,
)

_unpack_header = HEADER.unpack_from
_place = struct.Struct(">qii").pack_into
"""base offset, batch length, leader epoch: one write in front of the CRC's reach."""
_CLIENT = AppendOrigin.CLIENT
_make = tuple.__new__
"""Makes a named tuple of a tuple: the type's own way is a call of Python's."""
ALL_BATCHES = 2**31
_CLOSER_LOOK_MASK = CONTROL_MASK | TRANSACTIONAL_MASK | TIMESTAMP_TYPE_MASK | COMPRESSION_MASK
_LAST_CODEC = int(Compression.ZSTD)
"""Above it are the codecs that there are not, and the other bits of that mask."""


class PartitionLog(LogState):
    """One replica's log. `log_start_offset` counts tiered history, `local_log_start_offset` not."""

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic}-{self.partition}, [{self.log_start_offset}, "
            f"{self.local_log_start_offset}, {self.log_end_offset}))"
        )

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open, or whose marker is not known to
        be replicated. Prefer `last_stable_offset`, which knows the high watermark."""
        return self.producers.first_unstable_offset

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 when there is none."""
        return self.epochs.latest

    # -- append

    def append_as_leader(  # noqa: C901 - the hot path stays in one frame
        self,
        view: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
    ) -> AppendResult:
        """Validate, give offsets (patched in place in `view`), append. Raises KafkaError.

        One batch from clients; coordinators may append several, which are validated one by one.
        """
        size = len(view)
        if size < HEADER_BYTES:
            raise corrupt(self._where(), f"{size} bytes hold no batch header")
        header = _unpack_header(view, 0)
        if header[1] + LOG_OVERHEAD_BYTES != size:
            return self._append_several(view, leader_epoch, now_ms, origin)
        base, length, _, magic, crc, flags, delta, first, timestamp, pid, epoch, seq, count = header
        if magic != MAGIC_V2:
            check_magic(magic, self._where())
        if size > self._batch_bytes_max:
            raise too_large(size, self.config, self._where())
        if crc32c(view[21:]) != crc:
            raise corrupt(self._where(), "the CRC does not match")
        if delta < 0 or (
            origin is _CLIENT
            and (
                delta + 1 != count
                or base != 0
                or count <= 0
                or flags & _CLOSER_LOOK_MASK > _LAST_CODEC
                or (pid >= 0 and (seq < 0 or epoch < 0))
            )
        ):
            validator.refuse_header(BatchHeader._make(header), self.config, now_ms, self._where())
        if timestamp < first and origin is _CLIENT:
            header, timestamp = mend_max_timestamp(view, BatchHeader._make(header))
        offset, append_time = self.log_end_offset, -1
        if self._looks_closer:
            view, append_time = validator.look_closer(
                self.config, view, BatchHeader._make(header), now_ms, origin, self._where()
            )
            size = len(view)
            length = size - LOG_OVERHEAD_BYTES
            timestamp = timestamp if append_time < 0 else append_time
        elif timestamp - now_ms > self._after_max_ms and origin is _CLIENT:
            check_timestamps(BatchHeader._make(header), self.config, now_ms, self._where())
        if pid >= 0:
            known = validator.check_producer(
                self.producers, BatchHeader._make(header), view, origin, self._where()
            )
            if known is not None:
                return self._duplicate(known)
        last = offset + delta
        _place(view, 0, offset, length, leader_epoch)
        if leader_epoch != self.epochs.latest:
            self.assign_epoch_start(leader_epoch, offset)
        self._write(view, size, last, timestamp, now_ms)
        if pid >= 0:
            self._learn(read_header(view), view)
        if last + 1 - self.recovery_point >= self._flush_messages:
            self.fsync_now()
        return _make(AppendResult, (offset, last, append_time, self.log_start_offset, False))

    def _duplicate(self, known: ProducerBatch) -> AppendResult:
        stamp = known.timestamp if self.config.is_log_append_time else -1
        start = self.log_start_offset
        return AppendResult(known.first_offset, known.last_offset, stamp, start, True)

    def _write(self, view: memoryview, size: int, last: int, timestamp: int, now_ms: int) -> None:
        """The bytes of one batch into the active segment, or a new one."""
        segment = self.active
        position = segment.file.size_bytes
        if (
            position + size > self._roll_bytes
            or (timestamp if segment.first_timestamp >= 0 <= timestamp else now_ms)
            > segment.roll_at_ms
            or last > self._roll_offset
        ) and log_maintenance.should_roll(self, size, last, timestamp, now_ms):
            segment = log_maintenance.roll(self, now_ms)
            position = 0
        try:
            segment.file.append(view)
            if position == 0:
                log_maintenance.first_append(self, segment, timestamp, now_ms)
            if segment.note(position, size, last, timestamp, self._interval_bytes):
                self.context.index_flusher.add(self)
        except OSError as e:  # of the index, too: the batch is there, and its offsets are not taken
            raise self.storage_error(e) from e
        segment.last_write_ms = now_ms
        self.log_end_offset = last + 1
        self.size_bytes += size
        if self.unflushed_since_ms < 0:
            self.unflushed_since_ms = now_ms

    def _append_several(
        self, view: memoryview, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        """A coordinator's batches, one after the other; a client's are refused (KIP-98)."""
        parts = validator.split(view, self._where())
        if origin is _CLIENT or not parts:
            raise invalid(self._where(), f"a write holds one whole batch, this one {len(parts)}")
        for part in parts:
            if crc32c(part[21:]) != read_header(part).crc:
                raise corrupt(self._where(), "the CRC does not match")
        results = [self.append_as_leader(p, leader_epoch, now_ms, origin=origin) for p in parts]
        return results[0]._replace(last_offset=results[-1].last_offset)

    def _learn(self, header: BatchHeader, view: memoryview) -> None:
        aborted = apply_header(self.producers, header, view)
        if aborted is not None:
            with self.touching_files():
                self.active.txn_index.add(aborted)

    def append_as_follower(self, view: memoryview, batches_max: int = ALL_BATCHES) -> int:
        """Append the leader's batches as they are; a cut-off last one is left out.

        An empty log may begin inside the first of them: its start stays where it is. Returns how
        many bytes were taken: `batches_max` bounds one turn of the loop. Raises KafkaError:
        CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE when they do not follow.
        """
        at, end, now_ms = 0, len(view), self.context.clock.now_ms()
        while end - at >= HEADER_BYTES and batches_max > 0:
            header = _unpack_header(view, at)
            base, length, epoch, magic, crc, _, delta, _, timestamp, pid, *_ = header
            size = length + LOG_OVERHEAD_BYTES
            if size < HEADER_BYTES:
                raise corrupt(self._where(), f"batch length {length}")
            if at + size > end:
                break
            batch = view[at : at + size]
            if magic != MAGIC_V2:
                check_magic(magic, self._where())
            if crc32c(batch[21:]) != crc:
                raise corrupt(self._where(), f"CRC of the batch at {base}")
            if base < self.log_end_offset or delta < 0:
                log_maintenance.begin_inside(self, base, base + delta)
            if base > self.log_end_offset:
                self.allow_gaps()
            if epoch > self.epochs.latest or self.epochs.changed:  # else it could not be written
                self.assign_epoch_start(epoch, base)
            self._write(batch, size, base + delta, timestamp, now_ms)
            if pid >= 0:
                self._learn(BatchHeader._make(header), batch)
            at += size
            batches_max -= 1
        if self.log_end_offset - self.recovery_point >= self._flush_messages:
            self.fsync_now()
        return at

    # -- read

    def read(
        self, offset: int, max_bytes: int, upper_offset: int, *, min_one: bool = True
    ) -> LogSlice:
        """Whole batches below `upper_offset`, from the one that holds `offset`.

        `min_one`: the first batch comes even when it is larger than `max_bytes`. Raises
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

    def offset_for_timestamp(self, timestamp: int, upper_offset: int) -> TimestampAndOffset | None:
        """The first record below `upper_offset` with at least this timestamp."""
        with self.touching_files():
            return offset_lookup.offset_for_timestamp(self, timestamp, upper_offset)

    def max_timestamp_offset(self, upper_offset: int) -> TimestampAndOffset | None:
        """The first record with the largest timestamp (ListOffsets -3, KIP-734)."""
        with self.touching_files():
            return offset_lookup.max_timestamp_offset(self, upper_offset)

    def earliest(self) -> TimestampAndOffset:
        """Log start, with the epoch that wrote it."""
        start = self.log_start_offset
        return TimestampAndOffset(start, -1, self.epochs.epoch_for_offset(start))

    def earliest_local(self) -> TimestampAndOffset:
        """Local log start, with the epoch that wrote it (ListOffsets -4)."""
        start = self.local_log_start_offset
        return TimestampAndOffset(start, -1, self.epochs.epoch_for_offset(start))

    def offset_at_bytes(self, start: int, max_bytes: int) -> int:
        """The end offset of the whole batches that `max_bytes` from `start` on hold (>= one)."""
        with self.touching_files():
            return offset_lookup.offset_at_bytes(self, start, max_bytes)

    # -- transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """Where read_committed ends: min(HW, first unstable offset), and never below the start."""
        producers = self.producers
        if producers.all_decided:
            return high_watermark
        producers.high_watermark_moved(high_watermark)
        first = producers.first_unstable_offset
        if first is None or first > high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)  # DeleteRecords, retention: its start may be gone

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, upper)."""
        with self.touching_files():
            return offset_lookup.aborted_transactions(self, start, upper)

    def active_producers(self) -> list[log_maintenance.ActiveProducer]:
        """What DescribeProducers shows."""
        return log_maintenance.active_producers(self)

    def producer_snapshot_bytes(self, offset: int) -> bytes:
        """The producer state of everything below `offset`, in Kafka's snapshot format."""
        if offset == self.log_end_offset:
            return encode_snapshot(self.producers.entries.values())
        with self.touching_files():
            return encode_snapshot(log_maintenance.producers_at(self, offset).entries.values())

    def load_producer_snapshot(self, data: bytes, offset: int | None = None) -> None:
        """Take over a leader's snapshot; it holds for the log end. Raises SnapshotError."""
        entries = decode_snapshot(data)
        if offset is not None and offset != self.log_end_offset:
            raise invalid(self._where(), f"snapshot of {offset}, log ends elsewhere")
        self.producers.replace(entries)
        with self.touching_files():
            self.snapshots.write(self.log_end_offset, self.producers)

    # -- epochs

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch <= `epoch`, its end offset); (-1, -1) when unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Record where an epoch begins; durable before anything of it is appended."""
        self.epochs.assign(epoch, offset)
        if self.epochs.changed:
            self.save_epochs()

    def load_epochs(self, entries: list[tuple[int, int]]) -> None:
        """Take over a leader's epochs, those at or after the log end excepted."""
        self.epochs.clear()
        for epoch, start in entries:
            self.epochs.assign(epoch, start)
        self.epochs.truncate_from_end(self.log_end_offset + 1)
        self.save_epochs()

    # -- shorten and keep

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on. Nothing happens when the log ends before it."""
        log_maintenance.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records; the next one gets `offset`. `log_start_offset`: where the tiered
        history before it begins."""
        log_maintenance.truncate_fully(
            self, offset, offset if log_start_offset is None else log_start_offset
        )

    def delete_records_before(self, offset: int) -> None:
        """Move the log start (DeleteRecords); whole segments go at the next retention tick."""
        log_maintenance.delete_records_before(self, offset)

    def retain(
        self, now_ms: int, tiered_end: int | None = None, *, high_watermark: int | None = None
    ) -> int:
        """Delete what the topic's limits no longer keep; returns the number of segments.

        Nothing at or above `high_watermark` (default: log end) goes. With tiering only local
        segments below `tiered_end` go, and nothing while that is unknown (None).
        """
        bound = self.log_end_offset if high_watermark is None else high_watermark
        return log_maintenance.retain(self, now_ms, tiered_end, bound)

    def fsync_now(self) -> None:
        """Everything appended so far is durable on return. Waits for the disk."""
        log_maintenance.fsync_now(self)

    def flush_later(self, now_ms: int) -> None:
        """Fsync off the loop when flush.ms is due."""
        log_maintenance.flush_later(self, now_ms)

    def take_finished_flushes(self) -> None:
        """Move the recovery point to what flushes off the loop have reached."""
        while self.finished_flushes:
            truncations, end = self.finished_flushes.popleft()
            if truncations == self.truncations:
                self.recovery_point = max(self.recovery_point, end)

    def roll(self, now_ms: int) -> None:
        """Start a new segment, unless the active one is empty."""
        if self.active.file.size_bytes:
            log_maintenance.roll(self, now_ms)

    def close(self) -> None:
        """Snapshot producers, fsync, release files: a clean stop. Repeats do nothing."""
        log_maintenance.close(self)

    def delete(self) -> None:
        """Release files; the manager renames the folder away. Its name may be another log's by the
        time that jobs off the loop have their turn: they rename nothing and write nothing there."""
        with self.leaving_lock:
            self.is_closed = True
            self.truncations += 1
            self.leaving.clear()


__all__ = ["AppendOrigin", "AppendResult", "LogSlice", "PartitionLog"]
