"""Flushes of one log and the recovery point: everything below it is on disk.

After an unclean stop the log is checked from the recovery point on. Most flushes run off the loop;
what they reach is applied on the loop (`apply_finished`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from headwater.ports.files import File
from headwater_broker.log.log_context import LogContext
from headwater_broker.log.log_segment import LogSegment


class FlushedLog(Protocol):
    """The log as its flusher sees it; read by jobs off the loop too."""

    path: str
    is_closed: bool
    truncations: int
    """It rises when the log is truncated: flushed offsets may not be there any more."""


class LogFlusher:
    """Of one log."""

    def __init__(self, context: LogContext, log: FlushedLog, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.unflushed_since_ms = -1
        """When the oldest append that flush.ms has not flushed was made; -1: there is none."""
        self._context = context
        self._log = log
        self._finished: deque[tuple[int, int]] = deque()
        """(truncations before, end offset) of flushes done off the loop."""

    def flush(self, segments: Iterable[LogSegment], end_offset: int) -> None:
        """Make these segments durable, the last ones of the log. Waits for the disk; raises
        OSError."""
        with self._context.flush_meter.timing():
            for segment in segments:
                segment.fsync()
        self.recovery_point = max(self.recovery_point, end_offset)
        self.unflushed_since_ms = -1

    def flush_if_due(self, active: LogSegment, end_offset: int, now_ms: int, flush_ms: int) -> None:
        """Flush the active segment off the loop when its oldest unflushed append is `flush_ms` old
        (flush.ms). Older segments were flushed when they were rolled."""
        since = self.unflushed_since_ms
        if self._log.is_closed or since < 0 or now_ms - since < flush_ms:
            return
        self.unflushed_since_ms = -1
        truncations = self._log.truncations

        def job() -> None:
            with self._context.flush_meter.timing():
                active.file.fsync()
            self._finished.append((truncations, end_offset))

        self._offload(job)

    def flush_sealed(
        self,
        segment: LogSegment,
        index_files: list[File],
        end_offset: int,
        snapshot: tuple[str, bytes] | None,
    ) -> None:
        """Flush a segment that was just rolled, off the loop, and close its index files.

        `snapshot`: path and bytes of the producer snapshot at its end. It is not kept when the log
        was truncated or deleted meanwhile: it would have batches that the log does not.
        """
        log, files = self._log, self._context.files
        truncations = log.truncations

        def job() -> None:
            if log.is_closed:
                return
            with self._context.flush_meter.timing():
                segment.file.fsync()
                for file in index_files:
                    file.fsync()
                    file.close()
            if snapshot is not None:
                path, data = snapshot
                if log.truncations == truncations:
                    files.write_atomic(path, data)
                if log.truncations != truncations:  # perhaps while it was written
                    files.remove(path)
            self._finished.append((truncations, end_offset))

        self._offload(job)

    def apply_finished(self) -> None:
        """Move the recovery point to what flushes off the loop have reached."""
        while self._finished:
            truncations, end = self._finished.popleft()
            if truncations == self._log.truncations:
                self.recovery_point = max(self.recovery_point, end)

    def _offload(self, job: Callable[[], None]) -> None:
        """Run `job` off the loop; an error of the disk takes the data folder offline, unless the
        log is closed by then."""

        def run() -> None:
            try:
                job()
            except OSError as e:
                if not self._log.is_closed:
                    self._context.failed_elsewhere((self._log.path, e))

        self._context.offload(run)
