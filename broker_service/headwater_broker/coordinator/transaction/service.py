"""The transaction coordinators of this broker, as the API handlers use them. Their states and
timeouts are in `shard`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.primitives import INT16_MAX
from headwater.wire.sink_names import SINK_ID_PREFIX, coordinator_key
from headwater_broker.coordinator.common.service import CoordinatorParts, CoordinatorService
from headwater_broker.coordinator.common.shard import Command, Decision
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit
from headwater_broker.coordinator.transaction.marker_sender import MarkerSender, MarkerTransport
from headwater_broker.coordinator.transaction.outcomes import InitializedProducer
from headwater_broker.coordinator.transaction.producer_ids import ProducerIds
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.timeouts import checked_timeout_ms
from headwater_broker.coordinator.transaction.transaction import (
    NO_PRODUCER_ID,
    ClientIdentity,
    Partition,
    ProducerIdentity,
    Transaction,
)
from headwater_broker.coordinator.transaction.transaction_counts import TransactionCounts
from headwater_broker.coordinator.transaction.waiting_requests import Unrecorded

NO_COORDINATOR_EPOCH = -1
UTF8_BYTES_MAX = 4
"""Bytes of one character."""
STALE = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Errors that clients take as final. A coordinator that does not know of its successor yet would
give them wrongly, as no append fences it: they need the leadership confirmed."""
NO_CHANGE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)
"""After these errors a producer id handed to the command is unused."""


def check_transactional_id(transactional_id: str) -> None:
    """Raises INVALID_REQUEST; TRANSACTIONAL_ID_AUTHORIZATION_FAILED for the ids of sinks, whose
    participants JoinEpoch initializes and their epoch ends: librdkafka takes of all errors only an
    authorization error as final."""
    check_storable(transactional_id)
    if transactional_id.startswith(SINK_ID_PREFIX):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"transactional ids that begin with {SINK_ID_PREFIX!r} belong to the sinks of epoch "
            "transactions (`headwater sinks`)",
        )


def check_storable(transactional_id: str) -> None:
    """Raises INVALID_REQUEST for an id that no record can hold."""
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    if len(transactional_id) * UTF8_BYTES_MAX > INT16_MAX:
        _check_length(transactional_id)


def _check_length(transactional_id: str) -> None:
    """Raises INVALID_REQUEST for an id that no record can hold; requests can since KIP-482."""
    size = len(transactional_id.encode())
    if size > INT16_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"the transactional id has {size} bytes, at most {INT16_MAX} can be stored",
        )


class TransactionService:
    """Runs each request on the shard of its transactional id. All methods raise KafkaError:
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, and their own.
    """

    def __init__(
        self,
        parts: CoordinatorParts,
        config: TransactionConfig,
        producer_ids: ProducerIds,
        markers: MarkerTransport,
    ) -> None:
        self._config = config
        self._leads = parts.leads
        self._ids = producer_ids
        self.coordinator: CoordinatorService[TransactionShard] = CoordinatorService(
            TRANSACTION_TOPIC,
            lambda _partition: TransactionShard(config),
            parts.appender(TRANSACTION_TOPIC),
            parts.placement(TRANSACTION_TOPIC),
            parts.clock,
            partition_key=coordinator_key,
            on_committed=self._outcomes_committed,
        )
        self.markers = MarkerSender(self.coordinator.runtime, markers, parts.clock)

    def _outcomes_committed(
        self, partition: int, epoch: int, shard: TransactionShard, high_watermark: int
    ) -> None:
        due = shard.take_markers_due(high_watermark)
        if due:
            self.markers.send(partition, epoch, shard, due)

    @property
    def is_two_phase_enabled(self) -> bool:
        """transaction.two.phase.commit.enable: InitProducerId version 6 is served (KIP-939)."""
        return self._config.is_two_phase_enabled

    @property
    def max_timeout_ms(self) -> int:
        """transaction.max.timeout.ms."""
        return self._config.max_timeout_ms

    async def close(self) -> None:
        """Drop every shard, and stop sending markers."""
        await self.coordinator.close()
        await self.markers.close()

    async def _run(self, transactional_id: str, command: Command[TransactionShard]) -> Any:
        """Run a command. A final refusal, and a reply without a record, are given only while the
        metadata store confirms that this broker leads; else NOT_COORDINATOR, which is retried."""
        before = self.coordinator.leader_epoch(transactional_id)
        try:
            reply = await self.coordinator.run(transactional_id, command)
        except KafkaError as error:
            if error.code not in STALE:
                raise
            cause: KafkaError | ProducerIdentity = error
        else:
            if not isinstance(reply, Unrecorded):
                return reply
            cause = reply.identity
        partition = self.coordinator.partition_of(transactional_id)
        epoch = self.coordinator.leader_epoch(transactional_id)
        if (
            epoch is None
            or before not in (None, epoch)
            or not await self._leads(TRANSACTION_TOPIC, partition, epoch)
        ):
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR,
                f"{TRANSACTION_TOPIC}-{partition}: this broker cannot confirm that it leads",
            )
        if isinstance(cause, KafkaError):
            raise cause
        return cause

    # -- producers

    async def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        *,
        client: ClientIdentity,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitializedProducer:
        """Fence earlier producers of the id, and abort what they left open (KIP-98, KIP-360)."""
        check_transactional_id(transactional_id)
        timeout_ms = checked_timeout_ms(self._config, timeout_ms, two_phase, keep_prepared)

        init = ProducerInit(
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            fresh_producer_id=await self._ids.fresh(),
            expected=expected,
            client=client,
            keep_prepared=keep_prepared,
        )
        try:
            reply = await self._run(
                transactional_id, lambda s, now, t: s.init_producer_id(init, now, t)
            )
        except KafkaError as error:
            self._refused(error, init.fresh_producer_id)
            raise
        made = reply if isinstance(reply, InitializedProducer) else InitializedProducer(reply)
        if made.identity.producer_id != init.fresh_producer_id:
            self._ids.give_back(init.fresh_producer_id)
        return made

    def _refused(self, error: KafkaError, fresh_producer_id: int) -> None:
        """After an unknown outcome the id may be in use; else it goes back into the reserve."""
        if error.code in NO_CHANGE:
            self._ids.give_back(fresh_producer_id)

    # -- transactions

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Mapping[Partition, UUID],
        *,
        connection: int | None = None,
    ) -> None:
        """Enlist partitions, with their topics' ids; the first ones open the transaction.

        `connection`: the number of the client's session; None: a broker asks.
        """
        await self._run(
            transactional_id,
            lambda s, now, t: s.add_partitions(
                transactional_id, producer, partitions, now, t, connection
            ),
        )

    def add_at_once(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Mapping[Partition, UUID],
        connection: int | None = None,
    ) -> bool:
        """`add_partitions`, where that writes a record and need not wait. False: nothing is added;
        `add_partitions` tells why, or waits. The caller has checked the id."""
        reply = self.coordinator.at_once(
            transactional_id,
            lambda s, now, t: s.add_partitions(
                transactional_id, producer, partitions, now, t, connection
            ),
        )
        return reply is not None

    async def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
        coordinator_epoch: int = NO_COORDINATOR_EPOCH,
    ) -> Mapping[Partition, ErrorCode]:
        """NONE or TRANSACTION_ABORTABLE by partition: whether the open transaction holds it.

        `coordinator_epoch`: the latest one in the producer's markers on the partitions. When it is
        newer than this coordinator's, this one is deposed: it may confirm what its successor has
        ended. Raises NOT_COORDINATOR then.
        """
        index = self.coordinator.partition_of(transactional_id)
        runtime = self.coordinator.runtime
        own_epoch = runtime.leader_epoch(index)
        if own_epoch is not None and own_epoch < coordinator_epoch:
            runtime.fenced(index, coordinator_epoch - 1)
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR,
                f"{self.coordinator.topic}-{index} is led in epoch {coordinator_epoch} by another "
                f"broker, not in epoch {own_epoch} by this one",
            )
        if self._lone_holds(index, transactional_id, producer, partitions):
            return dict.fromkeys(partitions, ErrorCode.NONE)
        reply = await self._run(
            transactional_id,
            lambda s, now, t: s.verify_partitions(transactional_id, producer, partitions, now, t),
        )
        return cast(Mapping[Partition, ErrorCode], reply)

    def holds_at_once(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
        coordinator_epoch: int,
    ) -> bool:
        """`verify_partitions` where this broker has the only replica: True when the open
        transaction holds them all. False: `verify_partitions` tells why, or waits."""
        index = self.coordinator.partition_of(transactional_id)
        epoch = self.coordinator.runtime.leader_epoch(index)
        if epoch is None or epoch < coordinator_epoch:
            return False
        return self._lone_holds(index, transactional_id, producer, partitions)

    def _lone_holds(
        self,
        index: int,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
    ) -> bool:
        shard = self.coordinator.runtime.lone_shard(index)
        return shard is not None and shard.holds(transactional_id, producer, partitions)

    async def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        client_version: int,
        connection: int | None = None,
    ) -> ProducerIdentity:
        """Decide the outcome; it is durable when this returns. The identity to go on with.

        `connection`: the number of the client's session, if its transactions share an epoch: a
        request on an older connection than the one that began the transaction is a late one, of a
        transaction before. CONCURRENT_TRANSACTIONS refuses it.
        """
        check_transactional_id(transactional_id)

        fresh_producer_id = self._ids.ready()
        try:
            reply = await self._run(
                transactional_id,
                lambda s, now, t: s.end_transaction(
                    transactional_id,
                    producer,
                    commit=commit,
                    client_version=client_version,
                    fresh_producer_id=fresh_producer_id,
                    now=now,
                    token=t,
                    connection=connection,
                ),
            )
        except KafkaError as error:
            self._refused(error, fresh_producer_id)
            raise
        identity = cast(ProducerIdentity, reply)
        if identity.producer_id != fresh_producer_id:
            self._ids.give_back(fresh_producer_id)
        return identity

    def end_at_once(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        client_version: int,
        connection: int | None,
    ) -> ProducerIdentity | None:
        """`end_transaction`, where that writes a record and need not wait. None: nothing is
        decided; `end_transaction` tells why, or waits. The caller has checked the id."""
        reply = self.coordinator.at_once(
            transactional_id,
            lambda s, now, t: s.end_transaction(
                transactional_id,
                producer,
                commit=commit,
                client_version=client_version,
                fresh_producer_id=NO_PRODUCER_ID,
                now=now,
                token=t,
                connection=connection,
            ),
        )
        return cast(ProducerIdentity | None, reply)

    # -- administration

    async def described(self, transactional_id: str) -> Transaction:
        """Also raises TRANSACTIONAL_ID_NOT_FOUND."""
        reply = await self.coordinator.run(
            transactional_id, lambda s, now, t: Decision().reply(t, s.described(transactional_id))
        )
        return cast(Transaction, reply)

    async def listed(
        self,
        states: frozenset[TransactionState],
        producer_ids: frozenset[int],
        longer_than_ms: int = -1,
    ) -> list[Transaction]:
        """The transactional ids of every shard here that match; empty sets and -1 match all.

        Raises COORDINATOR_LOAD_IN_PROGRESS, as a part of the list would look like all of it.
        """
        if self.coordinator.lacks_shards:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "transactional ids are being loaded"
            )
        replies = await self.coordinator.run_on_all(
            lambda s, now, t: Decision().reply(
                t, list(s.listed(states, producer_ids, longer_than_ms, now.wall_ms))
            )
        )
        return [row for reply in replies for row in cast(list[Transaction], reply)]

    def counts(self) -> list[TransactionCounts]:
        """States and open transactions of each shard here, to be read only."""
        return [shard.counts for shard in self.coordinator.runtime.shards]
