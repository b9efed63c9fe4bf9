"""The controller's channel to one live broker: its pending state and the task that sends it.

Pending updates are merged, with the newest state per partition. So a slow broker gets few large
requests and delays no other broker. An update is sent again until the broker accepts it or its
registration is gone: brokers must treat a repeated request as no change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

from headwater.errors import ErrorCode, HeadwaterError
from headwater.ports.control import ControlCalls, ControlUnavailableError
from headwater.wire.control import (
    METADATA_NOT_TAKEN,
    BrokerConfigs,
    LeaderAndIsrReply,
    LeaderAndIsrRequest,
    LiveBroker,
    MetadataPart,
    PartitionState,
    StopReplicaPartition,
    StopReplicaReply,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataReply,
    UpdateMetadataRequest,
)
from headwater_broker.controller.events import (
    BrokerUpdate,
    Event,
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
)
from headwater_broker.controller.state import PartitionKey
from headwater_broker.controller.timings import CALL_TIMEOUT_MS
from headwater_broker.metadata.combined_update import combine, with_is_new

RETRY_DELAY_S = 0.05
RETRY_DELAY_MAX_S = 1.0

# Answers after which the same state is not sent again: the broker has newer state, or the error is
# an answer to the controller.
_FINAL = frozenset({ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH})
_STALE = frozenset({ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH})

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ControllerHeader:
    """The controller's identity, in every request that it sends."""

    controller_id: int
    controller_epoch: int
    cluster_id: str
    sequence: count[int] = field(default_factory=lambda: count(1), compare=False)
    """Numbers the requests of this controller epoch to all brokers, so that a broker that registers
    again cannot take an older request for a newer one."""


@dataclass(slots=True)
class PendingUpdate:
    """State that one broker does not have yet, merged."""

    full_replicas: bool = False
    full_metadata: bool = False
    has_metadata: bool = False
    replicas: dict[PartitionKey, PartitionState] = field(default_factory=dict)
    replica_topics: dict[UUID, TopicState] = field(default_factory=dict)
    metadata: dict[PartitionKey, PartitionState] = field(default_factory=dict)
    topics: dict[UUID, TopicState] = field(default_factory=dict)
    broker_configs: tuple[BrokerConfigs, ...] | None = None
    client_quotas: tuple[BrokerConfigs, ...] | None = None
    group_configs: tuple[BrokerConfigs, ...] | None = None
    stops: dict[PartitionKey, StopReplicaPartition] = field(default_factory=dict)

    def add(self, update: BrokerUpdate) -> None:
        """Merge an update. It replaces older state of the same partition or topic, but a replica
        stays new as long as its first state was not sent."""
        before = self.replicas
        if update.full:
            self.replicas = {}
            self.replica_topics.clear()
            self.metadata.clear()
            self.topics.clear()
            self.full_replicas = self.full_metadata = True
        self.has_metadata = self.has_metadata or update.has_metadata
        if update.broker_configs is not None:
            self.broker_configs = update.broker_configs
        if update.client_quotas is not None:
            self.client_quotas = update.client_quotas
        if update.group_configs is not None:
            self.group_configs = update.group_configs
        for topic in update.topics:
            self.topics.pop(topic.topic_id, None)
            self.topics[topic.topic_id] = topic
        for state in update.metadata:
            self.metadata[state.topic_id, state.partition] = state
        for topic in update.replica_topics:
            self.replica_topics[topic.topic_id] = topic
        for state in update.replicas:
            key = (state.topic_id, state.partition)
            known = before.get(key)
            is_new_still = known is not None and known.is_new and not state.is_new
            self.replicas[key] = with_is_new(state, True) if is_new_still else state
            self.stops.pop(key, None)
        for stop in update.stops:
            key = (stop.topic_id, stop.partition)
            self.replicas.pop(key, None)
            self.stops[key] = stop

    def follow(self, newer: PendingUpdate) -> None:
        """Merge the updates that were queued while this one was being sent."""
        has_metadata = self.has_metadata or newer.has_metadata
        self.add(
            BrokerUpdate(
                broker_id=-1,
                full=newer.full_replicas or newer.full_metadata,
                replicas=tuple(newer.replicas.values()),
                replica_topics=tuple(newer.replica_topics.values()),
                metadata=tuple(newer.metadata.values()),
                topics=tuple(newer.topics.values()),
                broker_configs=newer.broker_configs,
                client_quotas=newer.client_quotas,
                group_configs=newer.group_configs,
                stops=tuple(newer.stops.values()),
            )
        )
        self.has_metadata = has_metadata

    def metadata_delivered(self) -> None:
        """The broker has the metadata. Replica states may be left."""
        self.has_metadata = self.full_metadata = False
        self.metadata = {}
        self.topics = {}
        self.broker_configs = self.client_quotas = self.group_configs = None

    def is_empty(self) -> bool:
        """Whether nothing is left to send."""
        return not (self.full_replicas or self.has_metadata or self.replicas or self.stops)


class BrokerChannel:
    """Sends state to one broker, as registered under its broker epoch."""

    def __init__(
        self,
        header: ControllerHeader,
        broker: LiveBroker,
        calls: ControlCalls,
        live: Callable[[], tuple[LiveBroker, ...]],
        post: Callable[[Event], None],
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> None:
        self.broker = broker
        self._timeout_ms = timeout_ms
        self._header = header
        self._calls = calls
        self._live = live
        self._post = post
        self._pending = PendingUpdate()
        self._wake = asyncio.Event()
        self._pushed = 0
        self._delivered = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._takes_metadata_along = True
        name = f"controller-to-broker-{broker.broker_id}"
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    def push(self, update: BrokerUpdate) -> None:
        """Queue an update."""
        self._pending.add(update)
        self._pushed += 1
        self._wake.set()

    def delivered(self) -> asyncio.Future[None]:
        """A future that is done when the broker has every update pushed so far, or at `close`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._delivered >= self._pushed or self._task.done():
            waiter.set_result(None)
        else:
            self._waiters.append((self._pushed, waiter))
        return waiter

    async def close(self) -> None:
        """Stop sending."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._release(self._pushed)

    def _release(self, upto: int) -> None:
        self._delivered = upto
        for _, waiter in [w for w in self._waiters if w[0] <= upto]:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters = [w for w in self._waiters if w[0] > upto]

    async def _run(self) -> None:
        delay = RETRY_DELAY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            upto = self._pushed
            batch, self._pending = self._pending, PendingUpdate()
            try:
                await self._send(batch)
            except HeadwaterError as e:
                logger.warning("broker %d: sending its state failed: %s", self.broker.broker_id, e)
            except Exception:
                # A channel that ended here would leave its broker with old state for ever.
                logger.exception("broker %d: sending its state failed", self.broker.broker_id)
            if batch.is_empty():
                delay = RETRY_DELAY_S
                self._release(upto)
                continue
            batch.follow(self._pending)
            self._pending = batch
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_DELAY_MAX_S)
            self._wake.set()

    async def _send(self, batch: PendingUpdate) -> None:
        """Send replica states first, so that a leader knows its role before clients do."""
        if batch.replicas or batch.full_replicas:
            await self._send_replicas(batch)
        if batch.has_metadata:
            await self._send_metadata(batch)
        if batch.stops:
            await self._send_stops(batch)

    async def _send_replicas(self, batch: PendingUpdate) -> None:
        request = LeaderAndIsrRequest(
            controller_id=self._header.controller_id,
            controller_epoch=self._header.controller_epoch,
            broker_epoch=self.broker.broker_epoch,
            full=batch.full_replicas,
            partitions=tuple(batch.replicas.values()),
            topics=tuple(batch.replica_topics.values()),
            live_leaders=self._live(),
            metadata=self._along(batch),
            sequence=next(self._header.sequence),
        )
        address = self.broker.control_address
        reply = await self._calls.call(address, request, LeaderAndIsrReply, self._timeout_ms)
        self._check(reply.error_code)
        if request.metadata is not None:
            self._takes_metadata_along = reply.metadata_error_code != METADATA_NOT_TAKEN
            if self._takes_metadata_along:
                self._check(reply.metadata_error_code)
                batch.metadata_delivered()
        batch.full_replicas = False
        failed = {
            (r.topic_id, r.partition): r.error_code
            for r in reply.partitions
            if r.error_code not in _FINAL
        }
        batch.replicas = {k: s for k, s in batch.replicas.items() if k in failed}
        ids = {k[0] for k in failed}
        batch.replica_topics = {i: t for i, t in batch.replica_topics.items() if i in ids}
        answer = LeaderAndIsrResponseReceived(
            self.broker.broker_id, self.broker.broker_epoch, reply
        )
        self._post(answer)
        if failed:
            logger.warning("broker %d refused partitions: %s", self.broker.broker_id, failed)

    def _along(self, batch: PendingUpdate) -> MetadataPart | None:
        if not (batch.has_metadata and self._takes_metadata_along):
            return None
        return combine(
            batch.replicas,
            batch.metadata,
            cluster_id=self._header.cluster_id,
            full=batch.full_metadata,
            topics=tuple(batch.topics.values()),
            broker_configs=batch.broker_configs,
            client_quotas=batch.client_quotas,
            group_configs=batch.group_configs,
        )

    async def _send_metadata(self, batch: PendingUpdate) -> None:
        request = UpdateMetadataRequest(
            controller_id=self._header.controller_id,
            controller_epoch=self._header.controller_epoch,
            broker_epoch=self.broker.broker_epoch,
            cluster_id=self._header.cluster_id,
            full=batch.full_metadata,
            brokers=self._live(),
            topics=tuple(batch.topics.values()),
            partitions=tuple(batch.metadata.values()),
            broker_configs=batch.broker_configs,
            client_quotas=batch.client_quotas,
            group_configs=batch.group_configs,
            sequence=next(self._header.sequence),
        )
        address = self.broker.control_address
        reply = await self._calls.call(address, request, UpdateMetadataReply, self._timeout_ms)
        self._check(reply.error_code)
        batch.metadata_delivered()

    async def _send_stops(self, batch: PendingUpdate) -> None:
        asked = tuple(batch.stops.values())
        request = StopReplicaRequest(
            controller_id=self._header.controller_id,
            controller_epoch=self._header.controller_epoch,
            broker_epoch=self.broker.broker_epoch,
            partitions=asked,
            sequence=next(self._header.sequence),
        )
        address = self.broker.control_address
        reply = await self._calls.call(address, request, StopReplicaReply, self._timeout_ms)
        self._check(reply.error_code)
        # The state machine repeats what failed: it knows whether the deletion is still wanted.
        batch.stops = {}
        answer = StopReplicaResponseReceived(
            self.broker.broker_id, self.broker.broker_epoch, asked, reply
        )
        self._post(answer)

    def _check(self, error_code: int) -> None:
        """Raises ControlUnavailableError on a stale epoch. The controller closes this channel as
        soon as it learns of the newer registration or controller."""
        if error_code in _STALE:
            raise ControlUnavailableError(
                f"{ErrorCode(error_code).name} from broker {self.broker.broker_id} "
                f"(epoch {self.broker.broker_epoch})"
            )
