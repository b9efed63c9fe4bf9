"""A consumer of v2: a member of a group that one client drives by requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from headwater.aio import AsyncConsumer
from headwater.client.partition_names import Offsets
from headwater.client.values import ConsumerRecord, OffsetAndMetadata, TopicPartition
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_gateway.app.login import Login
from headwater_gateway.rest.formats import Format

RECORDS_MAX = 500
"""Of one poll; a reply may have more."""
BYTES_MAX = 16 * 1024 * 1024
"""Of keys and values in one reply."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """The settings that a client gave when it made the consumer."""

    group: str
    name: str
    form: Format
    request_timeout_ms: int = 1_000
    """How long a read waits for records, unless it says so itself."""
    fetch_min_bytes: int = 1
    """A read returns once it has so many bytes of keys and values."""


Decode = Callable[[ConsumerRecord], Awaitable[bytes]]
"""A record as the client gets it, in JSON. Raises GatewayError where it cannot be decoded."""


class ConsumerInstance:
    """One consumer. Its requests are done one after the other."""

    def __init__(
        self, login: Login, settings: InstanceSettings, consumer: AsyncConsumer, clock: Clock
    ) -> None:
        """`consumer`: an AsyncConsumer that has been started."""
        self.login = login
        self.settings = settings
        self.lock = asyncio.Lock()
        self.used_s = clock.monotonic()
        self.topics: tuple[str, ...] = ()
        self.pattern = ""
        self._consumer = consumer
        self._clock = clock

    @property
    def is_busy(self) -> bool:
        """True while a request is at work."""
        return self.lock.locked()

    async def subscribe(self, topics: Sequence[str], pattern: str) -> None:
        """Read topics, or all that match; replaces what was read before."""
        if pattern:
            await self._consumer.subscribe(pattern=pattern)
        else:
            await self._consumer.subscribe(list(topics))
        self.topics, self.pattern = tuple(topics), pattern

    async def unsubscribe(self) -> None:
        """Read nothing."""
        await self._consumer.unsubscribe()
        self.topics, self.pattern = (), ""

    async def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read exactly these partitions."""
        await self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        found: list[TopicPartition] = self._consumer.assignment()
        return found

    async def seek(self, offsets: Sequence[tuple[TopicPartition, int]]) -> None:
        """Go on there. Raises IllegalStateError for a partition that is not assigned."""
        for partition, offset in offsets:
            self._consumer.seek(partition, offset)

    async def seek_to_beginning(self, partitions: Sequence[TopicPartition]) -> None:
        """Go to the first offsets."""
        if partitions:
            self._consumer.seek_to_beginning(*partitions)

    async def seek_to_end(self, partitions: Sequence[TopicPartition]) -> None:
        """Go to the ends."""
        if partitions:
            self._consumer.seek_to_end(*partitions)

    async def commit(self, offsets: Offsets | None) -> None:
        """Commit offsets; None: what was read."""
        await self._consumer.commit(offsets)

    async def committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The group's offsets."""
        if not partitions:
            return {}
        found: dict[TopicPartition, OffsetAndMetadata]
        found = await self._consumer.committed(*partitions)
        return found

    async def read(self, decode: Decode, timeout_ms: int, bytes_max: int) -> list[bytes]:
        """The next records: those that are there once `fetch_min_bytes` have come or the time is
        over. What exceeds `bytes_max`, but for a first record, comes with the next read."""
        deadline = self._clock.monotonic() + timeout_ms / 1000
        out: list[bytes] = []
        size = 0
        while True:
            left_ms = max(deadline - self._clock.monotonic(), 0.0) * 1000
            try:
                rows = await self._consumer.getmany(timeout_ms=left_ms, max_records=RECORDS_MAX)
            except HeadwaterError:
                if out:  # its offsets are passed: the client gets it, and the error next time
                    return out
                raise
            for at, row in enumerate(rows):
                row_size = len(row.key or b"") + len(row.value or b"")
                if out and size + row_size > bytes_max:
                    self._give_back(rows[at:])
                    return out
                try:
                    out.append(await decode(row))
                except BaseException:
                    self._give_back(rows[at:])
                    if out:  # the next read begins with the bad one and fails
                        return out
                    raise
                size += row_size
            is_late = self._clock.monotonic() >= deadline
            if is_late or (rows and size >= self.settings.fetch_min_bytes) or size >= bytes_max:
                return out

    def _give_back(self, rows: Sequence[ConsumerRecord]) -> None:
        """Read these again next time."""
        first: dict[TopicPartition, int] = {}
        for row in rows:
            first.setdefault(TopicPartition(row.topic, row.partition), row.offset)
        assigned = set(self.assignment())
        for partition, offset in first.items():
            if partition in assigned:
                self._consumer.seek(partition, offset)

    async def close(self) -> None:
        """Leave the group."""
        await self._consumer.aclose()
