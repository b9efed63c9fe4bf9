"""A compacted log over memory files, a cleaner in the same process, and the records readers see."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

from headwater.ports.files import Files
from headwater.records.batch import BatchHeader, iter_headers
from headwater.records.builder import BatchBuilder
from headwater.records.control import ControlType, build_marker
from headwater.records.record import Record, check_batch, decode_batch
from headwater_broker.log.cleaner import CleanerSettings, LogCleaner
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import TOPIC_ID, Box

HUGE = 1 << 30
MAP_BYTES = 1 << 20

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "600",
    "index.interval.bytes": "1",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "1000",
}

Pair = tuple[bytes | None, bytes | None]


def records_batch(
    pairs: list[Pair],
    timestamp: int = 1000,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> memoryview:
    """A batch of (key, value); `producer` is (id, epoch, first sequence)."""
    builder = BatchBuilder()
    for number, (key, value) in enumerate(pairs):
        builder.append(timestamp + number, key, value, [("h", b"%d" % number)])
    return memoryview(
        builder.build(
            compression=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
        )
    )


def end_transaction(log: UnifiedLog, producer_id: int, epoch: int, *, commit: bool) -> None:
    """Append a marker."""
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    marker = build_marker(
        kind, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=0, timestamp=5
    )
    log.append_as_leader(memoryview(marker), 0, 5, origin=AppendOrigin.COORDINATOR)


def batches(log: UnifiedLog) -> list[tuple[BatchHeader, list[Record]]]:
    """Every batch of the log, each checked."""
    found, at = [], log.local_log_start_offset
    while at < log.log_end_offset:
        part = log.read(at, HUGE, HUGE)
        if not part.size_bytes:
            break
        view = memoryview(part.file.read_at(part.position, part.size_bytes))
        for position, header in iter_headers(view):
            check_batch(view, position, header)
            records = decode_batch(view, position, header) if header.record_count else []
            found.append((header, records))
            at = header.next_offset
    return found


def visible(log: UnifiedLog) -> list[Record]:
    """What a read-committed reader is given."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    found, open_aborted = [], set()
    for header, records in batches(log):
        for producer_id, first in [a for a in aborted if a[1] <= header.last_offset]:
            aborted.remove((producer_id, first))
            open_aborted.add(producer_id)
        if header.is_control:
            open_aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborted):
            found += records
    return found


def cleaner_of(
    box: Box, *, files: Files | None = None, map_bytes_max: int = MAP_BYTES
) -> LogCleaner:
    """A cleaner whose work happens at once."""

    async def work(job: CleanJob) -> CleanResult:
        return clean(files or box.files, job, lambda size: None)

    settings = CleanerSettings(map_bytes_max=map_bytes_max)
    return LogCleaner(box.manager, work, box.clock, lambda: settings)


def compact(box: Box, **options: int) -> LogCleaner:
    """Compact whatever is due."""
    cleaner = cleaner_of(box, **options)
    asyncio.run(cleaner.run())
    return cleaner


def compacted_log(
    box: Box, overrides: Mapping[str, str] = SETTINGS, topic_id: UUID = TOPIC_ID
) -> UnifiedLog:
    """The log `t-0` with these settings."""
    named = {name.replace(".", "_"): value for name, value in overrides.items()}
    return box.log(topic_id=topic_id, **named)


def fill(log: UnifiedLog, count: int, keys: int, now_ms: int = 2000) -> None:
    """`count` batches of two records over `keys` keys."""
    for number in range(count):
        pairs: list[Pair] = [(b"k%d" % ((number + i) % keys), b"v%d" % number) for i in range(2)]
        log.append_as_leader(records_batch(pairs, now_ms + 10 * number), 0, now_ms)


def latest(records: list[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    """key -> (offset, value) of its last record."""
    return {record.key: (record.offset, record.value) for record in records}


Step = Callable[[], None]
