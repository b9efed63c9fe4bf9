"""Return values of a log: append results, slices to send, timestamps with offsets."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from headwater.ports.files import File


class AppendOrigin(Enum):
    """The origin of an append as leader: a client, or a coordinator of this broker (KIP-98)."""

    CLIENT = "client"
    TRANSACTION = "a client, whose transaction is open on the partition or verified (KIP-890)"
    COORDINATOR = "coordinator"
    MARKERS = "markers that this broker has built, each checked and of another producer"


class AppendResult(NamedTuple):
    """The outcome of one append as leader."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 when the topic keeps the producer's timestamps (CreateTime)."""
    log_start_offset: int
    duplicate: bool
    """The batch was appended before; the offsets are those of the first append."""


class NoFile:
    """The file of an empty slice."""

    size_bytes = 0

    def append(self, view: memoryview | bytes) -> None:
        """Refused: an empty slice is for reading."""
        raise OSError("an empty slice has no file to append to")

    def read_at(self, position: int, size: int) -> bytes:
        """Always empty."""
        return b""

    def truncate(self, size: int) -> None:
        """Nothing to cut."""

    def fsync(self) -> None:
        """Nothing to make durable."""

    def fileno(self) -> int:
        """No descriptor."""
        return -1

    def close(self) -> None:
        """Nothing to close."""


class LogSlice(NamedTuple):
    """Whole batches in one segment file: bytes [position, position + size_bytes) of `file`."""

    file: File
    position: int
    size_bytes: int
    first_offset: int
    """Base offset of the first batch (<= the offset asked for); -1 when empty."""
    data: bytes | None = None
    """The bytes, when the lookup has read them already (small slices)."""


EMPTY = LogSlice(NoFile(), 0, 0, -1)


class TimestampAndOffset(NamedTuple):
    """A found record: its offset, timestamp, and the leader epoch of its batch."""

    offset: int
    timestamp: int
    leader_epoch: int
