"""Tiered history as a port: the broker asks it for offsets below its local start.

Real: `headwater_tier.remote_log.DeltaRemoteLog` (a parent-side proxy of niced worker processes:
the broker itself never imports deltalake or pyarrow); double:
`headwater.testing.memory_remote_log`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from headwater.errors import HeadwaterError


class RemoteLogError(HeadwaterError):
    """The table cannot serve: missing files, a failed check, a foreign commit. Says which."""


@dataclass(frozen=True, slots=True)
class TieredTopic:
    """Where a topic's history lives. `table_uri` ends in `<topic>-<topicId>`."""

    topic: str
    topic_id: UUID
    table_uri: str
    storage_options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TieredRange:
    """What the table holds of one partition: offsets [start, end), read from a checked snapshot."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    """Rebuilt record batches in an ordinary local file, to be sent as they are.

    Bytes [position, position + size_bytes) of `path` are whole batches in offset order; the first
    covers the requested offset and `next_offset` follows the last.
    """

    path: str
    position: int
    size_bytes: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class RemoteTimestamp:
    """A tiered record found by time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class RemoteLog(Protocol):
    """All calls are awaited on the loop; the work happens elsewhere."""

    async def ranges(self, topic: TieredTopic) -> dict[int, TieredRange]:
        """The tiered range per partition, from a fresh checked snapshot. Raises RemoteLogError."""
        ...

    async def read(
        self, topic: TieredTopic, partition: int, offset: int, max_bytes: int
    ) -> RemoteSlice:
        """Batches from `offset` on, at least one. Raises RemoteLogError."""
        ...

    async def find_timestamp(
        self, topic: TieredTopic, partition: int, timestamp_ms: int, start: int, end: int
    ) -> RemoteTimestamp | None:
        """The first tiered record in offsets [start, end) with at least this timestamp.

        Raises RemoteLogError.
        """
        ...

    async def close(self) -> None:
        """Stop the workers and remove what they cached."""
        ...
