"""The routes of the producer's topics: the partition queue that each record goes to.

A topic's route is loaded at its first record and follows the metadata: when the topic grows, or is
created again with another number of partitions, keyed records and custom partitioners see the new
number from the next refresh on, as with Java's producer.
"""

from __future__ import annotations

import asyncio
import itertools

from headwater.client.cluster import Cluster
from headwater.client.core.partition_queue import PartitionQueue
from headwater.client.core.partitioning import KeyPartitioner, StickyPartitioner
from headwater.client.errors import (
    ClosedError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    kafka_error,
)
from headwater.client.option_rules import as_integer
from headwater.client.partition_names import topic_name
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import RecordAccumulator
from headwater.errors import ErrorCode

ROUND_ROBIN = "round_robin"
STICKY = "sticky"
UNKNOWN_TOPIC_TIMEOUT_S = 5.0
"""How long `send` waits for a topic that is not in the metadata."""


class RouteNotLoadedError(LeaderNotAvailableError):
    """The route has to be fetched first: the topic is not known yet, or lacks the partition."""

    def __init__(self, detail: str, partition: int | None = None) -> None:
        super().__init__(detail)
        self.partition = partition
        """The partition that is wanted; None: any."""


class TopicRoute:
    """The queues of one topic's partitions."""

    __slots__ = ("count", "queues", "sticky", "sticky_queue", "turns")

    def __init__(self, queues: list[PartitionQueue], sticky: StickyPartitioner) -> None:
        self.queues = queues
        self.count = len(queues)
        self.sticky = sticky
        self.sticky_queue = queues[0]
        self.turns = itertools.cycle(queues)
        """Of the round robin partitioner; threads may share it."""


class TopicRoutes:
    """The routes of every topic that the producer has sent to."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        accumulator: RecordAccumulator,
    ) -> None:
        self.by_topic: dict[str, TopicRoute] = {}
        """Read without a lock by the threads that send."""
        self._cluster = cluster
        self._options = options
        self._accumulator = accumulator
        self._by_key = KeyPartitioner()

    def known(self, topic: str) -> TopicRoute | None:
        """The route of a topic if it was loaded. Raises OptionError, UsageError, ClosedError."""
        known = self.by_topic.get(topic) if isinstance(topic, str) else None
        if known is not None:
            return known
        if self._accumulator.is_closed:
            raise ClosedError("the producer is closed")
        topic_name(topic)
        return None

    async def fetch(self, topic: str, *, auto_create: bool) -> TopicRoute:
        """The route of a topic by the cluster's metadata; on the loop.

        Raises UnknownTopicOrPartitionError.
        """
        limit_s = min(self._options.max_block_ms / 1000, UNKNOWN_TOPIC_TIMEOUT_S)
        return self._make(topic, await self._partition_count(topic, limit_s, auto_create))

    async def _partition_count(self, topic: str, limit_s: float, auto_create: bool) -> int:
        """Repeat until the topic has partitions. Raises the cluster's error when time is up."""
        cluster = self._cluster
        deadline = cluster.clock.monotonic() + limit_s
        attempt = 0
        while True:
            await cluster.refresh((topic,), auto_create=auto_create)
            known = cluster.cache.topics.get(topic)
            if known is not None and known.partitions:
                return len(known.partitions)
            code = cluster.cache.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if not code.retriable or cluster.clock.monotonic() > deadline:
                raise kafka_error(code, f"topic {topic}")
            await asyncio.sleep(cluster.backoff_s(attempt))
            attempt += 1

    def _make(self, topic: str, count: int) -> TopicRoute:
        queues = self._accumulator.add_queues(topic, count)
        route = TopicRoute(queues, StickyPartitioner(self._options.batch_bytes_max, self._pick))
        self.switch_sticky(topic, route)
        self.by_topic[topic] = route
        return route

    def _pick(self, count: int) -> int:
        return min(count - 1, int(self._cluster.entropy.uniform(0, count)))

    def on_metadata(self) -> None:
        """Apply changed numbers of partitions. Called on the loop after each metadata response."""
        topics = self._cluster.cache.topics
        for topic, route in list(self.by_topic.items()):
            known = topics.get(topic)
            if known is not None and known.partitions and len(known.partitions) != route.count:
                self._make(topic, len(known.partitions))

    def switch_sticky(self, topic: str, route: TopicRoute) -> None:
        """Choose another partition for the keyless records of the topic."""
        known = self._cluster.cache.topics.get(topic)
        rows = () if known is None else known.partitions[: route.count]
        with_leader = [p.partition for p in rows if p.leader >= 0]
        route.sticky_queue = route.queues[route.sticky.switch(with_leader, route.count)]

    def queue_for(
        self, topic: str, route: TopicRoute, key: bytes | None, partition: int | None
    ) -> PartitionQueue:
        """The queue of a partition, else of the partitioner's choice, else by the key's hash.

        Raises RouteNotLoadedError for a partition beyond the route's; OptionError for a partition
        that is no integer.
        """
        chosen = self._options.partitioner
        if partition is None and chosen is not None:
            if chosen == ROUND_ROBIN:
                return next(route.turns)
            if callable(chosen):
                partition = chosen(key, route.count)
        if partition is None:
            assert key is not None
            return route.queues[self._by_key.partition(key, route.count)]
        if type(partition) is not int:
            partition = as_integer("partition", partition)
        if not 0 <= partition < route.count:
            # The topic may have grown.
            raise RouteNotLoadedError(
                f"{topic}-{partition}: the topic has partitions 0 to {route.count - 1}", partition
            )
        return route.queues[partition]


def check_partition(topic: str, route: TopicRoute, partition: int | None) -> None:
    """Raises UnknownTopicOrPartitionError for a partition that a fresh route lacks."""
    if partition is not None and not 0 <= partition < route.count:
        raise UnknownTopicOrPartitionError(
            f"{topic}-{partition}: the topic has partitions 0 to {route.count - 1}"
        )
