"""What happens to a log now and then: roll, flush, truncate, retain, close.

Functions over a `LogState`, apart from it so that the hot path stays readable.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.files import File
from headwater_broker.log.log_context import Disposal
from headwater_broker.log.log_dir import is_disk_fault
from headwater_broker.log.log_loader import replay_segment
from headwater_broker.log.log_state import LogState
from headwater_broker.log.producer_snapshot import encode_snapshot
from headwater_broker.log.producer_state import Producers
from headwater_broker.log.retention import Reach, plan
from headwater_broker.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    DamagedLogError,
    Segment,
    file_name,
)

_NEW_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX)
_APART = ".tmp"
"""Ends the names of a segment that is made before its names are free; a start removes it."""

logger = logging.getLogger(__name__)


Victims = list[tuple[Segment, list[File]]]


class ActiveProducer(NamedTuple):
    """One row of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


def active_producers(log: LogState) -> list[ActiveProducer]:
    """What DescribeProducers shows of every known producer."""
    return [
        ActiveProducer(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.transaction_first_offset is None else entry.transaction_first_offset,
        )
        for entry in log.producers.entries.values()
    ]


# -- roll


def first_append(log: LogState, segment: Segment, timestamp: int, now_ms: int) -> None:
    """The age of a segment counts from its first batch's timestamp, else from the clock."""
    segment.first_timestamp = timestamp
    segment.created_ms = now_ms
    log.arm_roll()


def should_roll(log: LogState, size: int, last: int, timestamp: int, now_ms: int) -> bool:
    """Is the active segment full by size, age, offset range or index? An empty one never is."""
    segment = log.active
    position = segment.file.size_bytes
    if position == 0:
        return False
    offsets_max, times_max = log.index_entries_max()
    stamp = timestamp if segment.first_timestamp >= 0 <= timestamp else now_ms
    return (
        position + size > log.config.segment_bytes
        or stamp > segment.roll_at_ms
        or not segment.can_hold(last, position, size)
        or len(segment.offset_index) >= offsets_max
        or len(segment.time_index) >= times_max
    )


def _new_segment(log: LogState, offset: int, now_ms: int, mark: str = "") -> Segment:
    """An empty one; nothing of it is left behind after an OSError: a later start would find a
    segment inside of another."""
    files = log.context.files
    segment = Segment(files, log.path, offset, has_txn_index=False, now_ms=now_ms, mark=mark)
    try:
        segment.create_indexes()
    except OSError:
        segment.close()
        for suffix in _NEW_SUFFIXES:
            files.remove(f"{log.path}/{file_name(offset, suffix)}{mark}")
        raise
    return segment


def roll(log: LogState, now_ms: int) -> Segment:
    """Seal the active segment and start one at the log end.

    The old one's fsync and the producer snapshot are written off the loop. The recovery point
    follows through `finished_flushes`, which the owner drains on the loop.
    """
    old, end, truncations = log.active, log.log_end_offset, log.truncations
    files = log.context.files
    with log.touching_files():
        index_files = old.seal()
        try:
            segment = _new_segment(log, end, now_ms)
        except OSError:  # the old one stays active: it opens them again when it needs them
            for file in index_files:
                file.close()
            raise
    log.replace_segments([*log.segments, segment])
    snapshot = encode_snapshot(log.producers.entries.values())
    path = log.snapshots.path(end)
    log.snapshots.added(end)

    def job() -> None:
        if log.is_closed:
            return
        try:
            with log.context.flush_meter.timing():
                old.file.fsync()
                for file in index_files:
                    file.fsync()
                    file.close()
            if log.truncations == truncations:
                files.write_atomic(path, snapshot)
            if log.truncations != truncations:
                # It tells of what was cut, or of a log that is gone, also while it was written.
                files.remove(path)
            log.finished_flushes.append((truncations, end))
        except OSError as e:
            if not log.is_closed:
                log.context.failed_elsewhere((log.path, e))

    log.context.offload(job)
    return segment


# -- flush


def fsync_now(log: LogState) -> None:
    """Make segments from the recovery point on durable, then move it to the log end."""
    end = log.log_end_offset
    try:
        with log.context.flush_meter.timing():
            for index, segment in enumerate(log.segments):
                if log.next_offset_of(index) > log.recovery_point:
                    segment.fsync()
    except OSError as e:
        raise log.storage_error(e) from e
    log.recovery_point = max(log.recovery_point, end)
    log.unflushed_since_ms = -1


def flush_later(log: LogState, now_ms: int) -> None:
    """flush.ms: fsync the active segment off the loop when its oldest loose append is so old.

    Older segments were handed to the disk when they were rolled.
    """
    since = log.unflushed_since_ms
    if log.is_closed or since < 0 or now_ms - since < log.config.flush_ms:
        return
    log.unflushed_since_ms = -1
    segment, end, truncations = log.active, log.log_end_offset, log.truncations

    def job() -> None:
        try:
            with log.context.flush_meter.timing():
                segment.file.fsync()
            log.finished_flushes.append((truncations, end))
        except OSError as e:
            if not log.is_closed:
                log.context.failed_elsewhere((log.path, e))

    log.context.offload(job)


def close(log: LogState) -> None:
    """A clean stop: producer snapshot at the log end, everything durable, files released."""
    if log.is_closed:
        return
    log.is_closed = True
    if log.producers.entries:
        log.snapshots.write(log.log_end_offset, log.producers)
    if log.epochs.changed:
        log.save_epochs()
    log.active.time_index.maybe_add(log.active.max_timestamp, log.active.max_timestamp_offset)
    fsync_now(log)
    for segment in log.segments:
        segment.close()


# -- shorten


def _release(segments: Sequence[Segment]) -> Victims:
    """Segments that are to go, each with the index files that are still to be closed. Raises
    OSError, and then nothing has happened to them."""
    return [(segment, segment.release()) for segment in segments]


def _discard(log: LogState, victims: Victims, *, at_once: bool) -> None:
    """Rename the files of segments that are no longer part of the log; unlink them later.

    `at_once`: their names will be used again, so the rename may not wait its turn off the loop.
    Those are the end of the log: the last goes first, so that a crash in between leaves no hole.
    """
    delay_ms = log.config.file_delete_delay_ms
    victims = victims[::-1] if at_once else victims
    log.leaving.update((segment.base_offset, segment) for segment, _ in victims)
    log.snapshots.forget([segment.base_offset for segment, _ in victims])

    def work() -> None:
        renamed: list[str] = []
        opened: list[File] = []
        for segment, index_files in victims:
            renamed += _rename_away(log, segment)
            opened += [segment.file, *index_files]
        log.context.dispose(Disposal(tuple(renamed), tuple(opened), delay_ms))

    def job() -> None:
        try:
            work()
        except OSError as e:
            if not log.is_closed:
                log.context.failed_elsewhere((log.path, e))

    if at_once:
        work()
    else:
        log.context.offload(job)


def _rename_away(log: LogState, segment: Segment) -> list[str]:
    """The `.deleted` paths of a discarded segment; none when it was renamed before. In any thread:
    who comes first does it, the other one waits for that."""
    renamed = []
    with log.leaving_lock:
        if log.leaving.get(segment.base_offset) is not segment:
            return []
        for name in segment.names():
            path = f"{log.path}/{name}"
            try:
                _rename(log, path, path + DELETED_SUFFIX)
            except FileNotFoundError:
                continue
            renamed.append(path + DELETED_SUFFIX)
        del log.leaving[segment.base_offset]
    return renamed


def _rename(log: LogState, source: str, target: str) -> None:
    """As the files do it. Without a descriptor a name is as good as changed, and only the fsync of
    the folder is missing: what saves the leader epochs, before anything is appended, makes up."""
    try:
        log.context.files.rename(source, target)
    except OSError as e:
        if is_disk_fault(target, e):
            raise
        log.epochs.changed = True


def _free_name(log: LogState, base_offset: int) -> None:
    """A segment that retention discarded keeps its name until its job's turn: a new one of that
    name would open its file, and then lose it."""
    segment = log.leaving.get(base_offset)
    if segment is not None:
        renamed = _rename_away(log, segment)
        delay_ms = log.config.file_delete_delay_ms
        log.context.dispose(Disposal(tuple(renamed), (), delay_ms))


def retain(log: LogState, now_ms: int, tiered_end: int | None, high_watermark: int) -> int:
    """Delete the oldest segments that limits or the log start no longer keep."""
    if log.is_closed:
        return 0
    ages = [s.age(log.next_offset_of(i)) for i, s in enumerate(log.segments)]
    count, reach = plan(ages, log.config, now_ms, high_watermark, tiered_end)
    below = sum(1 for age in ages[:-1] if age.next_offset <= log.log_start_offset)
    count = max(count, below)
    for segment in log.segments[:-1]:
        segment.unload_indexes()
    if count == 0:
        return 0
    if count == len(log.segments):
        roll(log, now_ms)
    gone, kept = log.segments[:count], log.segments[count:]
    with log.touching_files():
        victims = _release(gone)
    log.replace_segments(kept)
    start = kept[0].base_offset
    log.local_log_start_offset = max(log.local_log_start_offset, start)
    if reach is Reach.HISTORY:
        move_log_start(log, max(log.log_start_offset, start))
    logger.info(
        "%s-%d: %d segments below offset %d deleted (%s)",
        log.topic, log.partition, count, start, reach.value,
    )  # fmt: skip
    _discard(log, victims, at_once=False)
    try:
        log.snapshots.remove_below(start)  # of clean stops within those segments
    except OSError as e:
        raise log.storage_error(e) from e
    return count


def move_log_start(log: LogState, offset: int) -> None:
    """Epochs and decided transactions below it are forgotten."""
    log.log_start_offset = offset
    log.local_log_start_offset = max(log.local_log_start_offset, offset)
    log.epochs.truncate_from_start(offset)
    log.producers.truncate_head(offset)
    if log.on_start is not None:
        log.on_start()
    if log.epochs.changed:
        log.save_epochs()


def forget_untiered(log: LogState) -> None:
    """Without tiering the log starts at its first segment: a loaded one that did not know."""
    if not log.config.remote_storage and log.log_start_offset < log.bases[0]:
        move_log_start(log, log.bases[0])


def delete_records_before(log: LogState, offset: int) -> None:
    """Move the log start up; down is no error and does nothing."""
    if offset > log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.topic}-{log.partition}: cannot delete before {offset}, "
            f"the log ends at {log.log_end_offset}",
        )
    if offset > log.log_start_offset:
        move_log_start(log, offset)


def truncate_to(log: LogState, offset: int) -> None:
    """Cut from `offset` on (the batch that holds it goes whole).

    Raises CORRUPT_MESSAGE, nothing cut, when damage hides where that batch lies.
    """
    if offset >= log.log_end_offset:
        # An epoch that we led without an append begins at the end: the new leader may not know it,
        # and would tell us for ever that the logs part there (KAFKA-7415).
        log.epochs.truncate_from_end(log.log_end_offset)
        if log.epochs.changed:
            log.save_epochs()
        return
    if offset < log.bases[0]:
        truncate_fully(log, offset, min(offset, log.log_start_offset))
        return
    keep = [s for s in log.segments if s.base_offset <= offset]
    gone = log.segments[len(keep) :]
    with log.touching_files():
        # What meets damage, or lacks a descriptor, does so before anything is changed: half a cut
        # would leave segments in use whose files are renamed, and closed soon.
        place = keep[-1].find(offset)
        end = offset if place is None else min(place.base_offset, offset)
        keep[-1].hold_indexes()
        victims, producers = _release(gone), log.producers
        if not producers.truncate_end(end):
            producers = producers_at(log, end, passes_damage=True)
    log.truncations += 1
    log.context.truncated()
    try:
        if gone:
            _discard(log, victims, at_once=True)
        keep[-1].truncate(offset)
    except OSError as e:
        raise log.storage_error(e) from e
    log.replace_segments(keep)
    log.log_end_offset = end
    log.first_dirty_offset = min(log.first_dirty_offset, end)
    log.recovery_point = min(log.recovery_point, end)
    log.log_start_offset = min(log.log_start_offset, end)
    log.local_log_start_offset = min(log.local_log_start_offset, end)
    log.producers = producers
    log.epochs.truncate_from_end(end)
    with log.touching_files():
        log.snapshots.remove_above(end)
    if log.epochs.changed:
        log.save_epochs()


def truncate_fully(log: LogState, offset: int, log_start_offset: int) -> None:
    """Drop all and start at `offset`."""
    _begin_anew(log, offset, log_start_offset)
    log.save_epochs()


def _begin_anew(log: LogState, offset: int, log_start_offset: int) -> None:
    """As `truncate_fully`; the epochs are still to be saved. For want of a descriptor it fails
    before anything is changed."""
    with log.touching_files():
        victims = _release(log.segments)
        segment = _new_segment(log, offset, log.context.clock.now_ms(), _APART)
    log.truncations += 1
    log.context.truncated()
    log.first_dirty_offset = min(log.first_dirty_offset, offset)
    try:
        _discard(log, victims, at_once=True)
        _free_name(log, offset)
        for suffix in _NEW_SUFFIXES:
            path = f"{log.path}/{file_name(offset, suffix)}"
            _rename(log, path + _APART, path)
    except OSError as e:
        raise log.storage_error(e) from e
    segment.relocate(log.path)
    log.replace_segments([segment])
    log.log_end_offset = log.recovery_point = log.local_log_start_offset = offset
    log.log_start_offset = log_start_offset
    log.epochs.clear()
    log.producers = Producers()
    with log.touching_files():
        log.snapshots.remove(log.snapshots.offsets)


def begin_inside(log: LogState, base: int, last: int) -> None:
    """The leader's log starts inside a batch (DeleteRecords), and so does this one, still empty:
    the batch [base, last] can only be appended whole. Let the next offset be `base`; start,
    producers and epochs stay (Kafka: UnexpectedAppendOffsetException).

    Raises OFFSET_OUT_OF_RANGE for a batch that does not follow for any other reason.
    """
    end, start, local_start = log.log_end_offset, log.log_start_offset, log.local_log_start_offset
    if local_start != end or not base < end <= last:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.topic}-{log.partition}: the leader sent offsets {base} to {last}, "
            f"this log ends at {end}",
        )
    epochs, producers = log.epochs.entries, log.producers
    _begin_anew(log, base, start)
    log.local_log_start_offset = local_start
    log.producers = producers
    for epoch, first in epochs:
        if first < base:
            log.epochs.assign(epoch, first)
    log.save_epochs()
    if producers.entries:
        try:
            log.snapshots.write(base, producers)
        except OSError as e:
            raise log.storage_error(e) from e


def producers_at(log: LogState, offset: int, *, passes_damage: bool = False) -> Producers:
    """The producer state of everything below `offset`: newest snapshot, then a replay.

    `passes_damage`: what a damaged segment does not tell is missing; else CORRUPT_MESSAGE.
    """
    producers = Producers()
    start = log.snapshots.load_newest(producers, log.bases[0], offset)
    for index, segment in enumerate(log.segments):
        if log.next_offset_of(index) > start and segment.base_offset < offset:
            try:
                replay_segment(segment, producers, start, index=False, end=offset)
            except DamagedLogError as e:
                if not passes_damage:
                    raise
                logger.error("producers behind it are not known: %s", e.detail)
    return producers
