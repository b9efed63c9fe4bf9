"""OffsetFetch: committed offsets of one group (to version 7) or of several (KIP-709).

A partition without a commit has offset -1 and no error. From version 9 on a member of a consumer
group names itself and its epoch (KIP-848); version 10 names topics by id.
With `require_stable` (version 7, KIP-447) an offset that an open transaction may change is answered
as UNSTABLE_OFFSET_COMMIT, which clients retry.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import (
    NAMES_BY_ID_SINCE,
    each_group,
    require_group,
    topic_name,
)
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.group.offsets import Committed
from headwater_broker.coordinator.group.records import TopicPartition
from headwater_broker.coordinator.group.service import GroupOffsets

GROUPS_SINCE = 8
TOP_LEVEL_ERROR_SINCE = 2


@handles(OffsetFetchRequest, OffsetFetchResponse)
async def offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """One error code or the offsets per group. Only the shape differs between versions."""
    if ctx.api_version >= GROUPS_SINCE:
        stable = request.require_stable
        found = await each_group(
            request.groups, lambda group: _group(ctx, group, require_stable=stable)
        )
        return OffsetFetchResponse(groups=tuple(found))
    topics = request.topics
    requested = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else tuple(
            OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
            for t in topics
        ),
    )
    group = await _group(ctx, requested, require_stable=request.require_stable)
    rows = group.topics
    if group.error_code and ctx.api_version < TOP_LEVEL_ERROR_SINCE:
        rows = tuple(_failed(t, ErrorCode(group.error_code)) for t in requested.topics or ())
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=tuple(
            OffsetFetchResponseTopic(
                name=t.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(
                        partition_index=p.partition_index,
                        committed_offset=p.committed_offset,
                        committed_leader_epoch=p.committed_leader_epoch,
                        metadata=p.metadata,
                        error_code=p.error_code,
                    )
                    for p in t.partitions
                ),
            )
            for t in rows
        ),
    )


async def _group(
    ctx: RequestContext, requested: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    try:
        require_group(ctx, Operation.DESCRIBE, requested.group_id)
        if requested.topics is None:
            rows = await _all(ctx, requested, require_stable=require_stable)
        else:
            rows = await _some(ctx, requested, requested.topics, require_stable=require_stable)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=requested.group_id, error_code=error.code)
    return OffsetFetchResponseGroup(group_id=requested.group_id, topics=tuple(rows))


async def _fetch(
    ctx: RequestContext,
    requested: OffsetFetchRequestGroup,
    wanted: tuple[TopicPartition, ...] | None,
    *,
    require_stable: bool,
) -> GroupOffsets:
    return await ctx.broker.groups.fetch(
        requested.group_id,
        wanted,
        require_stable=require_stable,
        member_id=requested.member_id,
        member_epoch=requested.member_epoch,
    )


async def _all(
    ctx: RequestContext, requested: OffsetFetchRequestGroup, *, require_stable: bool
) -> list[OffsetFetchResponseTopics]:
    found = await _fetch(ctx, requested, None, require_stable=require_stable)
    by_topic: dict[str, list[OffsetFetchResponsePartitions]] = {}
    for (topic, partition), row in found.items():
        if ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            by_topic.setdefault(topic, []).append(_row(partition, row))
    rows = []
    for topic, partitions in by_topic.items():
        known = ctx.broker.view.topics.get(topic)
        if known is None and ctx.api_version >= NAMES_BY_ID_SINCE:
            continue  # deleted: it has no id
        made = OffsetFetchResponseTopics(name=topic, partitions=tuple(partitions))
        if known is not None:
            made = OffsetFetchResponseTopics(
                name=topic, topic_id=known.topic_id, partitions=tuple(partitions)
            )
        rows.append(made)
    return rows


async def _some(
    ctx: RequestContext,
    requested: OffsetFetchRequestGroup,
    topics: Iterable[OffsetFetchRequestTopics],
    *,
    require_stable: bool,
) -> list[OffsetFetchResponseTopics]:
    names: dict[int, str] = {}
    rows: dict[int, OffsetFetchResponseTopics] = {}
    topics = tuple(topics)
    for at, topic in enumerate(topics):
        try:
            name = topic_name(ctx, topic.name, topic.topic_id)
        except KafkaError as error:
            rows[at] = _failed(topic, error.code)
            continue
        if ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, name):
            names[at] = name
        else:
            rows[at] = _failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    wanted = tuple((names[at], p) for at in names for p in topics[at].partition_indexes)
    found = await _fetch(ctx, requested, wanted, require_stable=require_stable)
    for at, name in names.items():
        rows[at] = OffsetFetchResponseTopics(
            name=topics[at].name,
            topic_id=topics[at].topic_id,
            partitions=tuple(_row(p, found[(name, p)]) for p in topics[at].partition_indexes),
        )
    return [rows[at] for at in range(len(topics))]


def _row(partition: int, row: Committed) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=row.offset,
        committed_leader_epoch=row.leader_epoch,
        metadata=row.metadata,
        error_code=row.error,
    )


def _failed(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=tuple(
            OffsetFetchResponsePartitions(
                partition_index=p, committed_offset=-1, metadata="", error_code=code
            )
            for p in topic.partition_indexes
        ),
    )
