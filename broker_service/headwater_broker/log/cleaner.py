"""Compacts the logs of one broker, the dirtiest first (Kafka's LogCleaner and LogCleanerManager).

`cleanable_offsets` tells which logs are due. On the broker's loop it only decides and renames: a
process of its own reads and writes the records (`cleaner_process`). A log that is truncated,
shortened or deleted meanwhile keeps its segments, and its `.cleaned` files are removed. A log that
cannot be compacted is marked, logged, and left alone until the broker restarts. A full disk is no
such reason: the log is tried again, less and less often.
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
from headwater_broker.log.cleanable_offsets import Cleanable, SegmentSpan, cleanable
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
from headwater_broker.log.producer_snapshot_format import encode_snapshot
from headwater_broker.log.segment_swap import put_in_place, swapped_in
from headwater_broker.log.unified_log import UnifiedLog

FAILURES_MAX = 3
"""After this many interrupted attempts in a row a log counts as one that cannot be compacted."""
DISK_PAUSE_S = 30.0
"""Pause after an attempt that the disk failed, as when it is full; it doubles with each failure."""
DISK_PAUSE_MAX_S = 900.0

CleanFunction = Callable[[CleanJob], Awaitable[CleanResult]]
"""Runs a job in another process. Raises CleanError or KafkaError when a retry cannot help,
CleanInterruptedError when it may, OSError when the disk fails."""

logger = logging.getLogger(__name__)


class CleanInterruptedError(HeadwaterError):
    """The log changed during the compaction, or the cleaner's process died."""


@dataclass(slots=True)
class CleanerMeter:
    """Counters of the cleaner for the metrics."""

    runs: int = 0
    failures: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_dropped: int = 0
    last_run_ms: int = 0
    last_took_s: float = 0.0
    longest_s: float = 0.0
    max_dirty_ratio: float = 0.0
    """Dirty ratio of the dirtiest log at the last check."""
    uncleanable_partitions: int = 0
    uncleanable_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """Settings that may change while the broker runs."""

    map_bytes_max: int = 128 << 20
    """Memory for the keys of all logs under compaction (log.cleaner.dedupe.buffer.size)."""
    threads: int = 1
    """Logs compacted at the same time (log.cleaner.threads)."""
    io_bytes_per_s: float = sys.float_info.max
    """Read and written bytes of one compaction (log.cleaner.io.max.bytes.per.second)."""


@dataclass(slots=True)
class _DiskBackoff:
    """The pause of a log whose compaction the disk failed."""

    pause_s: float
    until: float
    """By `clock.monotonic()`."""


@dataclass(slots=True)
class _Compaction:
    """A log under compaction, with its state at the beginning of it."""

    log: UnifiedLog
    truncations: int
    segments: dict[int, LogSegment] = field(default_factory=dict)


class LogCleaner:
    """Call `tick` every log.cleaner.backoff.ms, and `close` before the logs are closed."""

    def __init__(
        self,
        logs: LogManager,
        run_clean: CleanFunction,
        clock: Clock,
        settings: Callable[[], CleanerSettings] = CleanerSettings,
    ) -> None:
        self.meter = CleanerMeter()
        self._logs = logs
        self.run_clean = run_clean
        """Compacts one log, away from the loop."""
        self._clock = clock
        self._settings = settings
        self._tasks = OrderedSet[asyncio.Task[None]]()
        self._busy: dict[UnifiedLog, str] = {}
        """Logs under compaction with their folders. When such a log is deleted the process goes on
        in its folder: a new log there has the same file names, and waits."""
        self._failures: dict[UnifiedLog, int] = {}
        self._disk_backoff: dict[UnifiedLog, _DiskBackoff] = {}

    def tick(self) -> None:
        """Start a compaction, unless log.cleaner.threads of them run."""
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
        """Compact the dirtiest log, then the next one, until none is due."""
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

    async def settled(self) -> None:
        """Return when no compaction that `tick` started runs any more."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Stop the compactions under way; their results are not used."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- choice of the log

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
        """A future log copies it: no tombstone may go before the copy has it, as in Kafka."""
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
        """Roll an active segment whose oldest record exceeds max.compaction.lag.ms, even when
        nothing is appended any more: the active segment is never compacted."""
        first = log.active.first_timestamp
        if 0 <= first < now_ms - log.config.max_compaction_lag_ms:
            try:
                log.roll(now_ms)
            except KafkaError as e:
                logger.error("%s: not rolled: %s", log.path, e)

    # -- compaction of one log

    async def _clean(self, log: UnifiedLog, part: Cleanable) -> None:
        under = _Compaction(log, log.truncations, {s.base_offset: s for s in log.segments})
        started = self._clock.monotonic()
        try:
            result = await self.run_clean(self._job(log, part))
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
        """Swap the new segments in, one per turn of the loop; False when one of them was dropped
        because the log has changed."""
        is_whole = True
        for new in segments:
            if under.log.is_closed:
                return False  # its folder was renamed or is closed: its files go with it
            # An older segment that stays as it is may hold values that a tombstone deletes.
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
        logger.warning("%s: compaction interrupted, attempt %d: %s", log.path, count, reason)
        if count >= FAILURES_MAX:
            self._give_up(log, reason)

    def _disk_failed(self, log: UnifiedLog, error: OSError | KafkaError) -> None:
        if log.is_closed:
            return
        self.meter.failures += 1
        before = self._disk_backoff.get(log)
        pause_s = DISK_PAUSE_S if before is None else min(2 * before.pause_s, DISK_PAUSE_MAX_S)
        self._disk_backoff[log] = _DiskBackoff(pause_s, self._clock.monotonic() + pause_s)
        logger.warning("%s: not compacted, next attempt in %d s: %s", log.path, pause_s, error)

    def _give_up(self, log: UnifiedLog, reason: str) -> None:
        self._failures.pop(log, None)
        if log.is_closed:
            return
        self.meter.failures += 1
        log.uncleanable_reason = reason
        self._measure_uncleanable()
        logger.error("%s: will not be compacted any more: %s", log.path, reason)


def _is_compactable(log: UnifiedLog) -> bool:
    """A tiered log is never compacted here (Kafka allows no compaction with tiering either)."""
    config = log.config
    return config.is_compacted and not config.remote_storage and not log.uncleanable_reason


def _is_as_it_was(under: _Compaction, new: CleanedSegment) -> bool:
    """Whether the old segments are still in the log, adjacent and unchanged."""
    log = under.log
    if log.is_closed or log.truncations != under.truncations or new.base_offset not in log.bases:
        return False
    at = log.bases.index(new.base_offset)
    now = log.segments[at : at + len(new.replaces)]
    return [s.base_offset for s in now] == new.replaces and all(
        s is under.segments.get(s.base_offset) for s in now
    )


def _clear(files: Files, folder: str) -> None:
    """Remove the `.cleaned` files of a deleted log: a new log may have its folder."""
    try:
        for name in files.names(folder):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(f"{folder}/{name}")
    except OSError as e:  # the disk may have failed
        logger.warning("%s: .cleaned files of a compaction are left: %s", folder, e)


def replace(log: UnifiedLog, new: CleanedSegment, now_ms: int) -> None:
    """Replace old segments by the compacted one. Raises KAFKA_STORAGE_ERROR."""
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
