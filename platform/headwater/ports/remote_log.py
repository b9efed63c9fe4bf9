"""The remote log as a port: records below a partition's local log start offset (KIP-405).

Real: `headwater_tier.remote_log.DeltaRemoteLog`, a proxy of niced worker processes, so that the
broker itself never imports deltalake or pyarrow; double: `headwater.testing.memory_remote_log`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from headwater.errors import HeadwaterError


class RemoteLogError(HeadwaterError):
    """The table cannot be read: missing files, a failed check, a commit of another writer."""


@dataclass(frozen=True, slots=True)
class TieredTopic:
    """A tiered topic and its Delta table. `table_uri` ends in `<topic>-<topicId>`."""

    topic: str
    topic_id: UUID
    table_uri: str
    storage_options: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class TieredRange:
    """The offsets [start, end) of one partition in the table, from a checked snapshot."""

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class RemoteSlice:
    """Record batches rebuilt from the table, in a local file, ready to send.

    Bytes [position, position + size_bytes) of `path` are whole batches in offset order; the first
    covers the requested offset and `next_offset` follows the last.
    """

    path: str
    position: int
    size_bytes: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class RemoteTimestamp:
    """A tiered record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class RemoteLog(Protocol):
    """The remote log. Calls are awaited on the broker's loop; other processes do the work."""

    async def ranges(self, topic: TieredTopic) -> dict[int, TieredRange]:
        """The tiered range per partition, from the table's latest snapshot. Raises
        RemoteLogError."""
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
        """Stop the workers and remove their cache."""
        ...
