"""A coordinator service: the shards of one internal topic, and which of them are on this broker.

Group, transaction and share coordinators each have one. It follows leadership (load and drop
shards), metadata (deleted topics, where keys live), and lets a request wait a moment for a shard
that is about to be ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any, Generic, Protocol

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ordered import OrderedSet
from headwater_broker.coordinator.common.appender import Appender, Leads, ReplicaAppender
from headwater_broker.coordinator.common.loader import Load, load_shard
from headwater_broker.coordinator.common.placement import MetadataPlacement, Placement, partition_of
from headwater_broker.coordinator.common.reply import Reply
from headwater_broker.coordinator.common.runtime import WRITE_TIMEOUT_MS, CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Command, S
from headwater_broker.metadata.cache import MetadataCache, MetadataDelta
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.ports import OffLoop, at_once
from headwater_broker.replica.read_service import ReadService
from headwater_broker.replica.replica_manager import ReplicaManager

ARRIVAL_WAIT_S = 1.0
"""How long a request may wait for a shard that is about to be ready."""

KEYS_KNOWN = 10_000
"""Keys whose partition is remembered."""

logger = logging.getLogger(__name__)


class CoordinatorType(IntEnum):
    """Key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class CoordinatorService(Generic[S]):
    """Routes each command to the shard of its key. Methods that run commands raise KafkaError:
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, and the command's own.
    """

    def __init__(
        self,
        topic: str,
        make_shard: Callable[[int], S],
        appender: Appender,
        placement: Placement,
        clock: Clock,
        *,
        partition_key: Callable[[str], str] = str,
        topics_deleted: Callable[[frozenset[str]], Command[S]] | None = None,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        on_committed: Callable[[int, int, S, int], None] | None = None,
        load: Load = load_shard,
    ) -> None:
        """`partition_key(key)`: the part of a key that decides its partition.
        `topics_deleted(names)`: a command for every shard when topics were deleted.
        `on_committed`, `load`: see `CoordinatorRuntime`.
        """
        self.topic = topic
        self._placement = placement
        self._clock = clock
        self._partition_of = lru_cache(KEYS_KNOWN)(
            lambda key, count: partition_of(partition_key(key), count)
        )
        """(key, number of partitions) -> the partition."""
        self._topics_deleted = topics_deleted
        self._arrivals: set[asyncio.Future[None]] = set()
        self._deletions = OrderedSet[asyncio.Task[None]]()
        self.runtime = CoordinatorRuntime(
            topic,
            make_shard,
            appender,
            clock,
            write_timeout_ms=write_timeout_ms,
            on_loaded=lambda _partition: self._wake_arrivals(),
            on_committed=on_committed,
            load=load,
        )

    def partition_of(self, key: str) -> int:
        """The partition of a key. Raises COORDINATOR_NOT_AVAILABLE before the topic exists."""
        count = self._placement.partition_count()
        if count <= 0:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} is not created yet"
            )
        return self._partition_of(key, count)

    def leader_epoch(self, key: str) -> int | None:
        """The leader epoch that the shard of `key` is hosted in; None: it is not here."""
        count = self._placement.partition_count()
        return None if count <= 0 else self.runtime.leader_epoch(self._partition_of(key, count))

    @property
    def lacks_shards(self) -> bool:
        """True while a shard loads, or the metadata names this broker for one that is not here yet:
        what the shards list is not all of it."""
        runtime = self.runtime
        return runtime.is_loading or any(
            self._placement.leads(partition) and not runtime.is_ready(partition)
            for partition in range(self._placement.partition_count())
        )

    async def run(self, key: str, command: Command[S]) -> Any:
        """Run a command on the shard of `key`; the reply to its token."""
        count = self._placement.partition_count()
        if count > 0:
            partition = self._partition_of(key, count)
            if self.runtime.is_ready(partition):
                reply = Reply()
                self.runtime.begin(partition, command, reply)
                return reply.take() if reply.is_given else await reply.wait()
        await self._arrived(key)
        return await self.runtime.run(self.partition_of(key), command)

    def at_once(self, key: str, command: Command[S]) -> object | None:
        """Run a command on the shard of `key`, if that need not wait: see
        `CoordinatorRuntime.at_once`."""
        count = self._placement.partition_count()
        if count <= 0:
            return None
        return self.runtime.at_once(self._partition_of(key, count), command)

    async def shard(self, key: str) -> S:
        """The loaded shard of `key`, as `CoordinatorRuntime.shard`."""
        if self._is_coming(key):
            await self._arrived(key)
        return self.runtime.shard(self.partition_of(key))

    async def run_on_all(self, command: Command[S]) -> list[Any]:
        """Run a command on every shard here; the replies. Raises the first error, once every shard
        has replied.
        """
        results = await asyncio.gather(
            *(self.runtime.run(partition, command) for partition in self.runtime.partitions),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    async def close(self) -> None:
        """Drop every shard."""
        for task in list(self._deletions):
            task.cancel()
        await asyncio.gather(*self._deletions, return_exceptions=True)
        await self.runtime.close()

    # -- what happens around it

    def leadership_changed(self, partition: Partition) -> None:
        """A listener of `ReplicaManager.leadership_listeners`."""
        if partition.topic != self.topic:
            return
        if partition.is_leader:
            self.runtime.on_leader(partition.partition, partition.leader_epoch)
        else:
            self.runtime.on_resign(partition.partition)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """A listener of `MetadataCache.on_change`."""
        self._wake_arrivals()
        if delta.deleted and self._topics_deleted is not None and self.runtime.partitions:
            work = self._forget_topics(delta.deleted, self._topics_deleted(delta.deleted))
            task = asyncio.get_running_loop().create_task(work)
            self._deletions.add(task)
            task.add_done_callback(self._deletions.discard)

    async def _forget_topics(self, topics: frozenset[str], command: Command[S]) -> None:
        try:
            await self.run_on_all(command)
        except KafkaError as error:
            logger.warning(
                "%s keeps records of the deleted topics %s: %s", self.topic, sorted(topics), error
            )

    # -- arrivals

    def _wake_arrivals(self) -> None:
        arrivals, self._arrivals = self._arrivals, set()
        for arrival in arrivals:
            if not arrival.done():
                arrival.set_result(None)

    async def _arrived(self, key: str) -> None:
        """Wait a moment for a shard that is about to be here.

        A client that has just found this coordinator may come before the controller's LeaderAndIsr,
        or while the shard loads; an error would cost it a back-off of up to seconds.
        """
        deadline = 0.0
        while self._is_coming(key):
            now = self._clock.monotonic()
            deadline = deadline or now + ARRIVAL_WAIT_S
            if now >= deadline:
                return
            arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._arrivals.add(arrival)
            await asyncio.wait((arrival,), timeout=deadline - now)
            self._arrivals.discard(arrival)

    def _is_coming(self, key: str) -> bool:
        if self._placement.partition_count() <= 0:
            return True
        partition = self.partition_of(key)
        if self.runtime.is_ready(partition):
            return False
        return self.runtime.is_hosted(partition) or self._placement.leads(partition)


class Coordinator(Protocol):
    """A coordinator service, as the rest of the broker sees it."""

    @property
    def topic(self) -> str:
        """The internal topic."""
        ...

    def partition_of(self, key: str) -> int:
        """See `CoordinatorService`."""
        ...

    def leadership_changed(self, partition: Partition) -> None:
        """See `CoordinatorService`."""
        ...

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """See `CoordinatorService`."""
        ...

    async def close(self) -> None:
        """See `CoordinatorService`."""
        ...


Coordinators = Mapping[CoordinatorType, Coordinator]
"""The coordinator services of a broker, by the key type that FindCoordinator names."""


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """The parts that the coordinator services of a broker are built from."""

    replicas: ReplicaManager
    appends: AppendService
    reads: ReadService
    view: MetadataCache
    clock: Clock
    entropy: Entropy
    leads: Leads
    off_loop: OffLoop = at_once
    """Runs work of some milliseconds beside the loop."""

    def appender(self, topic: str) -> Appender:
        """The log of an internal topic."""
        return ReplicaAppender(topic, self.replicas, self.appends, self.reads, self.leads)

    def placement(self, topic: str) -> Placement:
        """Where the partitions of an internal topic are."""
        return MetadataPlacement(topic, self.view, self.replicas.broker_id)
