"""Compacts the logs of one broker, one after the other, the dirtiest first (Kafka's LogCleaner).

Runs on the broker's loop and only decides and renames there: records are read and written by
`work`, a process of its own. A log that changed meanwhile (truncated, shortened, deleted) keeps
what it has, and its `.cleaned` files go. A log that cannot be compacted is marked, told, and left
alone until the broker starts again. A full disk is no such reason: it is tried again, ever more
rarely.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater.ports.files import Files
from headwater_broker.log.cleanable import Cleanable, SegmentSpan, cleanable
from headwater_broker.log.compaction_job import (
    CleanedSegment,
    CleanError,
    CleanJob,
    CleanResult,
    cleaned_names,
)
from headwater_broker.log.log_context import RenamedFiles
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.log_segment import CLEANED_SUFFIX, LogSegment
from headwater_broker.log.producer_snapshot import encode_snapshot
from headwater_broker.log.segment_swap import put_in_place, swapped_in
from headwater_broker.log.unified_log import UnifiedLog

FAILURES_MAX = 3
"""So many interrupted tries in a row, and a log counts as one that cannot be compacted."""
DISK_PAUSE_S = 30.0
"""After a try that the disk failed (it may be full): so long, then twice as long each time."""
DISK_PAUSE_MAX_S = 900.0

Work = Callable[[CleanJob], Awaitable[CleanResult]]
"""Does a job elsewhere. Raises CleanError or KafkaError for what repeating cannot help, and
CleanInterruptedError for what it may, and OSError when files failed it."""

logger = logging.getLogger(__name__)


class CleanInterruptedError(HeadwaterError):
    """The log changed under the work, or the work's process died."""


@dataclass(slots=True)
class CleanerMeter:
    """What the metrics tell."""

    runs: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    last_run_ms: int = 0
    last_took_s: float = 0.0
    longest_s: float = 0.0
    max_dirty_ratio: float = 0.0
    """Of the dirtiest log at the last look."""
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """What may change while running."""

    map_bytes_max: int = 128 << 20
    """For the keys of all logs under compaction (log.cleaner.dedupe.buffer.size)."""
    threads: int = 1
    """Logs compacted at the same time (log.cleaner.threads)."""
    io_bytes_per_s: float = sys.float_info.max
    """Of one log (log.cleaner.io.max.bytes.per.second)."""


@dataclass(slots=True)
class _DiskBackoff:
    """A log that the disk failed."""

    pause_s: float
    until: float
    """By `clock.monotonic()`."""


@dataclass(slots=True)
class _Compaction:
    """A log that is being compacted, as it was when the work began."""

    log: UnifiedLog
    truncations: int
    segments: dict[int, LogSegment] = field(default_factory=dict)


class LogCleaner:
    """`tick` now and then; `close` before the logs are closed."""

    def __init__(
        self,
        logs: LogManager,
        work: Work,
        clock: Clock,
        settings: Callable[[], CleanerSettings] = CleanerSettings,
    ) -> None:
        self.meter = CleanerMeter()
        self._logs = logs
        self._work = work
        self._clock = clock
        self._settings = settings
        self._tasks = OrderedSet[asyncio.Task[None]]()
        self._busy: dict[UnifiedLog, str] = {}
        """With the folder of each. Work goes on in it when the log is deleted: another log that is
        made there meanwhile has the same names, and waits."""
        self._failures: dict[UnifiedLog, int] = {}
        self._disk_backoff: dict[UnifiedLog, _DiskBackoff] = {}

    def tick(self) -> None:
        """Look for work, unless all hands are busy."""
        now_ms = self._clock.now_ms()
        for log in list(self._logs.logs.values()):
            if log.config.is_compacted:
                self._roll_overdue(log, now_ms)
        self._measure_uncleanable()
        if len(self._tasks) < self._settings().threads:
            task = asyncio.get_running_loop().create_task(self.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """Compact the dirtiest log, again and again until none is due."""
        tried: set[UnifiedLog] = set()
        while (chosen := self._choose(tried)) is not None:
            log, part = chosen
            tried.add(log)
            folder = self._busy[log] = log.path
            try:
                await self._clean(log, part)
            finally:
                if log.is_closed:
                    _clear(log.context.files, folder)
                del self._busy[log]

    async def close(self) -> None:
        """Stop what is under way; nothing it did counts."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- which

    def _measure_uncleanable(self) -> None:
        marked = [log for log in self._logs.logs.values() if log.uncleanable_reason]
        self.meter.uncleanable_partitions = len(marked)
        self.meter.uncleanable_bytes = sum(log.size_bytes for log in marked)

    def _choose(self, tried: set[UnifiedLog]) -> tuple[UnifiedLog, Cleanable] | None:
        best: tuple[UnifiedLog, Cleanable] | None = None
        self.meter.max_dirty_ratio = 0.0
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        for log in [log for log in self._disk_backoff if log.is_closed]:
            del self._disk_backoff[log]
        folders = set(self._busy.values())
        for log in self._logs.logs.values():
            if not _is_compactable(log) or self._is_moving(log) or log.path in folders:
                continue
            if log in self._disk_backoff and now < self._disk_backoff[log].until:
                continue
            part = self._judge(log, now_ms)
            ratio = part.dirty_ratio
            self.meter.max_dirty_ratio = max(self.meter.max_dirty_ratio, ratio)
            if log in tried or not part.is_due(log.config.min_cleanable_dirty_ratio):
                continue
            if best is None or ratio > best[1].dirty_ratio:
                best = log, part
        return best

    def _is_moving(self, log: UnifiedLog) -> bool:
        """A copy is made of it: a tombstone may not go before the copy has it (as in Kafka)."""
        return (log.topic, log.partition) in self._logs.futures.logs

    def _judge(self, log: UnifiedLog, now_ms: int) -> Cleanable:
        spans = [
            SegmentSpan(
                segment.base_offset,
                log.next_offset_of(index),
                segment.file.size_bytes,
                segment.first_timestamp,
                segment.newest_ms,
            )
            for index, segment in enumerate(log.segments)
        ]
        stable = log.last_stable_offset(self._logs.high_watermarks(log))
        return cleanable(spans, log.first_dirty_offset, stable, log.config, now_ms)

    def _roll_overdue(self, log: UnifiedLog, now_ms: int) -> None:
        """The active segment is never compacted: one whose oldest record waits too long is closed,
        also when nothing is appended any more."""
        first = log.active.first_timestamp
        if 0 <= first < now_ms - log.config.max_compaction_lag_ms:
            try:
                log.roll(now_ms)
            except KafkaError as e:
                logger.error("%s: not rolled: %s", log.path, e)

    # -- one log

    async def _clean(self, log: UnifiedLog, part: Cleanable) -> None:
        under = _Compaction(log, log.truncations, {s.base_offset: s for s in log.segments})
        started = self._clock.monotonic()
        try:
            result = await self._work(self._job(log, part))
            is_whole = await self._swap(under, result.segments)
        except CleanInterruptedError as e:
            self._interrupted(log, str(e))
            return
        except OSError as e:
            self._disk_failed(log, e)
            return
        except (CleanError, KafkaError) as e:
            if isinstance(e, KafkaError) and e.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._disk_failed(log, e)  # of a log that is still open: no descriptor was left
            elif log.truncations == under.truncations:
                self._give_up(log, str(e))
            return
        self._failures.pop(log, None)
        self._disk_backoff.pop(log, None)
        self._count(result, self._clock.monotonic() - started)
        if is_whole and not log.is_closed and log.truncations == under.truncations:
            log.first_dirty_offset = result.end
            self._logs.checkpoint_cleaned()
        logger.info(
            "%s: compacted up to offset %d: %d bytes read, %d written, %d records dropped",
            log.path, result.end, result.bytes_read, result.bytes_written, result.records_dropped,
        )  # fmt: skip

    def _job(self, log: UnifiedLog, part: Cleanable) -> CleanJob:
        settings = self._settings()
        bases = [base for base in log.bases if base < part.end]
        return CleanJob(
            folder=log.path,
            bases=bases,
            end=part.end,
            later_bases=log.bases[len(bases) :],
            first_dirty=part.first_dirty,
            producers=encode_snapshot(log.producers.entries.values()),
            now_ms=self._clock.now_ms(),
            delete_retention_ms=log.config.delete_retention_ms,
            segment_bytes=log.config.segment_bytes,
            index_interval_bytes=log.config.index_interval_bytes,
            index_entries_max=log.index_entries_max,
            map_bytes_max=settings.map_bytes_max // settings.threads,
            io_bytes_per_s=settings.io_bytes_per_s,
        )

    async def _swap(self, under: _Compaction, segments: list[CleanedSegment]) -> bool:
        """Put the new segments in place, one per turn of the loop; False when one was not wanted
        any more."""
        is_whole = True
        for new in segments:
            if under.log.is_closed:
                return False  # its folder was renamed or is closed: leftovers go with it
            # An older segment that stays as it was may have what a tombstone hides.
            is_due = is_whole or not new.drops_tombstones
            if is_due and _is_as_it_was(under, new) and not self._is_moving(under.log):
                replace(under.log, new, self._clock.now_ms())
            else:
                is_whole = False
                for name in cleaned_names(new.base_offset):
                    under.log.context.files.remove(f"{under.log.path}/{name}")
            await asyncio.sleep(0)
        return is_whole

    def _count(self, result: CleanResult, took_s: float) -> None:
        meter = self.meter
        meter.runs += 1
        meter.bytes_read += result.bytes_read
        meter.bytes_written += result.bytes_written
        meter.records_dropped += result.records_dropped
        meter.last_run_ms = self._clock.now_ms()
        meter.last_took_s = took_s
        meter.longest_s = max(meter.longest_s, took_s)

    def _interrupted(self, log: UnifiedLog, reason: str) -> None:
        if log.is_closed:
            self._failures.pop(log, None)
            return
        self.meter.failures += 1
        count = self._failures[log] = self._failures.get(log, 0) + 1
        logger.warning("%s: compaction interrupted, try %d: %s", log.path, count, reason)
        if count >= FAILURES_MAX:
            self._give_up(log, reason)

    def _disk_failed(self, log: UnifiedLog, error: OSError | KafkaError) -> None:
        if log.is_closed:
            return
        self.meter.failures += 1
        before = self._disk_backoff.get(log)
        pause_s = DISK_PAUSE_S if before is None else min(2 * before.pause_s, DISK_PAUSE_MAX_S)
        self._disk_backoff[log] = _DiskBackoff(pause_s, self._clock.monotonic() + pause_s)
        logger.warning("%s: not compacted, next try in %d s: %s", log.path, pause_s, error)

    def _give_up(self, log: UnifiedLog, reason: str) -> None:
        self._failures.pop(log, None)
        if log.is_closed:
            return
        self.meter.failures += 1
        log.uncleanable_reason = reason
        self._measure_uncleanable()
        logger.error("%s: will not be compacted any more: %s", log.path, reason)


def _is_compactable(log: UnifiedLog) -> bool:
    """Tiered history is the table's to compact (Kafka allows no compaction with tiering at all)."""
    config = log.config
    return config.is_compacted and not config.remote_storage and not log.uncleanable_reason


def _is_as_it_was(under: _Compaction, new: CleanedSegment) -> bool:
    """The old segments are still there, next to each other and untouched."""
    log = under.log
    if log.is_closed or log.truncations != under.truncations or new.base_offset not in log.bases:
        return False
    at = log.bases.index(new.base_offset)
    now = log.segments[at : at + len(new.replaces)]
    return [s.base_offset for s in now] == new.replaces and all(
        s is under.segments.get(s.base_offset) for s in now
    )


def _clear(files: Files, folder: str) -> None:
    """What was written for a log that is gone may lie beside a new one's files."""
    try:
        for name in files.names(folder):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{folder}/{name}")
    except OSError as e:  # the log may have gone with its disk
        logger.warning("%s: leftovers of a compaction stay: %s", folder, e)


def replace(log: UnifiedLog, new: CleanedSegment, now_ms: int) -> None:
    """A compacted segment takes the place of those it was made of. Raises KAFKA_STORAGE_ERROR."""
    log.allow_gaps()
    at = log.bases.index(new.base_offset)
    old = log.segments[at : at + len(new.replaces)]
    files = log.context.files
    try:
        written_ms = max(segment.last_write_ms for segment in old)
        segment = swapped_in(files, log.path, new, now_ms, written_ms)
        opened = [file for o in old for file in (o.file, *o.release())]
        renamed = put_in_place(files, log.path, new)
    except OSError as e:
        raise log.storage_error(e) from e
    segment.relocate(log.path)
    log.snapshots.forget(new.replaces[1:])
    log.replace_segments([*log.segments[:at], segment, *log.segments[at + len(old) :]])
    log.context.delete_later(
        RenamedFiles(tuple(renamed), tuple(opened), log.config.file_delete_delay_ms)
    )
