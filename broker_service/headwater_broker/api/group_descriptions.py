"""Shared by ConsumerGroupDescribe and ShareGroupDescribe: rights, errors, authorized operations."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis import k69_consumer_group_describe as k69
from headwater.wire.apis import k77_share_group_describe as k77
from headwater_broker.api.authorized_operations import authorized_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group

HIDDEN = "The group has described topic(s) that the client is not authorized to describe."

Described = TypeVar("Described", k69.DescribedGroup, k77.DescribedGroup)


async def described(
    ctx: RequestContext,
    group_ids: Sequence[str],
    kind: type[Described],
    describe: Callable[[str], Awaitable[Described]],
    topics_of: Callable[[Described], set[str]],
    *,
    with_operations: bool,
) -> tuple[Described, ...]:
    """One description or error per group. `topics_of`: the topics that a description shows, each of
    which the client must be allowed to describe."""

    def failed(group_id: str, code: ErrorCode, detail: str) -> Described:
        return kind(
            error_code=code,
            error_message=detail or None,
            group_id=group_id,
            group_state="",
            assignor_name="",
        )

    async def ask(group_id: str) -> Described:
        try:
            require_group(ctx, Operation.DESCRIBE, group_id)
            row = await describe(group_id)
        except KafkaError as error:
            return failed(group_id, error.code, error.detail)
        for name in sorted(topics_of(row)):
            if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
                return failed(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, HIDDEN)
        if not with_operations or row.error_code:
            return row
        allowed = authorized_operations(ctx, ResourceType.GROUP, group_id)
        return replace(row, authorized_operations=allowed)

    return tuple(await each_group(group_ids, ask))
