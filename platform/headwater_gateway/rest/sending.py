"""Records on their way to a topic, by the user's own producer."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import Headers, RecordMetadata
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.app.parts import Clients
from headwater_gateway.rest.kafka_errors import (
    PARTITION_NOT_FOUND,
    TOPIC_NOT_FOUND,
    as_reply,
)
from headwater_gateway.rest.turns import in_turns

KNOWN_S = 30.0
KNOWN_TOPICS_MAX = 10_000


class OutRecord(NamedTuple):
    """A record to be sent. `timestamp` in ms; None: now."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Headers = []  # noqa: RUF012 - nobody appends to it
    timestamp: int | None = None


class Sender:
    """Sends records. It asks first whether a topic exists: a producer would wait for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: WeakKeyDictionary[Clients, dict[str, tuple[float, int]]] = WeakKeyDictionary()

    async def partitions(self, clients: Clients, topic: str, wanted: int = 0) -> int:
        """The number of partitions of a topic, as it was up to KNOWN_S ago if that is `wanted` or
        more. Raises GatewayError (404, 40401), KafkaError."""
        known = self._known.setdefault(clients, {})
        now = self._clock.monotonic()
        since, count = known.get(topic, (now - KNOWN_S, 0))
        if now - since < KNOWN_S and wanted <= count:
            return count
        try:
            found = await clients.admin.describe_topics([topic], patient=False)
        except UnknownTopicOrPartitionError as error:
            raise topic_not_found(topic) from error
        if len(known) >= KNOWN_TOPICS_MAX:
            known.clear()
        known[topic] = now, len(found[topic].partitions)
        return known[topic][1]

    async def check_partition(self, clients: Clients, topic: str, partition: int | None) -> None:
        """Raises GatewayError (404, 40402) for a partition that the topic has not.

        The brokers are asked before that answer: the partition may have been added just now.
        """
        wanted = 0 if partition is None else partition + 1
        count = await self.partitions(clients, topic, wanted)
        if partition is not None and partition >= count:
            raise partition_not_found(topic, partition)

    async def send(
        self, clients: Clients, topic: str, record: OutRecord
    ) -> Awaitable[RecordMetadata]:
        """Hand a record to the producer; waits for room in its buffer. The result waits for the
        brokers. Raises GatewayError, KafkaError."""
        await self.check_partition(clients, topic, record.partition)
        producer = await clients.producer()
        delivery: Awaitable[RecordMetadata] = await producer.send(
            topic,
            record.value,
            key=record.key,
            headers=record.headers,
            timestamp=record.timestamp,
            partition=record.partition,
        )
        return delivery

    async def send_all(
        self, clients: Clients, topic: str, records: Iterable[OutRecord]
    ) -> list[RecordMetadata | GatewayError]:
        """Send records in order; where each one was written, or why not."""
        waiting: list[Awaitable[RecordMetadata] | GatewayError] = []
        async for record in in_turns(records):
            try:
                waiting.append(await self.send(clients, topic, record))
            except HeadwaterError as error:
                waiting.append(as_reply(error))
        return [await outcome(row) async for row in in_turns(waiting)]


async def outcome(
    delivery: Awaitable[RecordMetadata] | GatewayError,
) -> RecordMetadata | GatewayError:
    """What became of a record."""
    if isinstance(delivery, GatewayError):
        return delivery
    try:
        return await delivery
    except HeadwaterError as error:
        return as_reply(error)


def topic_not_found(topic: str) -> GatewayError:
    """There is no such topic."""
    return GatewayError(404, TOPIC_NOT_FOUND, f"Topic not found: {topic[:249]}")


def partition_not_found(topic: str, partition: int) -> GatewayError:
    """The topic has fewer partitions."""
    return GatewayError(404, PARTITION_NOT_FOUND, f"Partition not found: {topic}-{partition}")
