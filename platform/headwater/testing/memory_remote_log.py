"""Test double of the remote log, with faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from headwater.ports.remote_log import (
    RemoteLogError,
    RemoteSlice,
    RemoteTimestamp,
    TieredRange,
    TieredTopic,
)
from headwater.records.batch import iter_headers
from headwater.records.record import read_records


class MemoryRemoteLog:
    """A remote log that serves batches which a test puts in."""

    def __init__(self, folder: str, store: Callable[[str, bytes], None]) -> None:
        """`store` writes a file below `folder`, where the broker reads it."""
        self._folder = folder
        self._store = store
        self._batches: dict[tuple[UUID, int], bytes] = {}
        self._ranges: dict[tuple[UUID, int], TieredRange] = {}
        self.fault: str | None = None
        """When set, every call raises RemoteLogError with this text."""

    def put(
        self, topic_id: UUID, partition: int, start_offset: int, end_offset: int, batches: bytes
    ) -> None:
        """Set a partition's tiered batches, which cover [start_offset, end_offset)."""
        self._batches[topic_id, partition] = batches
        self._ranges[topic_id, partition] = TieredRange(start_offset, end_offset)
        self._store(self._path(topic_id, partition), batches)

    async def ranges(self, topic: TieredTopic) -> dict[int, TieredRange]:
        """See the port."""
        self._check(topic)
        return {p: held for (i, p), held in self._ranges.items() if i == topic.topic_id}

    async def read(
        self, topic: TieredTopic, partition: int, offset: int, max_bytes: int
    ) -> RemoteSlice:
        """See the port."""
        self._check(topic)
        held = self._ranges.get((topic.topic_id, partition))
        if held is None or not held.start_offset <= offset < held.end_offset:
            raise RemoteLogError(f"{topic.topic}-{partition} offset {offset} is not tiered: {held}")
        data = self._batches[topic.topic_id, partition]
        found = [(at, h) for at, h in iter_headers(data) if h.next_offset > offset]
        if not found:
            raise RemoteLogError(f"{topic.topic}-{partition} holds no batch at offset {offset}")
        position, size_bytes, next_offset = found[0][0], 0, offset
        for _, header in found:
            if size_bytes and size_bytes + header.size_bytes > max_bytes:
                break
            size_bytes += header.size_bytes
            next_offset = header.next_offset
        return RemoteSlice(self._path(topic.topic_id, partition), position, size_bytes, next_offset)

    async def find_timestamp(
        self, topic: TieredTopic, partition: int, timestamp_ms: int, start: int, end: int
    ) -> RemoteTimestamp | None:
        """See the port."""
        self._check(topic)
        data = memoryview(self._batches.get((topic.topic_id, partition), b""))
        for at, header in iter_headers(data):
            for record in read_records(data[at : at + header.size_bytes]):
                if record.timestamp >= timestamp_ms and start <= record.offset < end:
                    return RemoteTimestamp(record.offset, record.timestamp, header.leader_epoch)
        return None

    async def close(self) -> None:
        """See the port."""
        self._batches.clear()
        self._ranges.clear()

    def topics(self) -> Sequence[UUID]:
        """The topics with tiered batches."""
        return sorted({topic_id for topic_id, _ in self._ranges})

    def _path(self, topic_id: UUID, partition: int) -> str:
        return f"{self._folder}/{topic_id}-{partition}.log"

    def _check(self, topic: TieredTopic) -> None:
        if self.fault:
            raise RemoteLogError(f"{topic.table_uri}: {self.fault}")
