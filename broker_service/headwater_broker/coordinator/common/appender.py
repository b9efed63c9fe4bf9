"""The log of a coordinator: a port, and its implementation over the replica layer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.log.producer_state_manager import NO_EPOCH
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.replica.append_service import AppendService, check_led
from headwater_broker.replica.read_service import ReadService
from headwater_broker.replica.replica_manager import ReplicaManager

LOAD_BYTES = 128 * 1024
"""Read at once when a shard is loaded: some 1,000 offset commits, 3 ms of the loop."""

Leads = Callable[[str, int, int], Awaitable[bool]]
"""(topic, partition, leader epoch): whether this broker leads, as the metadata store says."""


class AppendState(NamedTuple):
    """The bounds that a coordinator must know before it decides to append."""

    log_end_offset: int
    batch_max_bytes: int
    """max.message.bytes of the topic."""


class LoneLog(Protocol):
    """A partition that this broker leads and whose only replica is here: what is appended is
    committed. `Partition` is one."""

    def append(
        self, view: memoryview, acks: int, now_ms: int, origin: AppendOrigin, /
    ) -> AppendResult:
        """Append with the checks of acks=all. Raises as `Appender.append`."""
        ...


class Appender(Protocol):
    """The partitions of one internal topic, as led by this broker in a given leader epoch."""

    def check_append(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> AppendState:
        """Raises what an append (of a transaction of `producer`) would be rejected with now:
        NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH and the like.
        """
        ...

    def append(self, partition: int, epoch: int, batches: memoryview) -> int:
        """Append as leader with the checks of acks=all; the first offset.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE and the
        like, KAFKA_STORAGE_ERROR when the outcome is unknown.
        """
        ...

    def lone_log(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> LoneLog | None:
        """The partition's log if an append (of a transaction of `producer`) to it commits at once;
        None: `check_append` may know why not."""
        ...

    def committed_end(self, partition: int, epoch: int) -> int:
        """The high watermark. Raises KafkaError(NOT_LEADER_OR_FOLLOWER)."""
        ...

    def coordinator_epoch(self, partition: int, producer_id: int) -> int:
        """The coordinator epoch of the producer's last marker; -1 if none is known."""
        ...

    async def leads(self, partition: int, epoch: int) -> bool:
        """Whether the metadata store confirms that this broker leads in this epoch."""
        ...

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        """Return when the high watermark has passed `offset`.

        Raises KafkaError: REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER when the epoch is over.
        """
        ...

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """Whole batches from `offset` (or the log start, if that is later) up to the log end, a
        part at a time; empty at the end. Raises KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        ...

    def delete_before(self, partition: int, epoch: int, offset: int) -> None:
        """Move the log start up to `offset`, at most to the high watermark.

        Raises KafkaError(NOT_LEADER_OR_FOLLOWER).
        """
        ...


class ReplicaAppender:
    """Implements `Appender` for one topic."""

    def __init__(
        self,
        topic: str,
        replicas: ReplicaManager,
        appends: AppendService,
        reads: ReadService,
        leads: Leads,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._appends = appends
        self._reads = reads
        self._leads = leads

    def check_append(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> AppendState:
        """See `Appender`."""
        hosted = self._replicas.lookup(self._topic, partition)
        check_led(hosted, epoch)
        hosted.check_append()
        if producer is not None:
            known = hosted.log.producers.entries.get(producer.producer_id)
            if known is not None and producer.producer_epoch < known.epoch:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"{self._topic}-{partition}: producer {producer.producer_id} writes with epoch "
                    f"{producer.producer_epoch}, but epoch {known.epoch} is known",
                )
        return AppendState(hosted.log.log_end_offset, hosted.log.config.batch_bytes_max)

    def append(self, partition: int, epoch: int, batches: memoryview) -> int:
        """See `Appender`."""
        hosted, origin = self._replicas.lookup(self._topic, partition), AppendOrigin.COORDINATOR
        return self._appends.append(hosted, batches, origin=origin, leader_epoch=epoch).base_offset

    def lone_log(
        self, partition: int, epoch: int, producer: Producer | None = None
    ) -> LoneLog | None:
        """See `Appender`."""
        hosted = self._replicas.partitions.get((self._topic, partition))
        if (
            hosted is None
            or not hosted.is_sole_replica
            or hosted.cannot_commit
            or hosted.leader_epoch != epoch
        ):
            return None
        if producer is not None:
            known = hosted.log.producers.entries.get(producer.producer_id)
            if known is not None and producer.producer_epoch < known.epoch:
                return None
        return hosted

    def committed_end(self, partition: int, epoch: int) -> int:
        """See `Appender`."""
        hosted = self._replicas.lookup(self._topic, partition)
        check_led(hosted, epoch)
        return hosted.high_watermark

    def coordinator_epoch(self, partition: int, producer_id: int) -> int:
        """See `Appender`."""
        hosted = self._replicas.partitions.get((self._topic, partition))
        known = None if hosted is None else hosted.log.producers.entries.get(producer_id)
        return NO_EPOCH if known is None else known.coordinator_epoch

    async def leads(self, partition: int, epoch: int) -> bool:
        """See `Appender`."""
        return await self._leads(self._topic, partition, epoch)

    async def committed(self, partition: int, epoch: int, offset: int, timeout_ms: int) -> None:
        """See `Appender`."""
        hosted = self._replicas.lookup(self._topic, partition)
        await self._appends.committed(hosted, offset, epoch, timeout_ms)

    async def read_from(self, partition: int, epoch: int, offset: int) -> bytes:
        """See `Appender`. The high watermark is no bound: replies wait until that has passed."""
        hosted = self._replicas.lookup(self._topic, partition)
        if not hosted.is_leader:  # also when its log directory failed: another broker loads it
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self._topic}-{partition} is led by this broker no more",
            )
        return self._reads.log_bytes(hosted, epoch, offset, LOAD_BYTES)

    def delete_before(self, partition: int, epoch: int, offset: int) -> None:
        """See `Appender`. Followers move theirs when they fetch."""
        hosted = self._replicas.lookup(self._topic, partition)
        check_led(hosted, epoch)
        hosted.log.delete_records_before(min(offset, hosted.high_watermark))
