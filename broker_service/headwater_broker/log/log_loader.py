"""Loads the folder of a log, and recovers it after an unclean shutdown (Kafka's LogLoader).

`recovery_rules` decides which segments are scanned or indexed anew.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from crc32c import crc32c

from headwater.ports.files import Files
from headwater.records.batch import (
    AT_ATTRIBUTES,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    BatchHeader,
    compute_crc,
    read_header,
)
from headwater_broker.log.checkpoint_files import (
    HAS_GAPS,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    CheckpointError,
    decode_epochs,
    decode_tells_gaps,
)
from headwater_broker.log.leader_epochs import LeaderEpochs
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    DamagedLogError,
    LogSegment,
    file_name,
)
from headwater_broker.log.producer_snapshots import (
    ProducerSnapshots,
    leftover_names,
    replay_segment,
)
from headwater_broker.log.producer_state_manager import Producers
from headwater_broker.log.recovery_rules import (
    BatchCase,
    BatchFacts,
    SegmentCase,
    SegmentFacts,
    judge_batch,
    judge_segment,
)
from headwater_broker.log.segment_swap import finish_swaps

logger = logging.getLogger(__name__)

SCAN_CHUNK_BYTES = 1 << 20
_GOOD = struct.Struct(">qiibI2xi8xqq")
"""base_offset, batch_length, leader_epoch, magic, crc, last_offset_delta, max_timestamp,
producer_id."""


@dataclass(slots=True)
class LoadedLog:
    """A log folder, loaded and recovered."""

    segments: list[LogSegment]
    producers: Producers
    epochs: LeaderEpochs
    snapshots: ProducerSnapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    is_gapless: bool
    """No offset between start and end may be missing, as far as was ever written."""
    is_cut: bool
    """Batches that were written are lost: the clean-shutdown mark does not hold for this log."""
    set_aside: list[str]
    """Paths of files that are not part of the log any more: renamed, to be removed later."""
    recovered: list[str] = field(default_factory=list)
    """Sentences on what was recovered; empty after a clean shutdown."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The log's folder, with what the data folder's checkpoints and mark say of it."""

    folder: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    clean_stop: bool
    now_ms: int


class LogLoader:
    """Loads one log folder. May take long after an unclean shutdown: run before serving."""

    def __init__(self, files: Files, request: LoadRequest) -> None:
        self._files = files
        self._request = request
        self._names = set(files.names(request.folder))
        self._notes: list[str] = []
        self._rebuilt: set[int] = set()
        self._with_producers: set[int] = set()
        """Rebuilt segments with batches of idempotent producers."""
        self._epochs = self._load_epochs()
        self._is_gapless = self._load_gapless()
        self._is_cut = False
        self._put_aside: list[str] = []
        self._segments: list[LogSegment] = []
        self._end = 0

    def load(self) -> LoadedLog:
        """Load the log; afterwards the folder has no file that contradicts the result."""
        request = self._request
        self._finish_swaps()
        self._clear_leftovers()
        self._open_segments()
        # Tiered history may lie below the first segment. Whether tiering is on is not known yet:
        # see `UnifiedLog.forget_untiered`.
        log_start = max(request.log_start_offset, 0)
        if self._segments and self._end < log_start:
            self._note(
                f"log ends at {self._end}, below its start {log_start}: it begins anew there"
            )
            for segment in self._segments:
                self._set_aside(segment)
            self._segments.clear()
            self._names = set(self._files.names(request.folder))
        if not self._segments:
            self._start_at(log_start)
        self._epochs.truncate_from_end(self._end)
        self._read_epochs(max(log_start, self._segments[0].base_offset))
        self._epochs.truncate_from_start(log_start)
        snapshots = ProducerSnapshots(self._files, request.folder, self._names)
        snapshots.remove_above(self._end)
        snapshots.remove_strays([segment.base_offset for segment in self._segments])
        producers = self._load_producers(snapshots)
        point = self._end if request.clean_stop else min(request.recovery_point, self._end)
        return LoadedLog(
            self._segments,
            producers,
            self._epochs,
            snapshots,
            log_start,
            self._end,
            max(point, 0),
            self._is_gapless,
            self._is_cut,
            self._put_aside,
            self._notes,
        )

    def _note(self, text: str) -> None:
        logger.warning("%s: %s", self._request.folder, text)
        self._notes.append(text)

    def _load_epochs(self) -> LeaderEpochs:
        if LEADER_EPOCHS not in self._names:  # a new log; or a loss: `_read_epochs`
            return LeaderEpochs()
        path = f"{self._request.folder}/{LEADER_EPOCHS}"
        try:
            return LeaderEpochs(decode_epochs(self._files.read(path), path))
        except CheckpointError as e:
            self._note(str(e))
        return LeaderEpochs()

    def _read_epochs(self, start: int) -> None:
        """Read leader epochs from batches, for records that the checkpoint does not cover.

        The checkpoint may be lost. Or it was truncated when the log start moved, and a power loss
        undid that move and took the end of the log.
        """
        known = self._epochs.entries
        first = known[0][1] if known else self._end
        if start >= first:
            return
        self._epochs.clear()
        for segment in self._segments:
            if segment.base_offset >= first:
                break
            with self._noting_damage("leader epochs after it are not known"):
                for _, header in segment.headers(0):
                    if header.leader_epoch > self._epochs.latest and header.base_offset < first:
                        self._epochs.assign(header.leader_epoch, header.base_offset)
        for epoch, offset in known:
            self._epochs.assign(epoch, offset)
        self._note(f"leader epochs of [{start}, {first}) were lost, and read from their batches")

    def _load_gapless(self) -> bool:
        if HAS_GAPS in self._names or PARTITION_METADATA not in self._names:
            return False
        return decode_tells_gaps(self._files.read(f"{self._request.folder}/{PARTITION_METADATA}"))

    def _finish_swaps(self) -> None:
        """Finish or undo the segment swap of an interrupted compaction."""
        notes = finish_swaps(self._files, self._request.folder, self._names)
        for note in notes:
            self._note(note)
        if notes:
            self._names = set(self._files.names(self._request.folder))

    def _clear_leftovers(self) -> None:
        """Remove files of an interrupted deletion, and indexes without their `.log`."""
        stems = {n[: -len(LOG_SUFFIX)] for n in self._names if n.endswith(LOG_SUFFIX)}
        gone = leftover_names(self._names)
        for name in self._names:
            stem, _, suffix = name.partition(".")
            if f".{suffix}" in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
                gone += [] if stem in stems else [name]
        for name in gone:
            self._files.remove(f"{self._request.folder}/{name}")
            self._names.discard(name)

    def _open_segments(self) -> None:
        bases = sorted(int(n[: -len(LOG_SUFFIX)]) for n in self._names if n.endswith(LOG_SUFFIX))
        is_cut = False
        read_end: int | None = None  # end of the segment before, if its batches were read
        for index, base in enumerate(bases):
            following = bases[index + 1] if index + 1 < len(bases) else None
            segment = self._open(base)
            case = judge_segment(
                SegmentFacts(
                    after_cut=is_cut,
                    offsets_missing=self._is_gapless and read_end is not None and read_end < base,
                    clean_stop=self._request.clean_stop,
                    below_recovery_point=following is not None
                    and following <= self._request.recovery_point,
                    sane_indexes=self._has_sane_indexes(segment),
                )
            )
            if case in (SegmentCase.O_GAP, SegmentCase.P_DROP):
                self._note(f"segment {base}, {case.value} (the log ends at {self._end})")
                self._set_aside(segment)
                is_cut = True
                continue
            self._segments.append(segment)
            if case is SegmentCase.Q_TRUST:
                is_cut = self._trust(segment, following)
                read_end = None
            else:
                is_cut = self._rebuild(segment, checks=case is SegmentCase.S_SCAN)
                read_end = self._end
            if base in self._rebuilt:  # after a kill there are thousands of them
                if following is not None:
                    segment.fsync()  # its flush was cut short: the next one covers the last segment
                segment.close_indexes()
            if segment.max_timestamp < 0:
                self._learn_age(segment)
            if following is not None:
                segment.unload_indexes()

    def _learn_age(self, segment: LogSegment) -> None:
        """Take the age of records without timestamps from the file's modification time."""
        path = f"{self._request.folder}/{file_name(segment.base_offset, LOG_SUFFIX)}"
        segment.last_write_ms = min(self._files.modified_ms(path), self._request.now_ms)

    def _open(self, base: int) -> LogSegment:
        return LogSegment(
            self._files,
            self._request.folder,
            base,
            has_txn_index=file_name(base, TXN_INDEX_SUFFIX) in self._names,
            now_ms=self._request.now_ms,
        )

    def _has_sane_indexes(self, segment: LogSegment) -> bool:
        wanted = {file_name(segment.base_offset, s) for s in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
        return (
            wanted <= self._names
            and segment.offset_index.is_sane(segment.file.size_bytes)
            and segment.time_index.is_sane()
        )

    def _start_at(self, offset: int) -> None:
        segment = self._open(offset)
        segment.create_indexes()
        self._segments.append(segment)
        self._end = offset

    def _set_aside(self, segment: LogSegment) -> None:
        self._is_cut = True
        segment.close()
        for name in segment.names():
            path = f"{self._request.folder}/{name}"
            try:
                self._files.rename(path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            self._put_aside.append(path + DELETED_SUFFIX)

    def _trust(self, segment: LogSegment, following: int | None) -> bool:
        """Use the segment as it is; whether it had to be cut.

        Damage in it is left for its readers, unless it hides where the log ends: then the segment
        is scanned and cut.
        """
        with self._noting_damage("timestamps after it are not known"):
            segment.load_times()
        try:
            self._end = self._end_of(segment) if following is None else following
        except DamagedLogError as e:
            self._note(f"{e.detail}: the log end is not known, so the segment is scanned")
            return self._rebuild(segment, checks=True)
        return False

    @contextmanager
    def _noting_damage(self, what: str) -> Iterator[None]:
        """A damaged batch below the recovery point is noted, and loading goes on."""
        try:
            yield
        except DamagedLogError as e:
            self._note(f"{e.detail}: {what}")

    def _end_of(self, segment: LogSegment) -> int:
        end = segment.base_offset
        for _, header in segment.headers(segment.offset_index.floor(2**62)):
            end = header.next_offset
        return end

    def _rebuild(self, segment: LogSegment, *, checks: bool) -> bool:
        """Scan from the first byte and fill the indexes; cut at the first bad batch. Whether it was
        cut."""
        segment.reset_indexes()
        self._rebuilt.add(segment.base_offset)
        position, expected, read_bytes = 0, segment.base_offset, SCAN_CHUNK_BYTES
        while True:
            position, expected = self._keep_good(
                segment, position, expected, read_bytes, checks=checks
            )
            header, case = _judged(segment, position, expected, checks=checks)
            if case is not BatchCase.H_KEEP or header is None:
                break
            read_bytes = max(SCAN_CHUNK_BYTES, header.size_bytes)  # good, and larger than one read
        self._end = expected
        if not case.cuts:
            return False
        lost = segment.file.size_bytes - position
        self._note(f"segment {segment.base_offset} byte {position}, {case.value} ({lost} bytes)")
        segment.file.truncate(position)
        self._is_cut = True
        return True

    def _keep_good(
        self, segment: LogSegment, position: int, expected: int, read_bytes: int, *, checks: bool
    ) -> tuple[int, int]:
        """Scan good batches (case H of `judge_batch`) within one read; the position and the offset
        after them. `_judged` names the case of any other batch.

        A start after a kill spends its time here: a segment may have millions of batches.
        """
        note, interval = segment.note, self._request.config.index_interval_bytes
        unpack, read_at = _GOOD.unpack_from, segment.file.read_at
        while chunk := read_at(position, read_bytes):
            view, at, last_start = memoryview(chunk), 0, len(chunk) - HEADER_BYTES
            while at <= last_start:
                base, length, epoch, magic, crc, delta, timestamp, producer = unpack(chunk, at)
                size = length + LOG_OVERHEAD_BYTES
                if (
                    size < HEADER_BYTES
                    or at + size > len(chunk)
                    or magic != MAGIC_V2
                    or base < expected
                    or delta < 0
                    or (checks and crc32c(view[at + AT_ATTRIBUTES : at + size]) != crc)
                ):
                    break
                if position + at == 0:
                    segment.first_timestamp = timestamp
                note(position + at, size, base + delta, timestamp, interval)
                if epoch > self._epochs.latest:
                    self._epochs.assign(epoch, base)
                if producer >= 0:
                    self._with_producers.add(segment.base_offset)
                expected = base + delta + 1
                at += size
            if at == 0:
                break
            position += at
        return position, expected

    def _load_producers(self, snapshots: ProducerSnapshots) -> Producers:
        """Load the newest snapshot before all rebuilt segments, then replay later batches."""
        producers = Producers()
        start = min([*self._rebuilt, self._end])
        low = self._segments[0].base_offset
        at = snapshots.load_newest(producers, low, max(start, low))
        self._replay(producers, at)
        return producers

    def _replay(self, producers: Producers, start: int) -> None:
        ends = [*(s.base_offset for s in self._segments[1:]), self._end]
        for segment, end in zip(self._segments, ends, strict=True):
            base = segment.base_offset
            is_rebuilt = base in self._rebuilt
            if end > start and not (is_rebuilt and base not in self._with_producers):
                with self._noting_damage("idempotent producers after it are not known"):
                    replay_segment(segment, producers, start, index=is_rebuilt)
                if is_rebuilt:
                    if segment is not self._segments[-1]:
                        segment.txn_index.fsync()  # filled just now
                    segment.close_indexes()


def _judged(
    segment: LogSegment, at: int, expected: int, *, checks: bool
) -> tuple[BatchHeader | None, BatchCase]:
    """The header, if it is whole, and the case of the batch at byte `at`."""
    left = segment.file.size_bytes - at
    whole_header = left >= HEADER_BYTES
    header = read_header(segment.file.read_at(at, HEADER_BYTES)) if whole_header else None
    sane = header is not None and header.batch_length >= HEADER_BYTES - LOG_OVERHEAD_BYTES
    whole = header is not None and sane and header.size_bytes <= left
    crc_matches = True
    if header is not None and whole and checks:
        batch = segment.file.read_at(at, header.size_bytes)
        crc_matches = compute_crc(memoryview(batch), 0, header.size_bytes) == header.crc
    rising = header is not None and header.base_offset >= expected
    rising = rising and header is not None and header.last_offset_delta >= 0
    known = header is not None and header.magic == MAGIC_V2
    facts = BatchFacts(left > 0, whole_header, sane, whole, known, crc_matches, rising)
    return header, judge_batch(facts)
