"""Partitions of a producer's open transaction that a coordinator will still end.

An operator may abort only what hangs (KIP-664): an abort marker in one partition of a transaction
that its coordinator then commits would tear it. A partition's leader does not know transactional
ids, so every coordinator is asked for the producer id. This is rare, and need not be fast.
"""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.apis.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.coordinator.transaction.service import TransactionService
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Partition
from headwater_broker.metadata.cache import MetadataCache

OPEN_STATES = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)
LIST_VERSION = 0
DESCRIBE_VERSION = 0


class TransactionClaims:
    """Asks the coordinators of all live brokers."""

    def __init__(
        self,
        broker_id: int,
        view: MetadataCache,
        transactions: TransactionService,
        connections: BrokerConnections,
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._transactions = transactions
        self._connections = connections

    async def partitions_of(self, producer_id: int) -> frozenset[Partition]:
        """Partitions of the producer's open transaction that lack a marker.

        Raises KafkaError(COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, ...) unless every
        coordinator answers: one that does not may have the transaction.
        """
        self._check_coordinators()
        others = [broker for broker in self._view.brokers if broker != self._broker_id]
        found = await asyncio.gather(
            self._here(producer_id), *(self._at(broker, producer_id) for broker in others)
        )
        return frozenset().union(*found)

    def _check_coordinators(self) -> None:
        """Raise KafkaError when a partition of `__transaction_state` has no live leader."""
        if not self._view.is_complete:
            detail = "the metadata is not complete yet"
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, detail)
        topic = self._view.topics.get(TRANSACTION_TOPIC)
        for state in topic.partitions.values() if topic is not None else ():
            if state.leader_id not in self._view.brokers:
                detail = f"{TRANSACTION_TOPIC}-{state.partition} has no leader"
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail)

    async def _here(self, producer_id: int) -> frozenset[Partition]:
        rows = await self._transactions.listed(frozenset(OPEN_STATES), frozenset({producer_id}))
        return frozenset(partition for row in rows for partition in row.partitions)

    async def _at(self, broker_id: int, producer_id: int) -> frozenset[Partition]:
        try:
            ids = await self._list(broker_id, producer_id)
            return await self._describe(broker_id, ids) if ids else frozenset()
        except KafkaError:
            raise
        except (OSError, TimeoutError, HeadwaterError) as error:
            detail = f"broker {broker_id} does not say which transactions it coordinates: {error}"
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, detail) from error

    async def _list(self, broker_id: int, producer_id: int) -> tuple[str, ...]:
        request = ListTransactionsRequest(
            state_filters=tuple(state.label for state in OPEN_STATES),
            producer_id_filters=(producer_id,),
        )
        reply = await self._connections.call(
            broker_id, request, LIST_VERSION, ListTransactionsResponse
        )
        if reply.error_code:
            code = ErrorCode(reply.error_code)
            raise KafkaError(code, f"broker {broker_id} does not list its transactions")
        return tuple(row.transactional_id for row in reply.transaction_states)

    async def _describe(self, broker_id: int, ids: tuple[str, ...]) -> frozenset[Partition]:
        request = DescribeTransactionsRequest(transactional_ids=ids)
        reply = await self._connections.call(
            broker_id, request, DESCRIBE_VERSION, DescribeTransactionsResponse
        )
        for row in reply.transaction_states:
            if row.error_code:
                code = ErrorCode(row.error_code)
                raise KafkaError(code, f"broker {broker_id} does not describe its transactions")
        return frozenset(
            (topic.topic, index)
            for row in reply.transaction_states
            for topic in row.topics
            for index in topic.partitions
        )
