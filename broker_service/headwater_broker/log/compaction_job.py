"""One compaction of one log (Kafka's Cleaner): reads closed segments, writes `.cleaned` files.

It reads the log's files and writes `.cleaned` files only, so it may be stopped anywhere and runs in
a process of its own (`cleaner_worker`). `segment_swap` puts the result in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.errors import HeadwaterError
from headwater.ports.files import File, Files
from headwater.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header
from headwater.records.record import check_batch
from headwater_broker.log.cleanable_offsets import group_segments
from headwater_broker.log.compaction_rules import CompactionPass, OffsetMap, Producer, Transactions
from headwater_broker.log.log_segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    file_name,
)
from headwater_broker.log.producer_snapshot_format import decode_snapshot
from headwater_broker.log.producer_snapshots import read_marker
from headwater_broker.log.producer_state_manager import ProducerEntry
from headwater_broker.log.transaction_index import AbortedTransaction, decode_aborted

READ_BYTES = 1 << 20

Throttle = Callable[[int], None]
"""Called with the number of bytes read or written; waits when the rate is exceeded."""


class CleanError(HeadwaterError):
    """A log that cannot be compacted as it is: a retry would fail again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """The segments to compact, as of the time when the job is made."""

    folder: str
    bases: list[int]
    """Base offsets of the closed segments to rewrite, from the log's first one on."""
    end: int
    """The end offset of the last of them."""
    later_bases: list[int]
    """Base offsets of later segments, whose aborted transactions may begin in these."""
    first_dirty: int
    producers: bytes
    """A producer snapshot: the last batch of each of these producers stays."""
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_interval_bytes: int
    index_entries_max: int
    map_bytes_max: int
    io_bytes_per_s: float
    """Limit of reads and writes (log.cleaner.io.max.bytes.per.second)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """A new segment in `.cleaned` files that are fsynced."""

    base_offset: int
    replaces: list[int]
    """Base offsets of the old segments that it replaces."""
    first_timestamp: int
    max_timestamp: int
    max_timestamp_offset: int
    has_txn_index: bool
    drops_tombstones: bool
    """Tombstones were removed: older values of their keys must be gone first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """The result of a job."""

    end: int
    """Everything below it is clean."""
    segments: list[CleanedSegment]
    bytes_read: int
    bytes_written: int
    records_dropped: int


def clean(files: Files, job: CleanJob, throttle: Throttle) -> CleanResult:
    """Run the job. Raises CleanError; KafkaError for a damaged batch; OSError, which is
    FileNotFoundError when the log changed meanwhile."""
    return _CleanRun(files, job, throttle).run()


def cleaned_names(base_offset: int) -> list[str]:
    """The possible file names of a `.cleaned` segment."""
    return [name + CLEANED_SUFFIX for name in names_of(base_offset)]


def names_of(base_offset: int) -> list[str]:
    """The file names of a segment without its snapshot, the `.log` last."""
    suffixes = (TXN_INDEX_SUFFIX, ".timeindex", ".index", LOG_SUFFIX)
    return [file_name(base_offset, suffix) for suffix in suffixes]


class _CleanRun:
    """One run of one job."""

    def __init__(self, files: Files, job: CleanJob, throttle: Throttle) -> None:
        self._files = files
        self._job = job
        self._throttle = throttle
        self._bytes_read = 0
        self._bytes_written = 0
        self._ends = dict(zip(job.bases, [*job.bases[1:], job.end], strict=True))
        self._aborted = self._aborted_transactions()

    def run(self) -> CleanResult:
        job = self._job
        latest = self._latest_offsets()
        producers = {
            entry.producer_id: _producer(entry) for entry in decode_snapshot(job.producers)
        }
        compaction = CompactionPass(
            latest, Transactions(self._aborted), producers, job.now_ms, job.delete_retention_ms
        )
        sizes = []
        for base in job.bases:
            if base < latest.end:
                file = self._open(base)
                sizes.append((base, self._ends[base], file.size_bytes))
                file.close()
        grouped = group_segments(
            sizes, job.segment_bytes, job.index_entries_max, job.index_interval_bytes
        )
        written = [self._write(group, compaction) for group in grouped]
        return CleanResult(
            end=latest.end,
            segments=[segment for segment in written if segment is not None],
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_dropped=compaction.records_dropped,
        )

    def _aborted_transactions(self) -> list[AbortedTransaction]:
        found = []
        for base in (*self._job.bases, *self._job.later_bases):
            path = f"{self._job.folder}/{file_name(base, TXN_INDEX_SUFFIX)}"
            try:
                found += decode_aborted(self._files.read(path), path)
            except FileNotFoundError:
                continue  # most segments have none
        return found

    def _latest_offsets(self) -> OffsetMap:
        """The last offset of each key in the dirty part, as far as map_bytes_max allows."""
        job = self._job
        latest = OffsetMap(job.map_bytes_max)
        latest.end = job.first_dirty
        # Markers below first_dirty are not read, so their transactions would never seem to end.
        transactions = Transactions(a for a in self._aborted if a.last_offset >= job.first_dirty)
        for base in job.bases:
            if self._ends[base] <= job.first_dirty:
                continue
            for header, batch in self._batches(base):
                if header.next_offset <= job.first_dirty:
                    continue
                if not latest.has_room(header):
                    if latest.end > job.first_dirty:
                        return latest
                    raise CleanError(
                        f"{job.folder}: the batch at offset {header.base_offset} has "
                        f"{header.record_count} records, more keys than fit into "
                        f"{job.map_bytes_max} bytes; raise log.cleaner.dedupe.buffer.size"
                    )
                if header.is_control:
                    is_aborted = False
                    transactions.end(header, _is_commit(batch, header))
                else:
                    is_aborted = transactions.is_aborted(header)
                latest.add(header, batch, is_aborted=is_aborted)
            latest.end = max(latest.end, self._ends[base])
        return latest

    def _write(self, group: list[int], compaction: CompactionPass) -> CleanedSegment | None:
        """Write one new segment; None when it equals the one old segment of the group."""
        job = self._job
        for name in cleaned_names(group[0]):
            self._files.remove(f"{job.folder}/{name}")
        self._open(group[0]).close()  # fails for a deleted log, whose folder must not come back
        new = LogSegment(
            self._files, job.folder, group[0],
            has_txn_index=False, now_ms=job.now_ms, mark=CLEANED_SUFFIX,
        )  # fmt: skip
        new.create_indexes()
        new.open_indexes()
        changed, tombstones = len(group) > 1, compaction.tombstones_dropped
        for header, batch, is_last in self._with_last(group):
            outcome = compaction.filter(header, batch, is_last=is_last)
            changed = changed or outcome.batch is not batch
            if outcome.batch is not None:
                self._append(new, outcome.batch)
            if outcome.aborted is not None:
                new.txn_index.add(outcome.aborted)
        new.time_index.maybe_add(new.max_timestamp, new.max_timestamp_offset)
        new.fsync()
        new.close()
        if not changed:
            for name in cleaned_names(group[0]):
                self._files.remove(f"{job.folder}/{name}")
            return None
        return CleanedSegment(
            base_offset=group[0],
            replaces=group,
            first_timestamp=new.first_timestamp,
            max_timestamp=new.max_timestamp,
            max_timestamp_offset=new.max_timestamp_offset,
            has_txn_index=bool(new.txn_index.entries),
            drops_tombstones=compaction.tombstones_dropped > tombstones,
        )

    def _append(self, new: LogSegment, batch: memoryview | bytearray) -> None:
        header = read_header(batch)
        position = new.file.size_bytes
        if not new.can_hold(header.last_offset, position, len(batch)):
            raise CleanError(
                f"{self._job.folder}: segment {new.base_offset} would grow beyond 2 GB"
            )
        new.file.append(memoryview(batch))
        if position == 0:
            new.first_timestamp = header.max_timestamp
        new.note(
            position, len(batch), header.last_offset, header.max_timestamp,
            self._job.index_interval_bytes,
        )  # fmt: skip
        self._bytes_written += len(batch)
        self._throttle(len(batch))

    def _with_last(self, group: list[int]) -> Iterator[tuple[BatchHeader, memoryview, bool]]:
        """The group's batches, each with whether it is the last one."""
        held: tuple[BatchHeader, memoryview] | None = None
        for base in group:
            for header, batch in self._batches(base):
                if held is not None:
                    yield *held, False
                held = header, batch
        if held is not None:
            yield *held, True

    def _open(self, base: int) -> File:
        path = f"{self._job.folder}/{file_name(base, LOG_SUFFIX)}"
        return self._files.open(path, must_exist=True)

    def _batches(self, base: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch of a closed segment, checked."""
        file = self._open(base)
        try:
            at, size = 0, file.size_bytes
            while at < size:
                chunk = memoryview(file.read_at(at, READ_BYTES))
                taken = 0
                while len(chunk) - taken >= HEADER_BYTES:
                    header = read_header(chunk, taken)
                    if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                        raise CleanError(f"{self._job.folder}: no batch at byte {at + taken}")
                    if taken + header.size_bytes > len(chunk):
                        if taken:
                            break
                        chunk = memoryview(file.read_at(at, header.size_bytes))
                        if len(chunk) < header.size_bytes:
                            raise CleanError(f"{self._job.folder}: batch at byte {at} is cut off")
                    check_batch(chunk, taken, header)
                    yield header, chunk[taken : taken + header.size_bytes]
                    taken += header.size_bytes
                if taken == 0:
                    raise CleanError(f"{self._job.folder}: header at byte {at} is cut off")
                at += taken
                self._bytes_read += taken
                self._throttle(taken)
        finally:
            file.close()


def _producer(entry: ProducerEntry) -> Producer:
    return Producer(entry.epoch, entry.last_offset if entry.batches else None)


def _is_commit(batch: memoryview, header: BatchHeader) -> bool | None:
    marker = read_marker(batch, header)
    return None if marker is None else marker.is_commit
