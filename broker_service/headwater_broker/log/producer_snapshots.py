"""Producer snapshot files of a log, and the replay that rebuilds producer state from batches."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headwater.ports.files import Files
from headwater.records.batch import NO_PRODUCER_ID, BatchHeader
from headwater.records.control import ControlType, read_end_marker
from headwater_broker.log.log_segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SNAPSHOT_SUFFIX,
    DamagedLogError,
    LogSegment,
    file_name,
)
from headwater_broker.log.producer_snapshot_format import (
    SnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from headwater_broker.log.producer_state_manager import Marker, Producers
from headwater_broker.log.transaction_index import AbortedTransaction

NO_BYTES = memoryview(b"")

logger = logging.getLogger(__name__)


def read_marker(view: memoryview, header: BatchHeader) -> Marker | None:
    """The marker in a control batch. Raises KafkaError.

    None for control records of other types, and for a batch that compaction emptied, as no batch of
    its transaction is left.
    """
    parsed = read_end_marker(view, header)
    if parsed is None or parsed.type is ControlType.UNKNOWN:
        return None
    return Marker(parsed.type is ControlType.COMMIT, parsed.coordinator_epoch)


def apply_header(
    producers: Producers, header: BatchHeader, view: memoryview
) -> AbortedTransaction | None:
    """Apply a batch of the log. Returns the transaction that it aborts, for the transaction index.

    `view` is the batch; only control batches are read.
    """
    if header.producer_id == NO_PRODUCER_ID:
        return None
    if not header.is_control:
        producers.apply_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            transactional=header.is_transactional,
        )
        return None
    marker = read_marker(view, header)
    if marker is None:
        if header.record_count == 0:
            producers.apply_epoch(header.producer_id, header.producer_epoch, header.max_timestamp)
        return None
    completed = producers.apply_marker(
        header.producer_id,
        header.producer_epoch,
        marker,
        header.last_offset,
        header.max_timestamp,
    )
    if completed is None or not completed.is_aborted:
        return None
    return producers.aborted_entry(completed)


def replay_segment(
    segment: LogSegment, producers: Producers, start: int, *, index: bool, end: int = 2**63
) -> None:
    """Apply the batches of [start, end) to `producers`; `index`: fill the transaction index too.

    Raises DamagedLogError; the batches before the damage are applied.
    """
    for position, header in segment.headers(segment.offset_index.floor(start)):
        if header.base_offset >= end:
            return
        if header.base_offset < start or header.producer_id < 0:
            continue
        view = segment.batch(position, header.size_bytes) if header.is_control else NO_BYTES
        aborted = apply_header(producers, header, view)
        if aborted is not None and index:
            segment.txn_index.add(aborted)


class ProducerSnapshots:
    """The `.snapshot` files of one log folder."""

    def __init__(self, files: Files, folder: str, names: Iterable[str]) -> None:
        self._files = files
        self._folder = folder
        self._offsets = sorted(
            int(name[: -len(SNAPSHOT_SUFFIX)]) for name in names if name.endswith(SNAPSHOT_SUFFIX)
        )

    @property
    def offsets(self) -> list[int]:
        """Offsets of all snapshots, ascending."""
        return list(self._offsets)

    def path(self, offset: int) -> str:
        """The path of a snapshot."""
        return f"{self._folder}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def relocate(self, folder: str) -> None:
        """The log's folder was renamed."""
        self._folder = folder

    def write(self, offset: int, producers: Producers) -> None:
        """Write and fsync a snapshot of the producers at `offset`."""
        self._files.write_atomic(self.path(offset), encode_snapshot(producers.entries.values()))
        self.added(offset)

    def added(self, offset: int) -> None:
        """A snapshot at `offset` was written, or will be."""
        if offset not in self._offsets:
            self._offsets.append(offset)
            self._offsets.sort()

    def load_newest(self, producers: Producers, low: int, high: int) -> int:
        """Replace `producers` by the newest readable snapshot in [low, high].

        Returns its offset; `low`, and no producers, when there is none. Removes unreadable ones.
        """
        for offset in reversed(self._offsets):
            if not low <= offset <= high:
                continue
            try:
                producers.replace(decode_snapshot(self._files.read(self.path(offset))))
            except (SnapshotError, FileNotFoundError) as e:
                logger.warning("%s: snapshot %d skipped: %s", self._folder, offset, e)
                self.remove([offset])
                continue
            return offset
        producers.replace(())
        return low

    def producers_at(
        self, offset: int, spans: Iterable[tuple[LogSegment, int]], *, skips_damage: bool = False
    ) -> Producers:
        """The producer state of everything below `offset`: newest snapshot, then a replay.

        `spans`: the log's segments with their end offsets. `skips_damage`: the state behind damage
        in a segment is missing; else CORRUPT_MESSAGE.
        """
        producers = Producers()
        found = list(spans)
        start = self.load_newest(producers, found[0][0].base_offset, offset)
        for segment, end in found:
            if end > start and segment.base_offset < offset:
                try:
                    replay_segment(segment, producers, start, index=False, end=offset)
                except DamagedLogError as e:
                    if not skips_damage:
                        raise
                    logger.error("producers behind it are not known: %s", e.detail)
        return producers

    def forget(self, offsets: Iterable[int]) -> None:
        """These files were renamed or removed together with their segments."""
        gone = set(offsets)
        self._offsets = [kept for kept in self._offsets if kept not in gone]

    def remove(self, offsets: Iterable[int]) -> None:
        """Remove snapshots, at once as they are small."""
        for offset in offsets:
            self._files.remove(self.path(offset))
            self._offsets = [kept for kept in self._offsets if kept != offset]

    def remove_above(self, offset: int) -> None:
        """Remove snapshots above the log end after a truncation."""
        self.remove([kept for kept in self._offsets if kept > offset])

    def remove_below(self, offset: int) -> None:
        """Remove snapshots below the local log start after retention."""
        self.remove([kept for kept in self._offsets if kept < offset])

    def remove_strays(self, bases: Iterable[int]) -> None:
        """At load, remove snapshots of clean shutdowns, which belong to no segment, but for the
        newest one, which the load may begin with."""
        kept = {*bases, *self._offsets[-1:]}
        self.remove([offset for offset in self._offsets if offset not in kept])


def leftover_names(names: Iterable[str]) -> list[str]:
    """Files of an interrupted deletion or atomic write, which a load removes."""
    return [name for name in names if name.endswith((DELETED_SUFFIX, ".tmp", CLEANED_SUFFIX))]
