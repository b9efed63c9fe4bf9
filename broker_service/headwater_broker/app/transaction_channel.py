"""Requests of transactions between brokers: AddPartitionsToTxn and WriteTxnMarkers.

Kafka has `AddPartitionsToTxnManager` and `TransactionMarkerChannelManager`. What goes to the same
broker in the same turn of the loop shares a request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.coordinator.transaction.transaction import Partition, ProducerIdentity
from headwater_broker.log.producer_state_manager import NO_EPOCH
from headwater_broker.replica.marker_writer import TransactionMarker

ADD_VERSION = 5
MARKERS_VERSION = 2

Codes = Mapping[Partition, ErrorCode]


@dataclass(slots=True)
class _Enlistment:
    """The questions of one producer to its coordinator in one turn of the loop."""

    partitions: dict[Partition, UUID] = field(default_factory=dict)
    coordinator_epoch: int = NO_EPOCH
    answers: list[asyncio.Future[Codes]] = field(default_factory=list)

    def succeed(self, result: k24.AddPartitionsToTxnResult) -> None:
        """Answer with the codes; a partition without a code was not taken."""
        codes = dict.fromkeys(self.partitions, ErrorCode.NETWORK_EXCEPTION)
        for topic in result.topic_results:
            for row in topic.results_by_partition:
                codes[topic.name, row.partition_index] = ErrorCode(row.partition_error_code)
        for answer in self.answers:
            if not answer.done():
                answer.set_result(codes)

    def fail(self, error: Exception) -> None:
        """Answer with an error."""
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error)


_Key = tuple[str, ProducerIdentity, bool]
"""(transactional id, producer, verify only)."""


class TransactionChannel:
    """To brokers other than this one. All methods run on the broker's loop.

    Markers have connections of their own, as in Kafka: a broker answers the requests of a
    connection one after the other, and a marker waits until it is replicated, up to 30 s where a
    follower is slow. No batch of another transaction waits behind it for its verification.
    """

    def __init__(
        self, broker_id: int, connections: BrokerConnections, for_markers: BrokerConnections
    ) -> None:
        self._broker_id = broker_id
        self._connections = connections
        self._for_markers = for_markers
        self._asked: dict[int, dict[_Key, _Enlistment]] = {}
        """By broker: what this turn of the loop asks it."""
        self._tasks = OrderedSet[asyncio.Task[None]]()

    # -- AddPartitionsToTxn

    async def add_partitions(
        self,
        broker_id: int,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Mapping[Partition, UUID],
        *,
        verify_only: bool,
        coordinator_epoch: int = NO_EPOCH,
    ) -> Codes:
        """Enlist or verify partitions at their coordinator; one code per partition.

        Raises KafkaError: NETWORK_EXCEPTION when the broker does not answer, or its own error.
        """
        asked = self._asked.get(broker_id)
        if asked is None:
            asked = self._asked[broker_id] = {}
            asyncio.get_running_loop().call_soon(self._flush, broker_id)
        row = asked.setdefault((transactional_id, producer, verify_only), _Enlistment())
        row.partitions.update(partitions)
        row.coordinator_epoch = max(row.coordinator_epoch, coordinator_epoch)
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        row.answers.append(answer)
        codes = await answer
        return {partition: codes[partition] for partition in partitions}

    def _flush(self, broker_id: int) -> None:
        task = asyncio.get_running_loop().create_task(
            self._ask(broker_id, self._asked.pop(broker_id))
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, broker_id: int, asked: dict[_Key, _Enlistment]) -> None:
        try:
            results = await self._request(broker_id, asked)
            for row, result in zip(asked.values(), results, strict=True):
                row.succeed(result)
        except (OSError, TimeoutError, HeadwaterError) as error:
            failure = error
            if not isinstance(error, KafkaError):
                failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id}: {error}")
            for row in asked.values():
                row.fail(failure)
        finally:  # this broker stops
            for row in asked.values():
                row.fail(KafkaError(ErrorCode.NETWORK_EXCEPTION, "this broker stops"))

    async def _request(
        self, broker_id: int, asked: dict[_Key, _Enlistment]
    ) -> Sequence[k24.AddPartitionsToTxnResult]:
        request = k24.AddPartitionsToTxnRequest(
            transactions=tuple(_transaction(key, row) for key, row in asked.items())
        )
        reply = await self._connections.call(
            broker_id, request, ADD_VERSION, k24.AddPartitionsToTxnResponse
        )
        if reply.error_code:
            code = ErrorCode(reply.error_code)
            raise KafkaError(code, f"broker {broker_id} refused AddPartitionsToTxn")
        if len(reply.results_by_transaction) != len(asked):
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} left transactions out"
            )
        return reply.results_by_transaction

    # -- WriteTxnMarkers

    async def write_markers(
        self, broker_id: int, markers: Sequence[TransactionMarker]
    ) -> list[Codes]:
        """One mapping per marker: its partitions with their codes. Raises OSError, TimeoutError,
        HeadwaterError."""
        request = k27.WriteTxnMarkersRequest(
            markers=tuple(map(_marker, markers)), broker_id=self._broker_id
        )
        reply = await self._for_markers.call(
            broker_id, request, MARKERS_VERSION, k27.WriteTxnMarkersResponse
        )
        if len(reply.markers) != len(markers):
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} left markers out")
        return [
            {
                (topic.name, row.partition_index): ErrorCode(row.error_code)
                for topic in result.topics
                for row in topic.partitions
            }
            for result in reply.markers
        ]

    async def close(self) -> None:
        """Close every connection; what waits for an answer fails."""
        await self._connections.close()
        await self._for_markers.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _transaction(key: _Key, row: _Enlistment) -> k24.AddPartitionsToTxnTransaction:
    transactional_id, producer, verify_only = key
    return k24.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        coordinator_epoch=row.coordinator_epoch,
        topics=tuple(
            k24.AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes), topic_id=topic_id)
            for (topic, topic_id), indexes in _by_topic(row.partitions).items()
        ),
    )


def _marker(marker: TransactionMarker) -> k27.WritableTxnMarker:
    return k27.WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=tuple(
            k27.WritableTxnMarkerTopic(
                name=topic, partition_indexes=tuple(indexes), topic_id=topic_id
            )
            for (topic, topic_id), indexes in _by_topic(marker.partitions).items()
        ),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _by_topic(partitions: Mapping[Partition, UUID]) -> dict[tuple[str, UUID], list[int]]:
    topics: dict[tuple[str, UUID], list[int]] = {}
    for (topic, index), topic_id in partitions.items():
        topics.setdefault((topic, topic_id), []).append(index)
    return topics
