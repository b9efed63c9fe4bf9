"""Shared by the handlers of the share coordinator: rights, and one answer per share partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater_broker.api.admin.forwarding import require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.replica.share.ports import SharePartitionKey

Row = TypeVar("Row")


async def each_share_partition(
    ctx: RequestContext,
    group_id: str,
    topics: Sequence[Any],
    ask: Callable[[SharePartitionKey, Any], Awaitable[Row]],
    refuse: Callable[[int, KafkaError], Row],
) -> list[tuple[UUID, tuple[Row, ...]]]:
    """The rows of each topic of a request between brokers (CLUSTER_ACTION). `ask(key, row)` answers
    a row of the request, `refuse(partition, error)` with an error. All rows are asked at once."""

    async def answer(topic_id: UUID, row: Any) -> Row:
        try:
            require_on_cluster(ctx, Operation.CLUSTER_ACTION)
            return await ask(SharePartitionKey(group_id, topic_id, row.partition), row)
        except KafkaError as error:
            return refuse(row.partition, error)

    rows = [(topic.topic_id, row) for topic in topics for row in topic.partitions]
    answers = iter(await asyncio.gather(*(answer(topic_id, row) for topic_id, row in rows)))
    return [(topic.topic_id, tuple(next(answers) for _ in topic.partitions)) for topic in topics]
