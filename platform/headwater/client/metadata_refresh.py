"""When a producer fetches metadata, and which batches go to a new leader at once.

Java's producer does so in `Sender` and `ProducerMetadata`. A batch that its leader refused or did
not answer goes to the next leader without waiting for its back-off (KIP-951). Brokers learn of a
new leader some time after the former one has gone: until then metadata is fetched again and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.core.partition_queue import PartitionQueue
from headwater.client.record_accumulator import RecordAccumulator
from headwater.errors import ErrorCode, KafkaError

LEADER_GONE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Errors after which the partition has another leader sooner or later."""
BACKOFFS_MAX = 2
"""The pause between two requests doubles so often while a leader is awaited: others may have one in
the meantime."""


class MetadataRefresh:
    """The metadata of the topics that a producer sends to."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        *,
        auto_create: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        drain: Callable[[], None],
    ) -> None:
        """`auto_create`: a deleted topic that records wait for is created again, as by Java's
        producer. `spawn` runs work on the loop; `drain` sends the batches that are due."""
        self._cluster = cluster
        self._accumulator = accumulator
        self._lock = accumulator.lock
        self._auto_create = auto_create
        self._spawn = spawn
        self._drain = drain
        self._is_refreshing = False
        self._is_ended = False

    def end(self) -> None:
        """Begin no refresh from now on."""
        self._is_ended = True

    def request(self) -> None:
        """Fetch metadata soon, if that is not being done."""
        if not self._is_refreshing and not self._is_ended:
            self._is_refreshing = True
            self._spawn(self._refresh())

    def has_new_leader(self, queue: PartitionQueue) -> bool:
        """Whether a batch waits for its back-off while another leader is known."""
        if not queue.is_backing_off:
            return False
        leader = self._cluster.cache.leader(queue.topic, queue.partition)
        return leader != queue.leader_id and leader in self._cluster.cache.brokers

    async def run_periodically(self) -> None:
        """Fetch metadata at the age `metadata_max_age_ms`."""
        while True:
            await asyncio.sleep(self._cluster.options.metadata_max_age_ms / 1000)
            self.request()

    async def _refresh(self) -> None:
        attempt = 0
        try:
            is_known = False
            while not is_known:
                try:
                    await self._refresh_once()
                except KafkaError:  # no broker answered
                    await asyncio.sleep(self._cluster.backoff_s(attempt))
                else:
                    is_known = not self._awaits_leader()
                    self._drain()
                    await asyncio.sleep(self._cluster.backoff_s(min(attempt, BACKOFFS_MAX)))
                attempt += 1
        finally:
            self._is_refreshing = False
        self._drain()

    async def _refresh_once(self) -> None:
        await self._cluster.refresh({topic for topic, _ in self._accumulator.queues})
        if not self._auto_create:
            return
        with self._lock:
            queues = self._accumulator.queues.items()
            waiting = {topic for (topic, _), queue in queues if not queue.is_idle}
        missing = waiting - self._cluster.cache.topics.keys()
        if missing:
            await self._cluster.refresh(missing, auto_create=True)

    def _awaits_leader(self) -> bool:
        """Whether a batch waits for another leader than the one that is known and has failed."""
        with self._lock:
            return any(
                queue.is_backing_off
                and _is_of_leader(queue.last_error)
                and not self.has_new_leader(queue)
                for queue in self._accumulator.queues.values()
            )


def _is_of_leader(error: Exception | None) -> bool:
    return isinstance(error, OSError) or (
        isinstance(error, KafkaError) and error.code in LEADER_GONE
    )
