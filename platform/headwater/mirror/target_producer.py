"""The transactions of one bucket in the target: identity, raw batches, commit.

A transaction is repeated as a whole, never in part: after an error the bucket begins again with
`init` and the stored positions. So many batches may be in flight, and none is sent twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.coordinator_calls import CoordinatorCalls, transaction_version
from headwater.client.core.transaction_states import Request, TransactionState
from headwater.client.errors import kafka_error
from headwater.client.produce_requests import (
    NAMES_PRODUCE_VERSION,
    V1_TRANSACTION_PRODUCE_VERSION,
    responses_by_partition,
)
from headwater.client.transaction_requests import (
    V1_ADD_PARTITIONS_VERSION,
    add_partitions_error,
    add_partitions_request,
)
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode
from headwater.mirror.core.batches import SEQUENCE_MODULUS, Piece
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.primitives import ZERO_UUID

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
"""Another owner of the bucket, or a promotion, has begun."""


class Written(NamedTuple):
    """A batch that the target has acknowledged."""

    tp: TopicPartition
    piece: Piece
    base_offset: int


class _Flight(NamedTuple):
    """A Produce request without a response yet."""

    future: asyncio.Future[memoryview]
    connection: Connection
    size_bytes: int
    read: Callable[[memoryview], list[Written]]


class TargetProducer:
    """A transactional producer of whole batches. It neither batches nor retries."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, lane: str) -> None:
        """`lane` names its own connection to each broker."""
        self.calls = CoordinatorCalls(cluster)
        self._cluster = cluster
        self._state = TransactionState(transactional_id, timeout_ms)
        self._lane = lane
        self._sequences: dict[TopicPartition, int] = {}
        self._flying: deque[_Flight] = deque()
        self.bytes_in_flight = 0
        """Bytes that the target has not acknowledged."""
        self._timeout_s = cluster.options.request_timeout_ms / 1000

    async def init(self) -> None:
        """InitProducerId: fence older owners of the bucket, end what they left open. Raises
        KafkaError."""
        self.drop()
        state = self._state

        async def attempt(connection: Connection) -> None:
            request = InitProducerIdRequest(
                transactional_id=state.transactional_id, transaction_timeout_ms=state.timeout_ms
            )
            reply = await self._cluster.call_on(connection, request, InitProducerIdResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, f"InitProducerId of {state.transactional_id}")
            state.identify(reply.producer_id, reply.producer_epoch)
            state.version = transaction_version(connection)

        await self.calls.to_transaction(Request.INIT, state.transactional_id, attempt)
        self._sequences.clear()
        state.partitions.clear()

    def drop(self) -> None:
        """Give up what is in flight: its connections are closed, so that nothing of it arrives
        behind the next `init` unnoticed. The next `init` ends the open transaction."""
        for flight in self._flying:
            flight.future.cancel()
            flight.connection.fail("the mirror's transaction was given up")
        self._flying.clear()
        self.bytes_in_flight = 0

    async def add_partitions(self, places: set[TopicPartition]) -> None:
        """Make partitions part of the transaction; in version 2 the leaders do that (KIP-890)."""
        state = self._state
        fresh = {(tp.topic, tp.partition) for tp in places} - state.partitions
        if state.is_v2 or not fresh:
            return

        async def attempt(connection: Connection) -> None:
            version = connection.version_for(AddPartitionsToTxnRequest, V1_ADD_PARTITIONS_VERSION)
            reply = await self._cluster.call_on(
                connection,
                add_partitions_request(state, fresh),
                AddPartitionsToTxnResponse,
                version=version,
            )
            error = add_partitions_error(reply)
            if error is not None:
                raise error

        await self.calls.to_transaction(Request.ADD_PARTITIONS, state.transactional_id, attempt)
        state.partitions |= fresh

    async def send(self, node: int, pieces: dict[TopicPartition, Piece]) -> None:
        """Send one batch to each of these partitions, all led by `node`; one call at a time, so
        that the batches of a partition arrive in order. Raises KafkaError, OSError."""
        connection = await self._cluster.connection(node, self._lane)
        while (throttled_s := connection.throttled_s) > 0:
            await asyncio.sleep(throttled_s)
        version, names = self._version(connection, pieces)
        correlation_id = connection.next_correlation_id()
        request = self._request(pieces, {name: topic_id for topic_id, name in names.items()})
        frame = encode_request(request, version, correlation_id, connection.client_id)
        future = connection.post(frame)

        def read(raw: memoryview) -> list[Written]:
            reply = decode_response(ProduceResponse, version, raw, correlation_id)
            connection.throttle(reply)
            return _written(pieces, responses_by_partition(reply, names))

        self._flying.append(_Flight(future, connection, len(frame), read))
        self.bytes_in_flight += len(frame)

    def _request(self, pieces: dict[TopicPartition, Piece], ids: dict[str, UUID]) -> ProduceRequest:
        state = self._state
        by_topic: dict[str, list[PartitionProduceData]] = {}
        for tp, piece in pieces.items():
            sequence = self._sequences.get(tp, 0)
            self._sequences[tp] = (sequence + piece.records) % SEQUENCE_MODULUS
            batch = piece.stamped(state.producer_id, state.producer_epoch, sequence)
            row = PartitionProduceData(index=tp.partition, records=memoryview(batch))
            by_topic.setdefault(tp.topic, []).append(row)
        return ProduceRequest(
            transactional_id=state.transactional_id,
            acks=-1,
            timeout_ms=self._cluster.options.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(
                    name=name, topic_id=ids.get(name, ZERO_UUID), partition_data=tuple(rows)
                )
                for name, rows in by_topic.items()
            ),
        )

    def _version(
        self, connection: Connection, pieces: dict[TopicPartition, Piece]
    ) -> tuple[int, dict[UUID, str]]:
        """The Produce version, and the names of topic ids where it has ids."""
        cap = None if self._state.is_v2 else V1_TRANSACTION_PRODUCE_VERSION
        version = connection.version_for(ProduceRequest, cap)
        known = self._cluster.cache.topics
        topics = {tp.topic for tp in pieces}
        names = {known[name].topic_id: name for name in topics if name in known}
        if ZERO_UUID in names or len(names) < len(topics):
            return min(version, NAMES_PRODUCE_VERSION), {}
        return version, names

    async def wait_for_room(self, bytes_max: int) -> list[Written]:
        """Wait until at most `bytes_max` are in flight; what was acknowledged since the last call.

        Raises ProduceError, KafkaError, OSError.
        """
        written: list[Written] = []
        flying = self._flying
        while flying and (flying[0].future.done() or self.bytes_in_flight > bytes_max):
            flight = flying[0]
            try:
                async with asyncio.timeout(self._timeout_s):
                    raw = await flight.future
            except TimeoutError:
                flight.connection.fail(f"no response to Produce within {self._timeout_s:g} s")
                raise
            flying.popleft()
            self.bytes_in_flight -= flight.size_bytes
            written += flight.read(raw)
        return written

    async def commit(self) -> None:
        """EndTxn. Raises KafkaError; PRODUCER_FENCED or INVALID_PRODUCER_EPOCH when another owns
        the bucket."""
        state = self._state
        identity = await self.calls.end(
            state.transactional_id,
            (state.producer_id, state.producer_epoch),
            state.version,
            commit=True,
        )
        if identity != (state.producer_id, state.producer_epoch):
            state.identify(*identity)
            self._sequences.clear()
        state.partitions.clear()


def _written(
    pieces: dict[TopicPartition, Piece],
    answers: dict[tuple[str, int], PartitionProduceResponse],
) -> list[Written]:
    """What a response acknowledges. Raises ProduceError, ConnectionError."""
    written = []
    for tp, piece in pieces.items():
        answer = answers.get((tp.topic, tp.partition))
        if answer is None:
            raise ConnectionError(f"the response to Produce lacks {tp.topic}-{tp.partition}")
        if answer.error_code:
            detail = answer.error_message or "refused"
            raise ProduceError(tp, kafka_error(answer.error_code, detail), piece.size_bytes)
        written.append(Written(tp, piece, answer.base_offset))
    return written


class ProduceError(Exception):
    """The target refused a batch."""

    def __init__(self, tp: TopicPartition, cause: Exception, size_bytes: int) -> None:
        super().__init__(f"{tp.topic}-{tp.partition}: {cause}")
        self.tp = tp
        self.cause = cause
        self.size_bytes = size_bytes

    @property
    def code(self) -> ErrorCode:
        """The error code."""
        return getattr(self.cause, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
