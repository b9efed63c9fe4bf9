"""Discarded segments of one log: their files are renamed to `.deleted`, and removed after a delay.

A reply that is being sent may still read them. Files of old segments are renamed off the loop,
those at the end of the log at once, as their names are used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

from headwater.ports.files import File
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_context import LogContext, RenamedFiles
from headwater_broker.log.log_dir import is_disk_fault
from headwater_broker.log.log_segment import DELETED_SUFFIX, LogSegment

Released = list[tuple[LogSegment, list[File]]]
"""Segments with the index files that are still to be closed."""


def release(segments: Sequence[LogSegment]) -> Released:
    """Take the open index files from segments that are to go. Raises OSError, and then nothing has
    happened to them."""
    return [(segment, segment.release()) for segment in segments]


class DeletingLog(Protocol):
    """The log as its deleted segments see it; read by jobs off the loop too."""

    path: str
    is_closed: bool
    config: LogConfig


class SegmentDeletion:
    """Of one log."""

    def __init__(
        self, context: LogContext, log: DeletingLog, folder_unsynced: Callable[[], None]
    ) -> None:
        """`folder_unsynced` is called when a rename may not be durable yet."""
        self._context = context
        self._log = log
        self._folder_unsynced = folder_unsynced
        self._discarded: dict[int, LogSegment] = {}
        """By base offset: discarded, and not renamed yet."""
        self._lock = Lock()
        """Held while a discarded segment is renamed, on the loop or off it."""

    def discard(self, released: Released) -> None:
        """Delete the oldest segments of the log, off the loop."""
        self._note(released)

        def job() -> None:
            try:
                self._delete(released)
            except OSError as e:
                if not self._log.is_closed:
                    self._context.failed_elsewhere((self._log.path, e))

        self._context.offload(job)

    def discard_now(self, released: Released) -> None:
        """Delete segments at the end of the log: their names are free on return. The last one goes
        first, so that a crash in between leaves no hole. Raises OSError."""
        self._note(released)
        self._delete(released[::-1])

    def free_name(self, base_offset: int) -> None:
        """A segment that `discard` was called for keeps its name until its job's turn: a new one of
        that name would open its file, and then lose it. Raises OSError."""
        segment = self._discarded.get(base_offset)
        if segment is not None:
            self._remove_later(self._rename_away(segment), [])

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The log goes: in here nothing is renamed, and afterwards nothing that was discarded.

        The folder's name may be another log's by the time that a job has its turn.
        """
        with self._lock:
            yield
            self._discarded.clear()

    def rename(self, source: str, target: str) -> None:
        """Rename a file of the log. Without a descriptor the name is changed and only the fsync of
        the folder is missing, which the next save of the leader epochs makes up for."""
        try:
            self._context.files.rename(source, target)
        except OSError as e:
            if is_disk_fault(target, e):
                raise
            self._folder_unsynced()

    def _note(self, released: Released) -> None:
        self._discarded.update((segment.base_offset, segment) for segment, _ in released)

    def _delete(self, released: Released) -> None:
        renamed: list[str] = []
        opened: list[File] = []
        for segment, index_files in released:
            renamed += self._rename_away(segment)
            opened += [segment.file, *index_files]
        self._remove_later(renamed, opened)

    def _remove_later(self, paths: list[str], open_files: list[File]) -> None:
        delay_ms = self._log.config.file_delete_delay_ms
        self._context.delete_later(RenamedFiles(tuple(paths), tuple(open_files), delay_ms))

    def _rename_away(self, segment: LogSegment) -> list[str]:
        """The `.deleted` paths of a discarded segment; none when another thread renamed it."""
        renamed = []
        with self._lock:
            if self._discarded.get(segment.base_offset) is not segment:
                return []
            for name in segment.names():
                path = f"{self._log.path}/{name}"
                try:
                    self.rename(path, path + DELETED_SUFFIX)
                except FileNotFoundError:
                    continue
                renamed.append(path + DELETED_SUFFIX)
            del self._discarded[segment.base_offset]
        return renamed
