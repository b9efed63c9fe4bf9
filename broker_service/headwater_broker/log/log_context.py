"""Shared by all logs of a broker: files, clock, disk thread, error handlers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.ports.files import File, Files
from headwater_broker.log.flush_meter import FlushMeter
from headwater_broker.log.index_flusher import IndexFlusher

Offload = Callable[[Callable[[], None]], None]
"""Runs a job that may wait for the disk, off the loop (in tests: at once).

Jobs run one after the other in their order, so a flush makes everything before it durable.
"""


class RenamedFiles(NamedTuple):
    """Files renamed to `.deleted`, or a folder renamed to `-delete`, to remove after a delay."""

    paths: tuple[str, ...]
    open_files: tuple[File, ...]
    """Closed after the delay too: a reply that is being sent may still read them."""
    delay_ms: int


@dataclass(frozen=True, slots=True)
class LogContext:
    """Passed to every `UnifiedLog`."""

    files: Files
    clock: Clock
    entropy: Entropy
    offload: Offload
    delete_later: Callable[[RenamedFiles], None]
    failed: Callable[[str, OSError], None]
    """(log folder, error): the disk failed; the log manager takes the data folder offline."""
    failed_elsewhere: Callable[[tuple[str, OSError]], None]
    """The same from an offloaded job; the log manager acts on it at the next tick."""
    index_flusher: IndexFlusher
    flush_meter: FlushMeter
    truncated: Callable[[], None]
    """A log was truncated: checkpointed recovery points may be too high, and are written soon."""
