"""Shared by the handlers of groups: rights, many groups per request, topics by id."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater_broker.api.context import RequestContext

NAMES_BY_ID_SINCE = 10
"""OffsetCommit and OffsetFetch name topics by id from this version on (KIP-848)."""
GROUPS_AT_ONCE = 1_000
"""Groups of one request that are asked about concurrently; more would cost memory."""

T = TypeVar("T")
Row = TypeVar("Row")


async def each_group(groups: Sequence[T], ask: Callable[[T], Awaitable[Row]]) -> list[Row]:
    """The result of `ask` for each group, in order. Groups are asked about concurrently, as one may
    wait for its partition to load or to replicate: in sequence, a request of many groups would
    outlast every client's timeout."""
    rows: list[Row] = []
    for at in range(0, len(groups), GROUPS_AT_ONCE):
        rows += await asyncio.gather(*map(ask, groups[at : at + GROUPS_AT_ONCE]))
    return rows


def require_group(ctx: RequestContext, operation: Operation, group_id: str) -> None:
    """Raises KafkaError(GROUP_AUTHORIZATION_FAILED)."""
    if not ctx.allowed(operation, ResourceType.GROUP, group_id):
        raise KafkaError(
            ErrorCode.GROUP_AUTHORIZATION_FAILED, f"no {operation.name} on group {group_id}"
        )


def topic_name(
    ctx: RequestContext, name: str, topic_id: UUID, names_by_id_since: int = NAMES_BY_ID_SINCE
) -> str:
    """The topic's name, found by its id in versions with ids. Raises UNKNOWN_TOPIC_ID."""
    if ctx.api_version < names_by_id_since:
        return name
    known = ctx.broker.view.topic_by_id.get(topic_id)
    if known is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic_id} is not known here")
    return known.name
