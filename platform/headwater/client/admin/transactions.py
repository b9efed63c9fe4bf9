"""Admin calls about transactional ids and producers (KIP-664): their requests, on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater import __version__
from headwater.client.cluster import KEY_TYPE_TRANSACTION, Cluster
from headwater.client.connection import CLIENT_SOFTWARE_NAME
from headwater.client.errors import error_code, kafka_error
from headwater.client.transaction_values import (
    MarkerFailure,
    ProducerIdAndEpoch,
    TransactionDescription,
    TransactionListing,
)
from headwater.client.values import ProducerDescription, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.apis.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from headwater.wire.apis.k65_describe_transactions import DescribeTransactionsRequest
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater.wire.described_transactions import (
    DescribedTransaction,
    DescribedTransactionsResponse,
    MarkerError,
)

TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
    "PrepareEpochFence", "Dead",
)  # fmt: skip
"""Kafka's names. ListTransactions never shows the last one."""
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states with an open transaction."""
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939)."""
PARTITIONS_PER_REQUEST = 500
"""In DescribeProducers, as in Kafka's tool."""
DURATION_FILTER_VERSION = 1
"""The first ListTransactions version with a filter on the duration (KIP-994)."""
PATTERN_FILTER_VERSION = 2
"""The first ListTransactions version with a filter on the transactional id (KIP-1152)."""
TV1_END_TXN_VERSION = 4
"""The last EndTxn version that leaves the producer's epoch as it is (KIP-890)."""
TRANSACTION_VERSION = "transaction.version"
TV2 = 2
NONE = -1
"""No offset, no time, no epoch."""

Producers = dict[TopicPartition, list[ProducerDescription]]


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactional ids to list; empty fields match all."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    older_than_ms: int | None = None
    transactional_id_pattern: str | None = None

    @property
    def version(self) -> int:
        """The lowest ListTransactions version that has these filters."""
        if self.transactional_id_pattern is not None:
            return PATTERN_FILTER_VERSION
        return 0 if self.older_than_ms is None else DURATION_FILTER_VERSION

    def request(self) -> ListTransactionsRequest:
        """The request. Only an open transaction has an age."""
        aged = self.older_than_ms is not None and not self.states
        return ListTransactionsRequest(
            state_filters=OPEN_STATES[:-1] if aged else tuple(self.states),
            producer_id_filters=tuple(self.producer_ids),
            duration_filter=NONE if self.older_than_ms is None else self.older_than_ms,
            transactional_id_pattern=self.transactional_id_pattern,
        )


class TransactionCalls:
    """Each method is one admin call, with retries, to coordinators or partition leaders."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_transactions(self, wanted: TransactionFilter) -> list[TransactionListing]:
        """ListTransactions at every broker."""
        cluster, request = self._cluster, wanted.request()

        async def ask(node: int) -> list[TransactionListing]:
            async def attempt() -> list[TransactionListing]:
                connection = await cluster.connection(node)
                version = connection.version_for(ListTransactionsRequest)
                if version < wanted.version:
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, _lacks(wanted, node, version))
                reply = await cluster.call_on(
                    connection, request, ListTransactionsResponse, version=version
                )
                if reply.error_code:
                    raise kafka_error(reply.error_code, _refused(wanted, node, reply.error_code))
                return [
                    TransactionListing(t.transactional_id, t.producer_id, t.transaction_state, node)
                    for t in reply.transaction_states
                ]

            return await cluster.retrying("list transactions", attempt)

        await cluster.refresh(())
        answers = await asyncio.gather(*(ask(node) for node in cluster.cache.brokers))
        return sorted({row for rows in answers for row in rows})

    async def describe(self, ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """DescribeTransactions at each coordinator. Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND)
        for an id that no coordinator knows."""
        wanted = list(ids)
        found = await asyncio.gather(*(self._describe(name) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def describe_known(self, ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """DescribeTransactions, without the ids that no coordinator knows."""

        async def one(name: str) -> TransactionDescription | None:
            try:
                return await self._describe(name)
            except KafkaError as error:
                if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
                return None

        wanted = list(ids)
        found = await asyncio.gather(*(one(name) for name in wanted))
        pairs = zip(wanted, found, strict=True)
        return {name: described for name, described in pairs if described is not None}

    async def _describe(self, name: str) -> TransactionDescription:
        async def attempt() -> TransactionDescription:
            node = await self._cluster.coordinator(name, KEY_TYPE_TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=(name,))
            reply = await self._cluster.call(node, request, DescribedTransactionsResponse)
            return described(reply.transaction_states[0], node)

        return await self._cluster.retrying(f"describe transactional id {name}", attempt)

    async def describe_producers(self, partitions: Iterable[TopicPartition]) -> Producers:
        """DescribeProducers at the leaders, in batches. Raises the first error of a partition; a
        retriable one after retries."""
        found: Producers = {}
        wanted = list(dict.fromkeys(partitions))

        async def attempt() -> None:
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in wanted:
                if tp not in found:
                    by_leader.setdefault(await self._cluster.leader(*tp), []).append(tp)
            work = (self._ask_producers(node, rows, found) for node, rows in by_leader.items())
            await asyncio.gather(*work)

        topics = sorted({tp.topic for tp in wanted})
        what = "producers of " + ", ".join(f"{tp.topic}-{tp.partition}" for tp in wanted[:3])
        await self._cluster.retrying(what, attempt, topics=topics)
        return {tp: found[tp] for tp in wanted}

    async def _ask_producers(
        self, node: int, partitions: list[TopicPartition], found: Producers
    ) -> None:
        """Ask one leader; enter its answers in `found`, then raise the first error."""
        failed: KafkaError | None = None
        for at in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            indexes: dict[str, list[int]] = {}
            for topic, index in partitions[at : at + PARTITIONS_PER_REQUEST]:
                indexes.setdefault(topic, []).append(index)
            request = DescribeProducersRequest(
                topics=tuple(
                    TopicRequest(name=topic, partition_indexes=tuple(rows))
                    for topic, rows in indexes.items()
                )
            )
            reply = await self._cluster.call(node, request, DescribeProducersResponse)
            for topic_row in reply.topics:
                for row in topic_row.partitions:
                    tp = TopicPartition(topic_row.name, row.partition_index)
                    if row.error_code:
                        detail = row.error_message or f"producers of {tp.topic}-{tp.partition}"
                        failed = failed or kafka_error(row.error_code, detail)
                    else:
                        found[tp] = _producers(row)
        if failed is not None:
            raise failed

    async def abort(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch, coordinator_epoch: int
    ) -> None:
        """WriteTxnMarkers with an abort marker at the partition's leader."""
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=(WritableTxnMarkerTopic(name=tp.topic, partition_indexes=(tp.partition,)),),
            # A transaction that never met a marker has the epoch -1; the lowest real one is 0.
            coordinator_epoch=max(coordinator_epoch, 0),
        )

        async def attempt() -> None:
            node = await self._cluster.leader(*tp)
            request = WriteTxnMarkersRequest(markers=(marker,))
            reply = await self._cluster.call(node, request, WriteTxnMarkersResponse)
            code = reply.markers[0].topics[0].partitions[0].error_code
            if code:
                raise kafka_error(code, f"abort the transaction of {_of(producer)} in {_at(tp)}")

        await self._cluster.retrying(f"abort in {_at(tp)}", attempt, topics=(tp.topic,))

    async def fence_all(
        self, transactional_ids: list[str], timeout_ms: int
    ) -> dict[str, ProducerIdAndEpoch]:
        """InitProducerId for each transactional id."""
        work = (self._fence(name, timeout_ms) for name in transactional_ids)
        return dict(zip(transactional_ids, await asyncio.gather(*work), strict=True))

    async def _fence(self, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
        """InitProducerId at the coordinator: raises the epoch and aborts an open transaction.

        The coordinator answers CONCURRENT_TRANSACTIONS, which is retried, until that one has ended.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        what = f"fence the producer of transactional id {transactional_id}"

        async def attempt() -> ProducerIdAndEpoch:
            node = await self._cluster.coordinator(transactional_id, KEY_TYPE_TRANSACTION)
            reply = await self._cluster.call(node, request, InitProducerIdResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, what)
            return ProducerIdAndEpoch(reply.producer_id, reply.producer_epoch)

        return await self._cluster.retrying(what, attempt)

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool
    ) -> None:
        """EndTxn at the coordinator, in the version of the cluster's transaction.version.

        In version 2 it raises the epoch, so that a producer which still runs is fenced (KIP-890).
        """
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=commit,
        )
        verb = "commit" if commit else "abort"
        what = f"{verb} the transaction of {transactional_id} ({_of(producer)})"

        async def attempt() -> None:
            node = await self._cluster.coordinator(transactional_id, KEY_TYPE_TRANSACTION)
            connection = await self._cluster.connection(node)
            cap = None if await self._transaction_version(node) >= TV2 else TV1_END_TXN_VERSION
            version = connection.version_for(EndTxnRequest, cap)
            reply = await self._cluster.call_on(
                connection, request, EndTxnResponse, version=version
            )
            if reply.error_code:
                raise kafka_error(reply.error_code, what)

        await self._cluster.retrying(what, attempt)

    async def _transaction_version(self, node: int) -> int:
        """The finalized `transaction.version`; 0 without one."""
        request = ApiVersionsRequest(
            client_software_name=CLIENT_SOFTWARE_NAME, client_software_version=__version__
        )
        reply = await self._cluster.call(node, request, ApiVersionsResponse)
        levels = {f.name: f.max_version_level for f in reply.finalized_features}
        return levels.get(TRANSACTION_VERSION, 0)


def described(row: DescribedTransaction, node: int) -> TransactionDescription:
    """A description from the coordinator `node`. Raises KafkaError."""
    if row.error_code:
        raise kafka_error(row.error_code, f"transactional id {row.transactional_id!r}")
    return TransactionDescription(
        transactional_id=row.transactional_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        state=row.transaction_state,
        coordinator=node,
        timeout_ms=row.transaction_timeout_ms,
        start_ms=_known(row.transaction_start_time_ms),
        partitions=tuple(TopicPartition(t.topic, p) for t in row.topics for p in t.partitions),
        principal=row.principal or None,
        client_id=row.client_id or None,
        client_host=row.client_host or None,
        last_update_ms=_known(row.last_update_ms),
        marker_failures=tuple(_marker_failure(error) for error in row.marker_errors),
    )


def _marker_failure(row: MarkerError) -> MarkerFailure:
    return MarkerFailure(
        TopicPartition(row.topic, row.partition),
        error_code(row.error_code).name,
        row.error_message or "",
        _known(row.failed_ms),
        row.attempts,
    )


def _producers(row: PartitionResponse) -> list[ProducerDescription]:
    return [
        ProducerDescription(
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            _known(p.current_txn_start_offset),
        )
        for p in row.active_producers
    ]


def _known(value: int) -> int | None:
    return None if value == NONE else value


def _refused(wanted: TransactionFilter, node: int, code: int) -> str:
    """What an error of ListTransactions is about."""
    if code == ErrorCode.INVALID_REGULAR_EXPRESSION:
        pattern = wanted.transactional_id_pattern
        return f"{pattern!r} is no regular expression of the syntax RE2 (broker {node})"
    return f"transactions of broker {node}"


def _lacks(wanted: TransactionFilter, node: int, version: int) -> str:
    if wanted.version == PATTERN_FILTER_VERSION:
        return (
            f"broker {node} serves ListTransactions {version}, which has no filter on the "
            f"transactional id: that takes version {PATTERN_FILTER_VERSION} (Kafka 4.1)"
        )
    return (
        f"broker {node} serves ListTransactions {version}, which has no filter on the age: that "
        f"takes version {DURATION_FILTER_VERSION} (Kafka 3.8)"
    )


def _at(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def _of(producer: ProducerIdAndEpoch) -> str:
    return f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
