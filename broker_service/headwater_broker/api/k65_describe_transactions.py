"""DescribeTransactions: the state of transactional ids (KIP-664).

Headwater's own tagged fields name the client, and why markers cannot be written.
"""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k65_describe_transactions import DescribeTransactionsRequest, TopicData
from headwater.wire.described_transactions import (
    DescribedTransaction,
    DescribedTransactionsResponse,
    MarkerError,
)
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.transaction_requests import require_transactional_id
from headwater_broker.coordinator.transaction.transaction import Transaction


@handles(DescribeTransactionsRequest, DescribedTransactionsResponse)
async def describe_transactions(
    ctx: RequestContext, request: DescribeTransactionsRequest
) -> DescribedTransactionsResponse:
    """One description or error per transactional id."""
    rows = await asyncio.gather(*(_describe(ctx, name) for name in request.transactional_ids))
    return DescribedTransactionsResponse(transaction_states=tuple(rows))


async def _describe(ctx: RequestContext, transactional_id: str) -> DescribedTransaction:
    try:
        require_transactional_id(ctx, Operation.DESCRIBE, transactional_id)
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        return _row(ctx, await ctx.broker.transactions.described(transactional_id))
    except KafkaError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)


def _row(ctx: RequestContext, found: Transaction) -> DescribedTransaction:
    """Once the outcome is decided, only partitions that do not hold their marker yet are named."""
    partitions, failures = set(found.partitions), {}
    pending = ctx.broker.transactions.markers.of(found.transactional_id)
    if pending is not None and pending.transaction.identity == found.identity:
        partitions, failures = set(pending.missing), pending.failures
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        if may_on_topic(ctx, Operation.DESCRIBE, topic):
            topics.setdefault(topic, []).append(index)
    return DescribedTransaction(
        transactional_id=found.transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(indexes)) for topic, indexes in topics.items()
        ),
        principal=found.client.principal,
        client_id=found.client.client_id,
        client_host=found.client.host,
        last_update_ms=found.last_update_ms,
        marker_errors=tuple(
            MarkerError(
                topic=topic,
                partition=index,
                error_code=failure.code,
                error_message=failure.detail,
                failed_ms=failure.failed_ms,
                attempts=failure.attempts,
            )
            for (topic, index), failure in sorted(failures.items())
            if topic in topics
        ),
    )
