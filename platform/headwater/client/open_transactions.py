"""The open transactions of a prefix of transactional ids: listed, and aborted by fencing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.coordinator_calls import CoordinatorCalls
from headwater.client.core.transacting import Request
from headwater.client.errors import kafka_error
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

ONGOING = "Ongoing"


async def open_transactions(cluster: Cluster, prefix: str, timeout_ms: float) -> set[str]:
    """The transactional ids that begin with `prefix` and have an open transaction.

    Every broker is asked: each lists those that it coordinates. Raises KafkaError, OSError.
    """

    async def attempt() -> set[str]:
        await cluster.refresh(())
        found = await asyncio.gather(*(_listed(cluster, node) for node in cluster.cache.brokers))
        return {name for names in found for name in names if name.startswith(prefix)}

    return await cluster.retrying("listing open transactions", attempt, timeout_ms)


async def _listed(cluster: Cluster, node_id: int) -> Sequence[str]:
    request = ListTransactionsRequest(state_filters=(ONGOING,))
    reply = await cluster.call(node_id, request, ListTransactionsResponse)
    if reply.error_code:
        raise kafka_error(reply.error_code, f"ListTransactions of broker {node_id}")
    return [row.transactional_id for row in reply.transaction_states]


async def abort_by_fencing(
    cluster: Cluster, transactional_ids: Iterable[str], transaction_timeout_ms: int
) -> None:
    """Fence the producers of these ids, which aborts what they left open. Raises KafkaError."""
    calls = CoordinatorCalls(cluster)
    for transactional_id in transactional_ids:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )

        async def attempt(connection: Connection, request: InitProducerIdRequest = request) -> None:
            reply = await cluster.call_on(connection, request, InitProducerIdResponse)
            if reply.error_code:
                raise kafka_error(
                    reply.error_code, f"InitProducerId of {request.transactional_id!r}"
                )

        await calls.to_transaction(Request.INIT, transactional_id, attempt)
