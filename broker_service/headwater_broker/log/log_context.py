"""What every log of a broker shares: the ports, and whom to tell."""

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
"""Runs a job that may wait for the disk somewhere else than on the loop (tests: at once).

Jobs run one after the other, in order: a flush may say that everything before it is durable.
"""


class RenamedFiles(NamedTuple):
    """Files that were renamed to `.deleted` (or a folder to `-delete`): remove after the delay."""

    paths: tuple[str, ...]
    open_files: tuple[File, ...]
    """Closed only then: a reply that is being sent may still read them."""
    delay_ms: int


@dataclass(frozen=True, slots=True)
class LogContext:
    """Handed to every `UnifiedLog`."""

    files: Files
    clock: Clock
    entropy: Entropy
    offload: Offload
    delete_later: Callable[[RenamedFiles], None]
    failed: Callable[[str, OSError], None]
    """(log folder, error): a disk error was met; the manager takes the whole directory offline."""
    failed_elsewhere: Callable[[tuple[str, OSError]], None]
    """The same from an offloaded job, which may not touch the manager: told at the next tick."""
    index_flusher: IndexFlusher
    flush_meter: FlushMeter
    truncated: Callable[[], None]
    """A log was cut: the recovery points on disk may be too high, and are written soon."""
