"""One replica's log: segments on disk, leader epochs, producers, log start (Kafka's UnifiedLog).

Owned by the broker's loop; only `fsync_now` and what flush.messages asks for wait for a disk.
Appending costs per batch, never per record, unless the topic's config needs a look at the records.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from uuid import UUID

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
from headwater.records.control import MARKER_BYTES, read_built_marker
from headwater_broker.log import log_validator as validator
from headwater_broker.log.checkpoint_files import LEADER_EPOCHS, encode_epochs
from headwater_broker.log.local_log import LocalLog
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_context import LogContext, RenamedFiles
from headwater_broker.log.log_loader import LoadedLog
from headwater_broker.log.log_validator import (
    check_magic,
    check_timestamps,
    correct_max_timestamp,
    corrupt,
    invalid,
    too_large,
)
from headwater_broker.log.producer_snapshot_format import decode_snapshot, encode_snapshot
from headwater_broker.log.producer_snapshots import apply_header
from headwater_broker.log.producer_state_manager import Marker, ProducerBatch, Producers
from headwater_broker.log.results import (
    AppendOrigin,
    AppendResult,
    TimestampAndOffset,
)
from headwater_broker.log.retention import DeletionScope, plan

_unpack_header = HEADER.unpack_from
_place = struct.Struct(">qii").pack_into
"""Base offset, batch length and leader epoch, in one write; the CRC does not cover them."""
_CLIENT = AppendOrigin.CLIENT
_COORDINATOR = AppendOrigin.COORDINATOR
_MARKERS = AppendOrigin.MARKERS
_TRANSACTION = AppendOrigin.TRANSACTION
_make = tuple.__new__
"""Makes a named tuple from a tuple faster than its class does."""
ALL_BATCHES = 2**31
_LEAVES_PLAIN = ("producer", "uncompressed")
"""compression.type of topics that a coordinator's batches, which are plain, go into as they are."""
_TRANSACTION_FLAGS_MASK = CONTROL_MASK | TIMESTAMP_TYPE_MASK | COMPRESSION_MASK
_SPECIAL_FLAGS_MASK = _TRANSACTION_FLAGS_MASK | TRANSACTIONAL_MASK
_LAST_CODEC = int(Compression.ZSTD)
"""A value above it has an unknown codec, or another bit of the mask."""

logger = logging.getLogger(__name__)


class UnifiedLog(LocalLog):
    """One replica's log. Tiered history begins at `log_start_offset`, the local segments at
    `local_log_start_offset`."""

    def __init__(
        self,
        context: LogContext,
        topic: str,
        topic_id: UUID,
        partition: int,
        path: str,
        directory_id: UUID,
        config: LogConfig,
        loaded: LoadedLog,
    ) -> None:
        super().__init__(context, topic, topic_id, partition, path, directory_id)
        self._set_segments(loaded.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = max(loaded.log_start_offset, self.bases[0])
        self.log_end_offset = loaded.log_end_offset
        self.flusher.recovery_point = loaded.recovery_point
        self.is_gapless = loaded.is_gapless
        self.recovered = loaded.recovered
        self.first_dirty_offset = 0
        """Compaction has seen everything below it (cleaner-offset-checkpoint)."""
        self.uncleanable_reason = ""
        """Why this log is not compacted any more; empty: it is."""
        if loaded.set_aside:
            delay_ms = config.file_delete_delay_ms
            context.delete_later(RenamedFiles(tuple(loaded.set_aside), (), delay_ms))
        self.on_log_start_moved: Callable[[], None] | None = None
        """Called when the log start has moved: its replica, while that is hosted."""
        self.update_config(config)
        if self.epochs.changed:
            self.save_epochs()

    def __repr__(self) -> str:
        return (
            f"UnifiedLog({self.topic}-{self.partition}, [{self.log_start_offset}, "
            f"{self.local_log_start_offset}, {self.log_end_offset}))"
        )

    def update_config(self, config: LogConfig) -> None:
        """Replace the settings; they apply from the next append or tick on."""
        super().update_config(config)
        self._flush_messages = config.flush_messages
        self._batch_bytes_max = config.batch_bytes_max
        self._after_max_ms = config.timestamp_after_max_ms
        self._alters_own_batches = (
            config.compression_type not in _LEAVES_PLAIN or config.is_log_append_time
        )
        self._needs_checks = (
            config.is_log_append_time
            or config.is_compacted
            or config.compression_type != "producer"
            or config.bounds_age
        )

    def relocate(self, path: str) -> None:
        """The folder was renamed; no earlier flush or deletion may still be under way."""
        super().relocate(path)
        self.snapshots.relocate(path)

    # -- append

    def append_as_leader(  # noqa: C901 - the hot path stays in one frame
        self,
        view: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
    ) -> AppendResult:
        """Validate, assign offsets (patched in place in `view`), append. Raises KafkaError.

        A client appends one batch. A coordinator may append several: all of them in one write.
        """
        size = len(view)
        if origin is _MARKERS or size < HEADER_BYTES:
            return self._append_markers(view, leader_epoch, now_ms)
        header = _unpack_header(view, 0)
        if header[1] + LOG_OVERHEAD_BYTES != size:
            return self._append_several(view, leader_epoch, now_ms, origin)
        base, length, _, magic, crc, flags, delta, first, timestamp, pid, epoch, seq, count = header
        if magic != MAGIC_V2:
            check_magic(magic, self._where())
        if size > self._batch_bytes_max and not flags & CONTROL_MASK:
            raise too_large(size, self.config, self._where())
        if crc32c(view[21:]) != crc:
            raise corrupt(self._where(), "the CRC does not match")
        special_mask = _TRANSACTION_FLAGS_MASK if origin is _TRANSACTION else _SPECIAL_FLAGS_MASK
        if delta < 0 or (
            origin is not _COORDINATOR
            and (
                delta + 1 != count
                or base != 0
                or count <= 0
                or flags & special_mask > _LAST_CODEC
                or (seq < 0 or epoch < 0 if pid >= 0 else flags & TRANSACTIONAL_MASK)
            )
        ):
            validator.check_header(BatchHeader._make(header), origin, self._where())
        if timestamp < first and origin is not _COORDINATOR:
            header, timestamp = correct_max_timestamp(view, BatchHeader._make(header))
        offset, last, append_time = self.log_end_offset, self.log_end_offset + delta, -1
        if self._needs_checks and (origin is not _COORDINATOR or self._alters_own_batches):
            view, append_time = validator.check_by_config(
                self.config, view, BatchHeader._make(header), now_ms, origin, self._where()
            )
            size = len(view)
            length = size - LOG_OVERHEAD_BYTES
            timestamp = timestamp if append_time < 0 else append_time
        elif timestamp - now_ms > self._after_max_ms and origin is not _COORDINATOR:
            check_timestamps(view, BatchHeader._make(header), self.config, now_ms, self._where())
        if pid >= 0 and not self.producers.follows(pid, epoch, seq, flags):
            known = self._check_producer(header, view, origin)
            if known is not None:
                return self._duplicate(known)
        _place(view, 0, offset, length, leader_epoch)
        if leader_epoch != self.epochs.latest:
            self.assign_epoch_start(leader_epoch, offset)
        self._append(view, size, last, timestamp, now_ms)
        if flags & CONTROL_MASK:
            self._learn(read_header(view), view)
        elif pid >= 0:
            in_transaction = bool(flags & TRANSACTIONAL_MASK)
            self.producers.apply_batch(pid, epoch, seq, offset, delta, timestamp, in_transaction)
        if last + 1 - self.flusher.recovery_point >= self._flush_messages:
            self.fsync_now()
        return _make(AppendResult, (offset, last, append_time, self.log_start_offset, False))

    def _check_producer(
        self, header: tuple[int, ...], view: memoryview, origin: AppendOrigin
    ) -> ProducerBatch | None:
        fields = BatchHeader._make(header)
        return validator.check_producer(self.producers, fields, view, origin, self._where())

    def _duplicate(self, known: ProducerBatch) -> AppendResult:
        stamp = known.timestamp if self.config.is_log_append_time else -1
        start = self.log_start_offset
        return AppendResult(known.first_offset, known.last_offset, stamp, start, True)

    def _append_several(
        self, view: memoryview, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        """A coordinator's batches, all in one write or none; a client's are refused (KIP-98)."""
        parts = validator.split(view, self._where())
        if origin is not _COORDINATOR or not parts:
            raise invalid(self._where(), f"a write holds one whole batch, this one {len(parts)}")
        headers = validator.check_several(self.producers, parts, origin, self._where())
        if len(view) > self._batch_bytes_max or self._rewrites(headers):
            found = [self.append_as_leader(p, leader_epoch, now_ms, origin=origin) for p in parts]
            return found[0]._replace(last_offset=found[-1].last_offset)
        base = end = self.log_end_offset
        for part, header in zip(parts, headers, strict=True):
            _place(part, 0, end, header.batch_length, leader_epoch)
            end += header.last_offset_delta + 1
        if leader_epoch != self.epochs.latest:
            self.assign_epoch_start(leader_epoch, base)
        timestamp = max(header.max_timestamp for header in headers)
        self._append(view, len(view), end - 1, timestamp, now_ms)
        for part in parts:
            self._learn(read_header(part), part)
        if end - self.flusher.recovery_point >= self._flush_messages:
            self.fsync_now()
        return AppendResult(base, end - 1, -1, self.log_start_offset, False)

    def _append_markers(self, view: memoryview, leader_epoch: int, now_ms: int) -> AppendResult:
        """Markers as `build_marker` makes them: what this process has built and checked is not
        parsed and checked again, which was two thirds of the cost of a marker."""
        size, base = len(view), self.log_end_offset
        if size < HEADER_BYTES:
            raise corrupt(self._where(), f"{size} bytes hold no batch header")
        if size > self._batch_bytes_max and size > MARKER_BYTES:
            for at in range(0, size, MARKER_BYTES):
                self._append_markers(view[at : at + MARKER_BYTES], leader_epoch, now_ms)
            return AppendResult(base, self.log_end_offset - 1, -1, self.log_start_offset, False)
        end = base
        built: list[tuple[int, int, int, bool, int]] = []
        for at in range(0, size, MARKER_BYTES):
            _place(view, at, end, MARKER_BYTES - LOG_OVERHEAD_BYTES, leader_epoch)
            built.append(read_built_marker(view, at))
            end += 1
        if leader_epoch != self.epochs.latest:
            self.assign_epoch_start(leader_epoch, base)
        self._append(view, size, end - 1, built[0][0], now_ms)
        producers = self.producers
        for offset, (timestamp, pid, epoch, is_commit, coordinator_epoch) in enumerate(built, base):
            marker = _make(Marker, (is_commit, coordinator_epoch))
            ended = producers.apply_marker(pid, epoch, marker, offset, timestamp)
            if ended is not None and ended.is_aborted:
                with self.touching_files():
                    self.active.txn_index.add(producers.aborted_entry(ended))
        if end - self.flusher.recovery_point >= self._flush_messages:
            self.fsync_now()
        return _make(AppendResult, (base, end - 1, -1, self.log_start_offset, False))

    def _rewrites(self, headers: list[BatchHeader]) -> bool:
        """True when the topic's config changes the bytes of some of these batches."""
        config = self.config
        return (config.compression_type != "producer" or config.is_log_append_time) and not all(
            header.is_control for header in headers
        )

    def _learn(self, header: BatchHeader, view: memoryview) -> None:
        aborted = apply_header(self.producers, header, view)
        if aborted is not None:
            with self.touching_files():
                self.active.txn_index.add(aborted)

    def append_as_follower(self, view: memoryview, batches_max: int = ALL_BATCHES) -> int:
        """Append the leader's batches unchanged; a cut-off last one is left out.

        The start of an empty log may lie inside of the first batch. Returns how many bytes were
        appended; `batches_max` bounds one turn of the loop. Raises KafkaError: CORRUPT_MESSAGE, or
        OFFSET_OUT_OF_RANGE when the batches do not follow the log end.
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
                self._begin_inside(base, base + delta)
            if base > self.log_end_offset:
                self.allow_gaps()
            if epoch > self.epochs.latest or self.epochs.changed:  # else it could not be written
                self.assign_epoch_start(epoch, base)
            self._append(batch, size, base + delta, timestamp, now_ms)
            if pid >= 0:
                self._learn(BatchHeader._make(header), batch)
            at += size
            batches_max -= 1
        if self.log_end_offset - self.flusher.recovery_point >= self._flush_messages:
            self.fsync_now()
        return at

    # -- lookups

    def earliest(self) -> TimestampAndOffset:
        """Log start, with the epoch that wrote it."""
        start = self.log_start_offset
        return TimestampAndOffset(start, -1, self.epochs.epoch_for_offset(start))

    def earliest_local(self) -> TimestampAndOffset:
        """Local log start, with the epoch that wrote it (ListOffsets -4)."""
        start = self.local_log_start_offset
        return TimestampAndOffset(start, -1, self.epochs.epoch_for_offset(start))

    # -- producers and transactions

    def last_stable_offset(self, high_watermark: int) -> int:
        """The bound of read_committed: min(high watermark, first unstable offset), and never below
        the log start."""
        producers = self.producers
        if producers.all_decided:
            return high_watermark
        producers.high_watermark_moved(high_watermark)
        first = producers.first_unstable_offset
        if first is None or first > high_watermark:
            return high_watermark
        return max(first, self.log_start_offset)  # DeleteRecords, retention: its start may be gone

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Forget ended transactions whose markers are replicated. `last_stable_offset` does so,
        too, but nobody may ask for it."""
        if not self.producers.all_decided:
            self.producers.high_watermark_moved(high_watermark)

    def producer_snapshot_bytes(self, offset: int) -> bytes:
        """The producer state of everything below `offset`, in Kafka's snapshot format."""
        if offset == self.log_end_offset:
            return encode_snapshot(self.producers.entries.values())
        with self.touching_files():
            return encode_snapshot(
                self.snapshots.producers_at(offset, self.spans()).entries.values()
            )

    def load_producer_snapshot(self, data: bytes, offset: int | None = None) -> None:
        """Take over a leader's snapshot; it holds for the log end. Raises SnapshotError."""
        entries = decode_snapshot(data)
        if offset is not None and offset != self.log_end_offset:
            raise invalid(self._where(), f"snapshot of {offset}, log ends elsewhere")
        self.producers.replace(entries)
        with self.touching_files():
            self.snapshots.write(self.log_end_offset, self.producers)

    def _state_snapshot(self, end_offset: int) -> tuple[str, bytes] | None:
        """The producer snapshot of a segment that begins at `end_offset`."""
        self.snapshots.added(end_offset)
        return self.snapshots.path(end_offset), encode_snapshot(self.producers.entries.values())

    # -- leader epochs

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log; -1 when there is none."""
        return self.epochs.latest

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

    def save_epochs(self) -> None:
        """Write leader-epoch-checkpoint. Raises KAFKA_STORAGE_ERROR."""
        write = self.epochs_writer()
        try:
            write()
        except OSError as e:
            self.epochs.changed = True
            raise self.storage_error(e) from e

    def epochs_writer(self) -> Callable[[], None]:
        """Writes leader-epoch-checkpoint as it is now; in any thread. May raise OSError."""
        data = encode_epochs(self.epochs.entries)
        self.epochs.changed = False
        return partial(self.context.files.write_atomic, f"{self.path}/{LEADER_EPOCHS}", data)

    def _folder_unsynced(self) -> None:
        """A rename may not be durable: the next save of the epochs fsyncs the folder."""
        self.epochs.changed = True

    # -- the start of the log

    def delete_records_before(self, offset: int) -> None:
        """Move the log start up (DeleteRecords); whole segments go at the next retention tick.

        An offset below the log start does nothing; one above the end is OFFSET_OUT_OF_RANGE.
        """
        if offset > self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._where()}: cannot delete before {offset}, "
                f"the log ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self._move_log_start(offset)

    def forget_untiered(self) -> None:
        """Without tiering the log starts at its first segment; a load does not know whether tiering
        is on."""
        if not self.config.remote_storage and self.log_start_offset < self.bases[0]:
            self._move_log_start(self.bases[0])

    def _move_log_start(self, offset: int) -> None:
        """Epochs and decided transactions below it are forgotten."""
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.epochs.truncate_from_start(offset)
        self.producers.truncate_head(offset)
        if self.on_log_start_moved is not None:
            self.on_log_start_moved()
        if self.epochs.changed:
            self.save_epochs()

    def retain(
        self, now_ms: int, tiered_end: int | None = None, *, high_watermark: int | None = None
    ) -> int:
        """Delete the oldest segments that the topic's limits or the log start no longer keep;
        returns how many.

        Nothing at or above `high_watermark` (default: log end) goes. With tiering only local
        segments below `tiered_end` go, and nothing while that is unknown (None).
        """
        if self.is_closed:
            return 0
        bound = self.log_end_offset if high_watermark is None else high_watermark
        ages = [s.age(self.next_offset_of(i)) for i, s in enumerate(self.segments)]
        count, reach = plan(ages, self.config, now_ms, bound, tiered_end)
        below = sum(1 for age in ages[:-1] if age.next_offset <= self.log_start_offset)
        count = max(count, below)
        self.unload_indexes()
        if count == 0:
            return 0
        released = self._remove_oldest(count, now_ms)
        start = self.bases[0]
        if reach is DeletionScope.HISTORY:
            self._move_log_start(max(self.log_start_offset, start))
        logger.info(
            "%s: %d segments below offset %d deleted (%s)",
            self._where(), count, start, reach.value,
        )  # fmt: skip
        self.snapshots.forget(segment.base_offset for segment, _ in released)
        self.deletion.discard(released)
        with self.touching_files():
            self.snapshots.remove_below(start)  # of clean stops within those segments
        return count

    # -- the end of the log

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on; the batch that holds it goes whole.

        Raises CORRUPT_MESSAGE, nothing cut, when damage hides where that batch lies.
        """
        if offset >= self.log_end_offset:
            # An epoch that we led without an append begins at the end: the new leader may not know
            # it, and would answer for ever that the logs diverge there (KAFKA-7415).
            self.epochs.truncate_from_end(self.log_end_offset)
            if self.epochs.changed:
                self.save_epochs()
            return
        if offset < self.bases[0]:
            self.truncate_fully_and_start_at(offset, min(offset, self.log_start_offset))
            return
        with self.touching_files():
            cut = self._prepare_cut(offset)
            end, producers = cut.end_offset, self.producers
            if not producers.truncate_end(end):
                producers = self.snapshots.producers_at(end, self.spans(), skips_damage=True)
        self.snapshots.forget(segment.base_offset for segment, _ in cut.released)
        self._apply_cut(cut)
        self.first_dirty_offset = min(self.first_dirty_offset, end)
        self.log_start_offset = min(self.log_start_offset, end)
        self.producers = producers
        self.epochs.truncate_from_end(end)
        with self.touching_files():
            self.snapshots.remove_above(end)
        if self.epochs.changed:
            self.save_epochs()

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop all records; the next one gets `offset`. `log_start_offset`: where the tiered
        history before it begins."""
        self._start_at(offset, offset if log_start_offset is None else log_start_offset)
        self.save_epochs()

    def _start_at(self, offset: int, log_start_offset: int) -> None:
        """Drop all records, epochs and producers; the epochs are still to be saved."""
        with self.touching_files():
            beginning = self._prepare_beginning(offset)
        self.first_dirty_offset = min(self.first_dirty_offset, offset)
        self.snapshots.forget(segment.base_offset for segment, _ in beginning.released)
        self._begin_anew(beginning)
        self.log_start_offset = log_start_offset
        self.epochs.clear()
        self.producers = Producers()
        with self.touching_files():
            self.snapshots.remove(self.snapshots.offsets)

    def _begin_inside(self, base: int, last: int) -> None:
        """Let the next offset be `base`, which lies before the start of this empty log.

        The leader's log starts inside of the batch [base, last] (DeleteRecords), which can only be
        appended whole; start, producers and epochs stay (Kafka: UnexpectedAppendOffsetException).
        Raises OFFSET_OUT_OF_RANGE for a batch that does not follow for any other reason.
        """
        end, local_start = self.log_end_offset, self.local_log_start_offset
        if local_start != end or not base < end <= last:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self._where()}: the leader sent offsets {base} to {last}, "
                f"this log ends at {end}",
            )
        epochs, producers = self.epochs.entries, self.producers
        self._start_at(base, self.log_start_offset)
        self.local_log_start_offset = local_start
        self.producers = producers
        for epoch, first in epochs:
            if first < base:
                self.epochs.assign(epoch, first)
        self.save_epochs()
        if producers.entries:
            with self.touching_files():
                self.snapshots.write(base, producers)

    def close(self) -> None:
        """A clean stop: producer snapshot at the log end, everything durable, files released.
        Repeats do nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        if self.producers.entries:
            self.snapshots.write(self.log_end_offset, self.producers)
        if self.epochs.changed:
            self.save_epochs()
        self._close_segments()
